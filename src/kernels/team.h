// Scores of a few queries: the head dimension stands in lanes, so that keys are read as they lie in memory.
#pragma once

#include "kernels/arithmetic.h"

namespace attend::kernels {
namespace {

constexpr int team = 4;                     // rows that share a load of keys and values
constexpr int keys_at_once = lanes / team;  // team * keys_at_once dot products fill a vector
static_assert(lanes % team == 0);

// Elements as f32 vectors.
struct ReadF32 {
  static constexpr std::int64_t size = 4;
  static F load(const char* p) { return Simd::load(reinterpret_cast<const float*>(p)); }
};
struct ReadBF16 {
  static constexpr std::int64_t size = 2;
  static F load(const char* p) { return Simd::load_bf16(reinterpret_cast<const std::uint16_t*>(p)); }
};
struct ReadF16 {
  static constexpr std::int64_t size = 2;
  static F load(const char* p) { return Simd::load_f16(reinterpret_cast<const std::uint16_t*>(p)); }
};
using ReadPairs = ReadF32;  // pairs of bf16, for the bf16 dot: as wide as a float, and read as they are

// products[i * keys_at_once + j]: of row i of a team's queries q [team][steps], whole vectors of them, and the key at
// line[j]. also(j, s): while step s of key j is read.
template <class Dot, class Read, class Also>
inline __attribute__((always_inline)) void dot_team(const float* q, std::int64_t steps,
                                                    const char* const (&line)[keys_at_once], float* products,
                                                    Also also) {
  F sums[lanes];
#pragma GCC unroll 16
  for (int i = 0; i < lanes; ++i) sums[i] = Simd::zero();
  for (std::int64_t s = 0; s < steps; s += lanes) {
    F x[keys_at_once];
#pragma GCC unroll 4
    for (int j = 0; j < keys_at_once; ++j) {
      x[j] = Read::load(line[j] + s * Read::size);
      also(j, s);
    }
#pragma GCC unroll 4
    for (int i = 0; i < team; ++i) {
      const F y = Simd::load(q + i * steps + s);
#pragma GCC unroll 4
      for (int j = 0; j < keys_at_once; ++j) sums[i * keys_at_once + j] = Dot::fma(y, x[j], sums[i * keys_at_once + j]);
    }
  }
  Simd::store(products, Simd::sum_each(sums));
}

}  // namespace
}  // namespace attend::kernels
