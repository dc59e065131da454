// Products of a few queries with keys, and of their weights with values: the head dimension stands in lanes, so that
// keys and values are read as they lie in memory.
#pragma once

#include "kernels/arithmetic.h"

namespace attend::inline v1::kernels {
namespace {

constexpr int team = 4;  // rows that share a load of keys and values
static_assert(lanes % team == 0 && tile_keys % lanes == 0);
// Sums of values that are added up at once: of so many rows, and of so many vectors of columns. Values that are widened
// as they are read are widened once, for all rows of a team: then of fewer columns.
template <class Read>
constexpr int value_rows = Read::size == 4 ? Simd::value_rows : team;
template <class Read>
constexpr int value_vectors = Simd::value_rows* Simd::value_vectors / value_rows<Read>;
static_assert(Simd::value_vectors % 2 == 0 && team % Simd::value_rows == 0);
static_assert(Simd::value_rows * Simd::value_vectors / team % 2 == 0);

// Elements as f32 vectors, or as pairs of 16 bits.
struct ReadF32 {
  static constexpr std::int64_t size = 4;
  static F load(const char* p) { return Simd::load(reinterpret_cast<const float*>(p)); }
};
struct ReadBF16 {
  static constexpr std::int64_t size = 2;
  static F load(const char* p) { return Simd::load_bf16(reinterpret_cast<const std::uint16_t*>(p)); }
  static F load_pairs(const char* p) { return Simd::load(reinterpret_cast<const float*>(p)); }
};
struct ReadF16 {
  static constexpr std::int64_t size = 2;
  static F load(const char* p) { return Simd::load_f16(reinterpret_cast<const std::uint16_t*>(p)); }
};
struct ReadI8 {
  static constexpr std::int64_t size = 1;
  static F load_pairs(const char* p) { return Simd::load_i8(reinterpret_cast<const std::int8_t*>(p)); }
};
// Of keys, whose pairs stand side by side: a pair is what is counted.
using PairsBF16 = ReadF32;  // as wide as a float, and read as they are
struct PairsI8 {
  static constexpr std::int64_t size = 2;
  static F load(const char* p) { return ReadI8::load_pairs(p); }
};

// Keys and values of a tile where they can be read a vector at a time.
struct Lines {
  const char* data;
  std::int64_t row;  // bytes from one to the next
};

// products[i * keys + j]: of query i of q [Rows][steps], whole vectors of them, and the key at line[j]. A row's number
// is the same however many there are. also(j, s): while step s of key j is read.
template <class Dot, class Read, int Rows, class Also>
inline __attribute__((always_inline)) void dot_rows(const float* q, std::int64_t steps,
                                                    const char* const (&line)[lanes / Rows], float* products,
                                                    Also also) {
  constexpr int keys = lanes / Rows, together = keys < 4 ? keys : 4;
  F sums[lanes];
#pragma GCC unroll 16
  for (int i = 0; i < lanes; ++i) sums[i] = Simd::zero();
#pragma GCC unroll 4
  for (int first = 0; first < keys; first += together) {
    for (std::int64_t s = 0; s < steps; s += lanes) {
      F x[together];
#pragma GCC unroll 4
      for (int j = 0; j < together; ++j) {
        x[j] = Read::load(line[first + j] + s * Read::size);
        also(first + j, s);
      }
#pragma GCC unroll 4
      for (int i = 0; i < Rows; ++i) {
        const F y = Simd::load(q + i * steps + s);
#pragma GCC unroll 4
        for (int j = 0; j < together; ++j) {
          F& sum = sums[i * keys + first + j];
          sum = Dot::fma(y, x[j], sum);
        }
      }
    }
  }
  Simd::store(products, Dot::sum_each(sums));
}

// Of each of the keys from one on, the weight for each row of a team, `stride` floats from row to row: of one key, or
// of two keys side by side where products take pairs.
struct RowWeights {
  const float* data;
  std::int64_t stride;
};

// sums[i][n]: over the keys, row i's weight times N vectors of values, which begin where v's lines do. Columns of pairs
// come out in the order of interleave_low and interleave_high. also(key, byte): while it is read.
template <class Dot, class Read, int Rows, int N, class Also>
inline __attribute__((always_inline)) void mix_rows(F (&sums)[Rows][N], RowWeights weights, Lines v, std::int64_t keys,
                                                    Also also) {
#pragma GCC unroll 4
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) sums[i][n] = Simd::zero();
  }
  for (std::int64_t j = 0; j < keys; j += Dot::pair, v.data += Dot::pair * v.row, ++weights.data) {
    F x[N];
    if constexpr (Dot::pair == 1) {
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) {
        x[n] = Read::load(v.data + n * lanes * Read::size);
        if ((n * lanes * Read::size) % 64 == 0) also(j, n * lanes * Read::size);
      }
    } else {
      const bool odd_key = j + 1 < keys;  // else its weight is 0, and 0 stands for its value
#pragma GCC unroll 4
      for (int n = 0; n < N; n += 2) {
        const std::int64_t byte = n * lanes * Read::size;
        const F a = Read::load_pairs(v.data + byte);
        const F b = odd_key ? Read::load_pairs(v.data + v.row + byte) : Simd::zero();
        if (byte % 64 == 0) also(j, byte), also(j + odd_key, byte);
        x[n] = Simd::interleave_low(a, b);
        x[n + 1] = Simd::interleave_high(a, b);
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < Rows; ++i) {
      const F weight = Simd::set1(weights.data[i * weights.stride]);
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) sums[i][n] = Dot::fma(weight, x[n], sums[i][n]);
    }
  }
}

}  // namespace
}  // namespace attend::inline v1::kernels
