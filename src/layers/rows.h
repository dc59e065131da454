// Whole tensors through the kernels for rows, cut over the threads.
#pragma once

#include <cstdint>
#include <span>

#include "attend/tensor.h"

namespace attend::inline v1 {

// x as row-major memory of another floating-point dtype.
Tensor converted(const View& x, DType dtype);

// x itself where it is row-major, else a copy, which `made` holds.
View in_row_major(const View& x, Tensor& made);

// sum += x, row-major, sum in f32 and as many elements.
void add_to(Tensor& sum, const View& x);

// Rows of x [N,E], as a tensor of their own, f32.
Tensor rows_at(const View& x, std::span<const std::int64_t> rows);

// sum of a b, in double.
double dot(const float* a, const float* b, std::int64_t count);

// products[n] = row . rows[n]; row [size], rows [count,size], f32. On the calling thread.
void multiply_rows(const float* row, const float* rows, std::int64_t size, std::int64_t count, float* products);

}  // namespace attend::inline v1
