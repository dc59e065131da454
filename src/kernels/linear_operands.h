// y = x W^T + b over plain memory, in the register tile of the attention scores.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attend/dtype.h"
#include "attend/quantized.h"

namespace attend::inline v1::kernels {

// Rows of x that one call takes at most: the part of the weights that they meet together stays in the L1 cache.
inline constexpr std::int64_t linear_rows = 64;
// Rows that meet weights where they pass by. A packed panel serves more of them sooner: against it one row took 0.5 to
// 0.8 of the time, 8 took 0.8 (f32) and 1.0 (bf16), 16 took 0.9 and 1.2 (2,048 x 2,048).
inline constexpr std::int64_t linear_stream_rows = 8;

struct LinearOperands {
  DType dtype = DType::f32;         // of x: f32, or bf16
  DType weight_dtype = DType::f32;  // x's; or bf16 beside x in f32, with an even `in`
  DType y_dtype = DType::f32;       // f32, or bf16
  const void* x = nullptr;          // [rows,in], a row in one piece
  const float* packed = nullptr;    // pack()ed weights of x's dtype, for run()
  const void* weight = nullptr;     // [out,in] of weight_dtype, row-major, for stream()
  const float* bias = nullptr;      // [out], or null: none
  void* y = nullptr;                // [rows,out], a row in one piece
  std::int64_t in = 0, out = 0;
  std::int64_t x_stride = 0, y_stride = 0;  // elements from one row to the next
};

// A quantized weight, and how its type's blocks are cut.
struct BlockMatrix {
  QuantizedView matrix = {};
  std::int64_t block_size = 0, block_bytes = 0;
  std::int64_t row_bytes = 0;  // from one row to the next: `matrix` may be some of their columns
};

namespace {

// Where a row lies in a matrix whose heads are interleaved (QuantizedView); 0: they are not.
inline std::int64_t interleaved_row(std::int64_t row, std::int64_t head_size) {
  if (head_size == 0) return row;
  const std::int64_t inside = row % head_size, half = head_size / 2;
  return row - inside + inside % half * 2 + inside / half;
}

}  // namespace

// Both gradients of y = x W^T are products of that kind: dx = dy W has the weights W^T, and dW = dy^T x has the rows
// dy^T and the weights x^T. What follows brings the operands there.

// One panel, as LinearKernels::pack makes it, of weights that are given by their transpose: columns [in,out],
// row-major, in the dtype of the product. `packed` takes outputs [first, last), at most panel_rows. These rows are what
// the kernel reads side by side, so that copying is all. An odd number of bf16 inputs is filled up with a zero.
void linear_pack_columns(DType product, const void* columns, std::int64_t in, std::int64_t out, std::int64_t first,
                         std::int64_t last, std::int64_t panel_rows, float* packed);

// Columns [first, last) of x [rows,columns] as rows of to [columns,stride], both row-major and of dtype f32 or bf16;
// zeros beyond the last of `rows`.
void transpose_columns(DType dtype, const void* x, std::int64_t rows, std::int64_t columns, std::int64_t first,
                       std::int64_t last, std::int64_t stride, void* to);

}  // namespace attend::inline v1::kernels
