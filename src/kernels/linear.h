// y = x W^T + b over plain memory.
#pragma once

#include <cstdint>

namespace attend::kernels {

// Strides count elements between rows; the elements of a row stand side by side.
struct LinearOperands {
  const double* x = nullptr;      // [rows,in]
  const float* weight = nullptr;  // [out,in], row-major
  const float* bias = nullptr;    // [out], or null: none
  float* y = nullptr;             // [rows,out]
  std::int64_t in = 0;
  std::int64_t x_stride = 0;
  std::int64_t y_stride = 0;
};

// The part of y in rows [first_row, last_row) and columns [first_out, last_out). Sums are in double, in an order that
// depends on `in` alone: any way of cutting y into parts gives the same bits.
void linear(const LinearOperands& a, std::int64_t first_row, std::int64_t last_row, std::int64_t first_out,
            std::int64_t last_out);

}  // namespace attend::kernels
