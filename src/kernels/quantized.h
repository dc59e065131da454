// Keys and values of 8 bits: each row is whole numbers from -127 to 127 times a scale of its own, and a row that was
// not finite has NaN for its scale. Decode multiplies them as they are, by queries and weights of 16 bits, in whole
// numbers; the forward takes them as numbers of its own dtype.
#pragma once

#include "kernels/score.h"

namespace attend::inline v1::kernels {
namespace {

// The scales of the rows from `key` on; at least those of a tile can be read.
const float* scales_at(const Rows& rows, std::int64_t key) {
  return rows.scales[key / rows.block_rows] + rows.first + key % rows.block_rows;
}

// `count` bytes and zeros up to `padded`.
void copy_bytes(void* to, const char* from, std::int64_t count, std::int64_t padded) {
  __builtin_memcpy(to, from, static_cast<std::size_t>(count));
  __builtin_memset(static_cast<char*>(to) + count, 0, static_cast<std::size_t>(padded - count));
}

// What brings numbers up to `most` in magnitude to whole ones up to `limit`; 0 where there are none, or one is NaN. A
// bound keeps it and its inverse finite.
float growth_to(float limit, float most) {
  return most > 0 ? min_of(limit / most, 0x1p126f) : 0;
}

// One query row as whole numbers of 16 bits in `to` [2 * steps], so large that the sum of their products with a key
// stays in 32 bits. Returns what the products are multiplied by, the scale included; NaN for a row that is not
// finite. `buffer`: 2 * steps floats.
float load_query_i16(const Group& g, std::int64_t head, std::int64_t query, std::int16_t* to, std::int64_t steps,
                     float* buffer) {
  load_operand<DotF32>(buffer, operand_at(g.q, head, query), {g.q.dtype, g.q.column, g.sizes.D}, 2 * steps);
  float most = 0;
  for (std::int64_t d = 0; d < g.sizes.D; ++d) most = max_of(__builtin_fabsf(buffer[d]), most);
  const auto limit = static_cast<float>(min_of<std::int64_t>(32767, (std::int64_t{1} << 24) / (2 * steps)));
  const float growth = growth_to(limit, most);
  for (std::int64_t d = 0; d < 2 * steps; d += lanes) {
    Simd::store_i16(to + d, Simd::mul(Simd::load(buffer + d), Simd::set1(growth)));
  }
  if (!are_finite(buffer, 0, 1, g.sizes.D)) return __builtin_nanf("");
  return growth == 0 ? 0 : score_factor(g.rules) / growth;
}

// A row's products with the keys of a tile to its scores, in place: times the row's factor and each key's scale.
void scale_products(float* products, float factor, const float* scales) {
  for (std::int64_t j = 0; j < tile_keys; j += lanes) {
    const F score = Simd::mul(Simd::load(products + j), Simd::set1(factor));
    Simd::store(products + j, Simd::mul(score, Simd::load(scales + j)));
  }
}

// Scales of values are taken so much smaller, lest weights, below 2^9, times them leave f32.
constexpr float small = 0x1p-10f;

// The scales of a tile's values, `keys` of them, times `small`; 0 where a row is not finite. Whether all are.
bool load_value_scales(float* to, const float* from, std::int64_t keys) {
  for (std::int64_t j = 0; j < tile_keys; ++j) to[j] = j < keys && from[j] - from[j] == 0 ? from[j] * small : 0;
  return are_finite(from, 0, 1, keys);
}

// A row's weights of `count` keys (a multiple of lanes), times the values' scales, as whole numbers of 16 bits. Returns
// what their products with the values are multiplied by.
float round_weights(const float* weights, const float* scales, std::int64_t count, std::int16_t* to) {
  F top = Simd::zero();
  for (std::int64_t j = 0; j < count; j += lanes) {
    top = Simd::max(Simd::mul(Simd::load(weights + j), Simd::load(scales + j)), top);
  }
  const float growth = growth_to(32767, largest_lane(top));
  for (std::int64_t j = 0; j < count; j += lanes) {
    const F scaled = Simd::mul(Simd::load(weights + j), Simd::load(scales + j));
    Simd::store_i16(to + j, Simd::mul(scaled, Simd::set1(growth)));
  }
  return growth == 0 ? 0 : 1 / small / growth;
}

// NaN for the sums [rows][columns] of the rows that attend, by their weights [rows][tile_keys], to values whose scale
// says that they are not finite.
void spoil(float* sums, std::int64_t columns, const float* weights, std::int64_t rows, const float* scales,
           std::int64_t keys) {
  for (std::int64_t j = 0; j < keys; ++j) {
    for (std::int64_t r = 0; scales[j] - scales[j] != 0 && r < rows; ++r) {
      if (__builtin_signbit(weights[r * tile_keys + j])) continue;  // the mark of a hidden one
      for (std::int64_t d = 0; d < columns; ++d) sums[r * columns + d] = __builtin_nanf("");
    }
  }
}

// Rows [start, start + keys) of `columns` whole numbers as f32 or bf16, one after another.
void widen_rows(const Rows& rows, std::int64_t start, std::int64_t keys, std::int64_t columns, DType dtype, char* to,
                float* buffer) {
  const float* scales = scales_at(rows, start);
  for (std::int64_t j = 0; j < keys; ++j) {
    const auto* whole = reinterpret_cast<const std::int8_t*>(rows_at(rows, start + j));
    for (std::int64_t d = 0; d < columns; ++d) buffer[d] = static_cast<float>(whole[d]) * scales[j];
    store_row(buffer, to + j * columns * bytes_of(dtype), {dtype, 1, columns});
  }
}

}  // namespace
}  // namespace attend::inline v1::kernels
