// A matrix of weights where it lies.
#pragma once

#include <optional>
#include <string_view>

#include "attend/layers.h"

namespace attend::inline v1::models {

struct Matrix {
  View view;                                 // of a quantized one the shape alone: no numbers are there
  std::optional<QuantizedView> blocks = {};  // its rows, also where the shape is the other way round
};

// "f32", "Q4_K"
std::string_view format_of(const Matrix& matrix);
std::int64_t bytes_of(const Matrix& matrix);
// The bytes of so many numbers in rows of whole blocks of Q8_0.
std::int64_t q8_0_bytes(std::int64_t count);
// Whether rows of so many numbers are such blocks.
bool are_q8_0_rows(std::int64_t columns);
// A matrix [rows,columns] of any strides as such rows, in ggml's rounding; none where it has numbers that they can't
// have, NaN among them.
std::optional<Tensor> q8_0_rows(const View& matrix);
// In f32, of the view's shape and order.
Tensor numbers(const Matrix& matrix);
// Of one shape and format, with the same bytes; both contiguous.
bool is_same(const Matrix& a, const Matrix& b);

}  // namespace attend::inline v1::models
