// Single elements of any dtype, at any address: files and foreign memory need not be aligned.
#pragma once

#include <cstring>

#include "attend/tensor.h"

namespace attend {

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

// Exact for every dtype but i64 beyond 2^53.
double load_element(DType dtype, const void* from);
// Rounds to nearest even (bf16 and f16 by way of f32); integers truncate.
void store_element(DType dtype, void* to, double value);

}  // namespace attend
