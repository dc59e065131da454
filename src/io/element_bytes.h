// Elements as they lie in a file: little-endian, row-major, as in memory.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <span>

#include "attend/tensor.h"
#include "core/message.h"

namespace attend::inline v1 {

static_assert(std::endian::native == std::endian::little, "files are little-endian, and so must memory be");

// The bytes of a tensor; none where the sizes, those that are 0 aside, have a product that 63 bits can't count.
std::optional<std::uint64_t> byte_count(DType dtype, std::span<const std::int64_t> shape);

// Throws bad_file where a bool is neither 0 nor 1: C++ may do anything with such a one. `start` is the place of the
// first element.
void require_booleans(const Tensor& tensor, const Place& place, std::uint64_t start);

// The same of `count` bytes.
void require_booleans(const void* bytes, std::int64_t count, const Place& place, std::uint64_t start);

// The tensor, or a row-major copy of it where it lies otherwise; the view must outlive it.
class RowMajor {
 public:
  explicit RowMajor(const View& view);
  const void* data() const { return data_; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  Tensor copy_;
  const void* data_;
  std::uint64_t bytes_;
};

}  // namespace attend::inline v1
