// What is visible: which keys of a tile a row sees, by its range (rules.h), its mask, and where a bias is -infinity;
// and which of their weights dropout keeps. 64 keys are 64 bits.
#pragma once

#include "kernels/operand.h"

namespace attend::inline v1::kernels {
namespace {

// Ones below that bit.
std::uint64_t below(std::int64_t bit) {
  return bit <= 0 ? 0 : bit >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bit) - 1;
}
// Ones from the first of them on.
std::uint64_t between(std::int64_t begin, std::int64_t end) {
  return below(end) & ~below(begin);
}

// The ranges of keys that some rows see, and what they have in common.
struct Ranges {
  KeyRange* row = nullptr;
  std::int64_t min_lo = INT64_MAX, max_lo = 0, min_hi = INT64_MAX, max_hi = 0;

  void add(std::int64_t at, KeyRange range) {
    row[at] = range;
    // A row that sees nothing does not hold the others' first tile back.
    if (range.hi > 0) min_lo = min_of(min_lo, range.lo);
    max_lo = max_of(max_lo, range.lo);
    min_hi = min_of(min_hi, range.hi);
    max_hi = max_of(max_hi, range.hi);
  }
  // Whether some row may see some of these keys; whether every row sees all of them, but for a mask or a bias.
  bool meet(std::int64_t begin, std::int64_t end) const { return begin < max_hi && end > min_lo; }
  bool hold(std::int64_t begin, std::int64_t end) const { return max_lo <= begin && min_hi >= end; }
};

// Which of the keys start, start + 1, ... (at most 64) a row of a bool mask shows.
std::uint64_t mask_bits(const char* row, std::int64_t column, std::int64_t start, std::int64_t keys) {
  const auto* from = reinterpret_cast<const std::uint8_t*>(row) + start * column;
  if (column == 1 && keys == tile_keys) {
    __builtin_prefetch(from + tile_keys, 0, 2);  // the next tile's: rows are far apart
    return Simd::bits_of_bools(from);
  }
  std::uint64_t bits = 0;
  for (std::int64_t j = 0; j < keys; ++j) bits |= static_cast<std::uint64_t>(from[j * column] != 0) << j;
  return bits;
}

// Which of the 64 keys from `start` on a row sees by its range and its row of the mask, where there is one.
inline __attribute__((always_inline)) std::uint64_t visible_bits(const Group& g, KeyRange range, const char* mask_row,
                                                                 std::int64_t start) {
  const std::uint64_t bits = between(range.lo - start, range.hi - start);
  if (!g.features.mask) return bits;
  return bits & mask_bits(mask_row, g.mask.column, start, min_of(tile_keys, g.rules.key_length - start));
}

// Which of `count` floats (a multiple of lanes, at most 64) are -infinity; mostly none.
std::uint64_t infinities_in(const float* row, std::int64_t count) {
  F least = Simd::zero();
  for (std::int64_t j = 0; j < count; j += lanes) least = Simd::min(Simd::load(row + j), least);
  std::uint64_t bits = 0;
  if (!Simd::any(Simd::equal(least, Simd::set1(-infinity)))) return bits;
  for (std::int64_t j = 0; j < count; ++j) bits |= static_cast<std::uint64_t>(row[j] == -infinity) << j;
  return bits;
}

// ---- Biases ----

// Whether it is the bias that they are.
bool has_bias_alone(const Features& features) {
  return features.bias && !features.distance_bias;
}

// Where they begin for one row.
struct BiasRow {
  const char* bias;
  const char* distances;
  std::int64_t level;  // query + offset
};

BiasRow bias_row(const Group& g, std::int64_t head, std::int64_t query) {
  return {g.features.bias ? operand_at(g.bias, head, query) : nullptr,
          g.features.distance_bias ? operand_at(g.distance_bias, head, 0) : nullptr, query + g.rules.offset};
}

// Of `keys` keys from `start` on, those in [near, far) are within reach, and have the entries first, first + 1, ... of
// distance_bias; those before have the first entry of all, and those after the last one.
struct Reach {
  std::int64_t near, far, first;
};

Reach reach_of(const Group& g, std::int64_t level, std::int64_t start, std::int64_t keys) {
  const auto within = [&](std::int64_t key) { return max_of<std::int64_t>(0, min_of(key - start, keys)); };
  const std::int64_t near = within(level - g.reach), far = within(level + g.reach + 1);
  return {near, far, distance_entry(level, start + near, g.reach)};
}

void load_distance_bias(const Group& g, BiasRow row, std::int64_t start, std::int64_t keys, float* to) {
  const DType dtype = g.distance_bias.dtype;
  const std::int64_t column = g.distance_bias.column, step = column * bytes_of(dtype);
  const Reach reach = reach_of(g, row.level, start, keys);
  const float before = load_scalar(dtype, row.distances);
  const float after = load_scalar(dtype, row.distances + 2 * g.reach * step);
  for (std::int64_t j = 0; j < reach.near; ++j) to[j] = before;
  load_row(to + reach.near, row.distances + reach.first * step, {dtype, column, reach.far - reach.near});
  for (std::int64_t j = reach.far; j < keys; ++j) to[j] = after;
}

// Zeros up to `padded`, a multiple of lanes and at most 64; which of the keys a bias of -infinity closes: they are
// masked.
std::uint64_t complete_biases(float* biases, std::int64_t keys, std::int64_t padded) {
  for (std::int64_t j = keys; j < padded; ++j) biases[j] = 0;
  return infinities_in(biases, padded);
}

// Puts distance_bias at `to`, or adds it to the bias there. A sum of finite biases is finite, so that it closes none.
__attribute__((noinline)) std::uint64_t add_distance_bias(const Group& g, BiasRow row, std::int64_t start,
                                                          std::int64_t keys, std::int64_t padded, float* to) {
  float distances[tile_keys];
  load_distance_bias(g, row, start, keys, g.features.bias ? distances : to);
  if (!g.features.bias) return complete_biases(to, keys, padded);
  const F most = Simd::set1(FLT_MAX), least = Simd::set1(-FLT_MAX);
  const std::uint64_t closed = complete_biases(distances, keys, padded);
  for (std::int64_t j = 0; j < padded; j += lanes) {
    const F sum = Simd::add(Simd::load(to + j), Simd::load(distances + j));
    Simd::store(to + j, Simd::max(least, Simd::min(most, sum)));
  }
  return closed;
}

// What a row adds to its scores of the keys start, ... (`keys` of them), padded; which of them it closes. A bias alone
// is loaded in line: it comes for every row of every tile.
inline __attribute__((always_inline)) std::uint64_t load_biases(const Group& g, BiasRow row, std::int64_t start,
                                                                std::int64_t keys, std::int64_t padded, float* to) {
  std::uint64_t closed = 0;
  if (g.features.bias) {
    load_row(to, row.bias + start * g.bias.column * bytes_of(g.bias.dtype), {g.bias.dtype, g.bias.column, keys});
    closed = complete_biases(to, keys, padded);
  }
  return g.features.distance_bias ? closed | add_distance_bias(g, row, start, keys, padded, to) : closed;
}

// ---- Dropout ----

// Which weights of the 64 keys from `start` on a row keeps, by its draws (dropout_row()).
std::uint64_t dropout_bits(const Rules& rules, std::uint64_t draws, std::int64_t start) {
  const std::uint32_t threshold = dropout_threshold(rules.dropout.p);
  std::uint8_t kept[64];
  for (std::int64_t j = 0; j < 64; ++j) kept[j] = dropout_keeps(draws, threshold, rules.dropout.key + start + j);
  return Simd::bits_of_bools(kept);
}

// What the weights that dropout keeps are multiplied by.
float dropout_factor(const Rules& rules) {
  return static_cast<float>(1 / (1 - rules.dropout.p));
}

}  // namespace
}  // namespace attend::inline v1::kernels
