// y = x W^T + b over plain memory, in the register tile of the attention scores.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attend/dtype.h"

namespace attend::kernels {

// Rows of x that one call takes at most: the part of the weights that they meet together stays in the L1 cache.
inline constexpr std::int64_t linear_rows = 64;

struct LinearOperands {
  DType dtype = DType::f32;       // of x and y: f32, or bf16
  const void* x = nullptr;        // [rows,in], row-major
  const float* packed = nullptr;  // pack()ed weights of that dtype
  const float* bias = nullptr;    // [out], or null: none
  void* y = nullptr;              // [rows,out], row-major
  std::int64_t in = 0, out = 0;
};

}  // namespace attend::kernels
