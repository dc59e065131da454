#include "tests/allocations.h"

#include <malloc.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <new>

namespace {

std::atomic<bool> counting{false};
std::atomic<std::int64_t> allocations{0}, bytes_of_tensors{0}, bytes_of_lists{0}, failing{-1};

// Whether the allocation is to fail.
bool count_one() {
  return counting && allocations++ == failing;
}

void* take(std::size_t bytes) {
  if (count_one()) throw std::bad_alloc();
  if (counting) bytes_of_lists += static_cast<std::int64_t>(bytes);
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}

}  // namespace

namespace attend::test {

CountAllocations::CountAllocations(std::int64_t fails) {
  allocations = bytes_of_tensors = bytes_of_lists = 0;
  failing = fails;
  counting = true;
}
CountAllocations::~CountAllocations() {
  counting = false;
}
std::int64_t CountAllocations::count() const {
  return allocations;
}
std::int64_t CountAllocations::tensor_bytes() const {
  return bytes_of_tensors;
}
std::int64_t CountAllocations::list_bytes() const {
  return bytes_of_lists;
}
bool CountAllocations::failed() const {
  return failing >= 0 && allocations > failing;
}

}  // namespace attend::test

void* operator new(std::size_t bytes) {
  return take(bytes);
}
void* operator new[](std::size_t bytes) {
  return take(bytes);
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return count_one() ? nullptr : std::malloc(bytes == 0 ? 1 : bytes);
}
void* operator new[](std::size_t bytes, const std::nothrow_t& nothrow) noexcept {
  return operator new(bytes, nothrow);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}

// Where Tensor takes its memory.
extern "C" void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  if (count_one()) return nullptr;
  if (counting) bytes_of_tensors += static_cast<std::int64_t>(bytes);
  return memalign(alignment, bytes);
}
extern "C" int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) {
  *memory = aligned_alloc(alignment, bytes);
  return *memory ? 0 : ENOMEM;
}
