// Arithmetic on vectors, which the kernels of every target share. A file that includes this, or any other header of the
// kernels that are compiled for a target, has included a vector layer `Simd` before (targets/*.cpp).
//
// A caution that holds for all that is compiled for a target: it is compiled for processors that the running one may
// not be. It may include no header with inline functions of its own (<algorithm>, <cmath>, ...): the linker would keep
// one copy for the whole program, and it might be this one.
#pragma once

#include <cfloat>
#include <cstddef>
#include <cstdint>

#include "kernels/target.h"

namespace attend::inline v1::kernels {
namespace {

using F = Simd::F;
using Mask = Simd::Mask;

constexpr int lanes = Simd::lanes;
using Words = std::uint32_t __attribute__((vector_size(4 * lanes)));

// Of words of two bf16, the floats of the lower and the higher ones.
inline F low_half(F words) {
  return (F)((Words)words << 16);
}
inline F high_half(F words) {
  return (F)((Words)words & 0xFFFF0000);
}
// The register tile: `height` rows of `vectors` vectors.
constexpr int vectors = Simd::vectors;
constexpr int height = Simd::height;
constexpr int width = vectors * lanes;
static_assert(lanes == 4 || lanes == 8 || lanes == 16, "four rows are transposed at once; lanes are summed by halves");
static_assert(vectors == 2 || vectors == 3, "the forward's and the backward's cases of a tile");
static_assert(height == 4 || height == 8, "the products' remainders are taken four rows and one row at a time");
static_assert(tile_keys % height == 0 && tile_keys % lanes == 0);

constexpr double log2_e = 1.44269504088896340736;
constexpr double ln_2 = 0.69314718055994530942;
constexpr float infinity = __builtin_inff();
// What a row's maximum is before any key: exp2(-infinity - m) is 0, where m = -infinity would give NaN.
constexpr float no_maximum = -FLT_MAX;
// A row is scaled down only where its maximum has grown by more than this, in log2: weights stay below 2^9.
constexpr float slack = 8;

template <class T>
constexpr T min_of(T a, T b) {
  return a < b ? a : b;
}
template <class T>
constexpr T max_of(T a, T b) {
  return a > b ? a : b;
}
constexpr std::int64_t round_up(std::int64_t x, std::int64_t to) {
  return (x + to - 1) / to * to;
}

// Pieces of one stretch of scratch, each 64-byte aligned. Over no memory it counts what they need.
struct Scratch {
  char* memory = nullptr;
  std::int64_t used = 0;

  template <class T>
  T* take(std::int64_t count) {
    T* here = memory ? reinterpret_cast<T*>(memory + used) : nullptr;
    used += round_up(count * static_cast<std::int64_t>(sizeof(T)), 64);
    return here;
  }
};

// What lives in its scratch, and is made there. Without <new>, whose operator is an inline function that other files
// would see.
struct InScratch {
  static void* operator new(std::size_t, void* place) { return place; }
};

// ---- Arithmetic ----

// 2^x, relative error 1.7e-7 (degree 5; 8.3e-8 without rounding) or 3.0e-6 (degree 4), exact for whole x. The
// polynomial is 2^f on [0,1], fitted for the smallest relative error with p(0) = 1.
template <int Degree>
F exp2(F x) {
  static constexpr float degree_4[] = {1.0f, 0.69304484f, 0.2412802f, 0.052242473f, 0.013426684f};
  static constexpr float degree_5[] = {1.0f, 0.6931513f, 0.24016444f, 0.055799913f, 0.009017031f, 0.00186713f};
  const float* c = Degree == 4 ? degree_4 : degree_5;
  const F f = Simd::fraction(x);
  F p = Simd::set1(c[Degree]);
#pragma GCC unroll 8
  for (int i = Degree - 1; i >= 0; --i) p = Simd::fma(p, f, Simd::set1(c[i]));
  return Simd::scale_by_floor(p, x);
}

// tanh, relative error below 4e-7: Taylor's series to x^11 up to 0.3, where its next term is below 1e-8 of the sum; by
// way of exp beyond, where not much cancels.
F tanh(F x) {
  const F a = Simd::abs(x), y = Simd::mul(a, a);
  static constexpr float taylor[] = {1.0f, -1.0f / 3, 2.0f / 15, -17.0f / 315, 62.0f / 2835, -1382.0f / 155925};
  F p = Simd::set1(taylor[5]);
#pragma GCC unroll 8
  for (int i = 4; i >= 0; --i) p = Simd::fma(p, y, Simd::set1(taylor[i]));
  const F small = Simd::mul(x, p);
  const Mask beyond = Simd::greater(a, Simd::set1(0.3f));
  if (!Simd::any(beyond)) return small;  // scores far below the cap: the most frequent case
  const F e = exp2<5>(Simd::mul(Simd::min(a, Simd::set1(20)), Simd::set1(static_cast<float>(2 * log2_e))));
  const F large = Simd::sub(Simd::set1(1), Simd::div(Simd::set1(2), Simd::add(e, Simd::set1(1))));
  return Simd::select(beyond, Simd::copy_sign(large, x), small);
}

// log(x) for finite x > 0, within 1e-11 of log or of 1: what rounding to f32 leaves unseen. In plain operations, which
// the compiler turns into vectors; the C library's took an eighth of the time where there are few keys.
inline double logarithm(float x) {
  const auto wide = static_cast<double>(x);
  std::uint64_t bits;
  __builtin_memcpy(&bits, &wide, 8);
  // x = 2^exponent * f, f in [1/sqrt(2), sqrt(2)).
  const std::uint64_t shifted = bits - 0x3FE6A09E667F3BCD;
  const auto exponent = static_cast<double>(static_cast<std::int32_t>(static_cast<std::int64_t>(shifted) >> 52));
  bits = (shifted & 0x000FFFFFFFFFFFFF) + 0x3FE6A09E667F3BCD;
  double f;
  __builtin_memcpy(&f, &bits, 8);
  // log(f) = 2 atanh(s), |s| < 0.172: the next term of its series is below 6e-13.
  const double s = (f - 1) / (f + 1), y = s * s;
  const double series =
      1 + y * (1.0 / 3 + y * (1.0 / 5 + y * (1.0 / 7 + y * (1.0 / 9 + y * (1.0 / 11 + y * (1.0 / 13))))));
  return exponent * ln_2 + 2 * s * series;
}

// Lanes of low and high rounded to bf16 as Simd::store_bf16() rounds, side by side in a word.
inline F round_pair(F low, F high) {
  const auto rounded = [](F x) {
    const Words bits = (Words)x, nearest = bits + 0x7FFF + (bits >> 16 & 1), quiet = bits | 0x400000;
    return (Words)Simd::select(Simd::equal(x, x), (F)nearest, (F)quiet);
  };
  return (F)(rounded(low) >> 16 | (rounded(high) & 0xFFFF0000u));
}

// 0, 1, ..., lanes - 1.
F lane_numbers() {
  struct Numbers {
    float lane[lanes];
    constexpr Numbers() : lane() {
      for (int n = 0; n < lanes; ++n) lane[n] = static_cast<float>(n);
    }
  };
  static constexpr Numbers numbers;
  return Simd::load(numbers.lane);
}

// All lanes into one number, by halves: one after another, each would wait for the one before.
template <class Both>
float reduce(F x, Both both) {
  float each[lanes];
  Simd::store(each, x);
#pragma GCC unroll 4
  for (int half = lanes / 2; half > 0; half /= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < half; ++i) each[i] = both(each[i], each[i + half]);
  }
  return each[0];
}
float sum_of_lanes(F x) {
  return reduce(x, [](float a, float b) { return a + b; });
}
float largest_lane(F x) {
  return reduce(x, [](float a, float b) { return a > b ? a : b; });
}

// How products are made and in which form a panel holds its operands: 32 bits a lane in both.
struct DotF32 {
  static constexpr int pair = 1;  // products in one step
  static constexpr bool integer = false;
  static constexpr int degree = 5;
  static F fma(F a, F b, F c) { return Simd::fma(a, b, c); }
  // The weights of one step.
  static F step(F weight, F) { return weight; }
  static F scale(F step, F alpha) { return Simd::mul(step, alpha); }
  static F sum_each(const F (&x)[lanes]) { return Simd::sum_each(x); }
  static F total(F sum) { return sum; }  // as f32
};

// Two products of 16-bit integers a lane and step, summed in 32 bits without an error: decode over keys of 8 bits.
struct DotI16 {
  static constexpr int pair = 2;
  static constexpr bool integer = true;
  static F fma(F a, F b, F c) { return Simd::dot_i16(a, b, c); }
  static F sum_each(const F (&x)[lanes]) { return Simd::from_i32(Simd::sum_each_i32(x)); }
  static F total(F sum) { return Simd::from_i32(sum); }
};

// sums[r][v] += over the steps s: a[r * a_row + s * a_step] * b[s * b_row + v * lanes ...], v from First to Last.
template <class Dot, int R, int First, int Last, int N>
inline __attribute__((always_inline)) void multiply(F (&sums)[R][N], const float* a, std::int64_t a_row,
                                                    std::int64_t a_step, const float* b, std::int64_t steps,
                                                    std::int64_t b_row = width) {
  for (std::int64_t s = 0; s < steps; ++s) {
    F x[N];
#pragma GCC unroll 4
    for (int v = First; v < Last; ++v) x[v] = Simd::load(b + v * lanes);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      float scalar;
      __builtin_memcpy(&scalar, a + r * a_row, sizeof scalar);  // a may be misaligned
      const F y = Simd::set1(scalar);
#pragma GCC unroll 4
      for (int v = First; v < Last; ++v) sums[r][v] = Dot::fma(y, x[v], sums[r][v]);
    }
    a += a_step;
    b += b_row;
  }
}

}  // namespace
}  // namespace attend::inline v1::kernels
