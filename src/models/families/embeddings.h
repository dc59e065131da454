// Embeddings read where their table lies: in a file, in its dtype.
#pragma once

#include <cstdint>
#include <span>

#include "attend/tensor.h"
#include "models/weight_matrix.h"

namespace attend::inline v1::models {

// sum[n] += table[ids[n]]; sum [N,E] f32, table [...,E] f32, bf16 or f16. The ids are within the table.
void add_embeddings(Tensor& sum, const View& table, std::span<const std::int64_t> ids);
void add_embeddings(Tensor& sum, const Matrix& table, std::span<const std::int64_t> ids);
// x = factor * x, f32.
void multiply(Tensor& x, float factor);

}  // namespace attend::inline v1::models
