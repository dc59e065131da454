// Memory as the tests see it: tests/allocations.cpp stands in for operator new, aligned_alloc and posix_memalign in the
// test program.
#pragma once

#include <cstdint>

namespace attend::test {

// While one exists, allocations are counted, and the n-th one fails (from 0; -1: none).
class CountAllocations {
 public:
  explicit CountAllocations(std::int64_t fails = -1);
  ~CountAllocations();
  CountAllocations(const CountAllocations&) = delete;
  CountAllocations& operator=(const CountAllocations&) = delete;
  std::int64_t count() const;         // of both kinds
  std::int64_t tensor_bytes() const;  // by the other two
  std::int64_t list_bytes() const;    // by operator new
  bool failed() const;
};

}  // namespace attend::test
