#include "core/tensor_memory.h"

#ifdef __linux__
#include <sys/mman.h>
#endif

#include <algorithm>
#include <cstdlib>
#include <new>
#include <utility>

#include "attend/threads.h"

namespace attend::inline v1 {

namespace {

// What is smaller stays with the C library.
constexpr std::size_t smallest = 1 << 16;

#ifdef __linux__
// What is as large asks for pages of 2 MiB, as NumPy does for its arrays: where nobody asks, many systems give pages of
// 4 KiB. With those a layer of MiniLM took 1.11 times as long to record, and 32,768 keys 1.03 to 1.04 times as long to
// read (two cores of a Xeon).
constexpr std::size_t large = std::size_t{4} << 20, large_page = std::size_t{2} << 20;
#endif

void* take_new(std::size_t bytes) {
#ifdef __linux__
  if (bytes >= large) {
    void* memory = nullptr;
    if (posix_memalign(&memory, large_page, bytes) != 0) return nullptr;
    // Whole pages alone, so that no more memory is touched than there is. Where the system has none, nothing changes.
    madvise(memory, bytes / large_page * large_page, MADV_HUGEPAGE);
    return memory;
  }
#endif
  return std::aligned_alloc(tensor_alignment, bytes);
}

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
  return take_new(bytes);
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

Tensor filled_tensor(const Dims& shape, DType dtype, unsigned char byte) {
  constexpr std::int64_t bytes_of_a_thread = std::int64_t{1} << 18;
  Tensor tensor = Tensor::uninitialized(shape, dtype);
  auto* bytes = static_cast<unsigned char*>(tensor.raw());
  parallel_for(tensor.count() * size_of(dtype), bytes_of_a_thread,
               [&](std::int64_t begin, std::int64_t end) { std::fill(bytes + begin, bytes + end, byte); });
  return tensor;
}

}  // namespace attend::inline v1
