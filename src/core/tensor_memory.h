// Where tensors get their memory.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "attend/tensor.h"

namespace attend::inline v1 {

inline constexpr std::size_t tensor_alignment = 64;

// Aligned to that, of which `bytes` are a multiple; null: there is none.
void* take_memory(std::size_t bytes);
void give_memory(void* memory, std::size_t bytes);

// All of whose bytes are `byte`: 0, or 0xff for whole numbers of -1. Written by all threads, as the system gives memory
// page by page where it is touched.
Tensor filled_tensor(const Dims& shape, DType dtype, unsigned char byte);

// While one lives, the memory of large tensors that end on its thread serves the next ones of the same size there. The
// C library gives it back to the system instead, whose fresh pages cost a layer of a small model a tenth of its time.
class MemoryReuse {
 public:
  MemoryReuse();
  ~MemoryReuse();
  MemoryReuse(const MemoryReuse&) = delete;
  MemoryReuse& operator=(const MemoryReuse&) = delete;

 private:
  friend void* take_memory(std::size_t bytes);
  friend void give_memory(void* memory, std::size_t bytes);

  MemoryReuse* outer_;
  std::map<std::size_t, std::vector<void*>> free_;  // by size
};

}  // namespace attend::inline v1
