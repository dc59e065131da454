// Single elements of any dtype, at any address: files and foreign memory need not be aligned.
#pragma once

#include <cstddef>
#include <cstring>

#include "attend/tensor.h"

namespace attend::inline v1 {

template <class T>
T load(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <class T>
void store(void* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

// The address so many elements on. The memory of an empty view may be null, to which nothing can be added.
inline const std::byte* element_at(const void* data, DType dtype, std::int64_t offset) {
  const auto* bytes = static_cast<const std::byte*>(data);
  return bytes == nullptr ? nullptr : bytes + offset * size_of(dtype);
}
inline std::byte* element_at(void* data, DType dtype, std::int64_t offset) {
  auto* bytes = static_cast<std::byte*>(data);
  return bytes == nullptr ? nullptr : bytes + offset * size_of(dtype);
}

// Exact for every dtype but i64 beyond 2^53.
double load_element(DType dtype, const void* from);
// Rounds to nearest even (bf16 and f16 by way of f32); integers truncate, with NaN as 0 and the rest kept in range.
void store_element(DType dtype, void* to, double value);
// The same for `count` elements, each `step` elements after the one before: the dtype is looked at once.
void load_elements(DType dtype, const void* from, std::int64_t step, std::int64_t count, double* to);
void store_elements(DType dtype, void* to, std::int64_t step, std::int64_t count, const double* values);

}  // namespace attend::inline v1
