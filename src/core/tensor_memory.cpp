#include "core/tensor_memory.h"

#include <cstdlib>
#include <new>
#include <utility>

namespace attend::inline v1 {

namespace {

// What is smaller stays with the C library.
constexpr std::size_t smallest = 1 << 16;

thread_local MemoryReuse* innermost = nullptr;

}  // namespace

MemoryReuse::MemoryReuse() : outer_(std::exchange(innermost, this)) {}

MemoryReuse::~MemoryReuse() {
  innermost = outer_;
  for (const auto& [bytes, blocks] : free_) {
    for (void* block : blocks) std::free(block);
  }
}

void* take_memory(std::size_t bytes) {
  if (innermost && bytes >= smallest) {
    const auto found = innermost->free_.find(bytes);
    if (found != innermost->free_.end() && !found->second.empty()) {
      void* block = found->second.back();
      found->second.pop_back();
      return block;
    }
  }
  return std::aligned_alloc(tensor_alignment, bytes);
}

void give_memory(void* memory, std::size_t bytes) {
  if (innermost && memory && bytes >= smallest) {
    try {
      return innermost->free_[bytes].push_back(memory);
    } catch (const std::bad_alloc&) {  // no memory to note it
    }
  }
  std::free(memory);
}

}  // namespace attend::inline v1
