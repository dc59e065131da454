// Rows of x for products of bytes: 32 numbers are whole ones times a scale, written in signed bytes, their digits.
#pragma once

#include "kernels/blocks.h"

namespace attend::inline v1::kernels {
namespace {

// What is known of the digits' sums, in each half of the 32: of three digits, of the highest, and of the others.
template <int N>
struct DigitSums {
  std::int32_t rest[2];
};
template <>
struct DigitSums<3> {
  std::int16_t high[2];
  std::int32_t rest[2];
};

// 32 numbers of x, each scale * (256 * 256 * digit[0] + 256 * digit[1] + digit[2]) for three digits. These are fixed
// point of 24 bits, as fine as f32 is where x is largest, and their scale is a power of two. One digit or two round x.
// NaN among the numbers makes the scale NaN, and so all of the row's results.
//
// Of numbers near either end of f32 the scale, or it times a weight's, is no normal number. Such are kept `far`: the
// numbers times 2^96 or 2^-32, and the scale below 0. Infinite ones: the scale is -infinity, the highest digits are 1
// and -1 where they stand, and 0 elsewhere.
template <int N>
struct Digits {
  std::int8_t digit[N][chunk_columns];  // the highest first
  float scale;
  float sum[3];  // of the numbers: in each half, in both
  DigitSums<N> sums;
  std::int32_t beside_far;  // whether there are far ones in its row, or in another that was prepared with it

  // A half's sum of `sums`' member, or with `both` their sum.
  static std::int32_t of(const auto* each, int half) { return half == both ? each[0] + each[1] : each[half]; }
};
static_assert(sizeof(Digits<3>) == 128 && sizeof(Digits<2>) == 92 && sizeof(Digits<1>) == 60);

// Where the largest of 32 is below the one, or not below the other, they are far. A weight's scale is 2^-24 at least
// and below 2^22, and a sum is of 32 numbers.
constexpr float far_below = 0x1p-80f, far_above = 0x1p100f;

// What far numbers are multiplied by. It is told from the scale that they have then: below 2^10, or above 2^45.
constexpr float up = 0x1p96f, down = 0x1p-32f;
inline float undo_far(float scale) {
  return scale < 0x1p40f ? 1 / up : 1 / down;
}

// The scale by which the largest of 32 fills the digits. Of three it is 2^-22 of a power of two above it: numbers are
// below 127 * (65536 + 256 + 1), which is 2^23 / 1.004.
template <int N>
inline float scale_of(float largest) {
  if constexpr (N < 3) return max_of(largest, far_below) / (N == 2 ? 127 * 257 : 127);
  largest *= 1.004f;
  std::uint32_t bits;
  __builtin_memcpy(&bits, &largest, sizeof bits);
  const std::uint32_t exponent = max_of<std::uint32_t>(bits >> 23, 23);
  bits = (exponent - 22) << 23;
  float scale;
  __builtin_memcpy(&scale, &bits, sizeof scale);
  return scale;
}

template <int N>
inline void fill_digits(const SignedWords* numbers, float scale, Digits<N>& to) {
  constexpr std::uint32_t halves_of_bytes = N == 3 ? 0x808080 : N == 2 ? 0x8080 : 0x80;
  constexpr int vectors_of_half = 16 / lanes;
  std::int32_t sums[2];
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    SignedWords sum{}, high_sum{};
#pragma GCC unroll 4
    for (int i = half * vectors_of_half; i < half * vectors_of_half + vectors_of_half; ++i) {
      // Bytes from -128 to 127: those of a number that is 128 more in each, less 128 in each.
      const SignedWords balanced = (SignedWords)(((Words)numbers[i] + halves_of_bytes) ^ halves_of_bytes);
#pragma GCC unroll 3
      for (int n = 0; n < N; ++n) Simd::store_low_bytes(to.digit[n] + i * lanes, (F)(balanced >> (8 * (N - 1 - n))));
      sum += numbers[i], high_sum += balanced << 8 >> 24;
    }
    sums[half] = Simd::sum_i32((F)sum), to.sums.rest[half] = sums[half];
    if constexpr (N == 3) {
      const std::int32_t high = Simd::sum_i32((F)high_sum);
      to.sums.high[half] = static_cast<std::int16_t>(high), to.sums.rest[half] -= 65536 * high;
    }
  }
  to.scale = scale, to.beside_far = 0;
  to.sum[0] = static_cast<float>(sums[0]) * scale, to.sum[1] = static_cast<float>(sums[1]) * scale;
  to.sum[2] = static_cast<float>(sums[0] + sums[1]) * scale;
}

template <int N>
inline void write_digits(const float* x, Digits<N>& to);

template <int N>
__attribute__((noinline)) void write_far_digits(const float* x, float largest, Digits<N>& to) {
  if (largest - largest == 0) {
    float near[chunk_columns];
    for (std::int64_t i = 0; i < chunk_columns; ++i) near[i] = x[i] * (largest < 1 ? up : down);
    write_digits(near, to);
    to.scale = -to.scale;
    return;
  }
  SignedWords numbers[chunk_columns / lanes];
  for (std::int64_t i = 0; i < chunk_columns; ++i)
    numbers[i / lanes][i % lanes] = (1 << (8 * (N - 1))) * ((x[i] == infinity) - (x[i] == -infinity));
  fill_digits(numbers, largest == infinity ? -infinity : largest, to);
}

template <int N>
inline void write_digits(const float* x, Digits<N>& to) {
  std::uint32_t bits[chunk_columns], most = 0;
  __builtin_memcpy(bits, x, sizeof bits);
  for (const std::uint32_t b : bits) most = max_of(most, b & 0x7FFFFFFF);  // NaN, if one is
  float largest;
  __builtin_memcpy(&largest, &most, sizeof largest);
  if (most != 0 && !(largest >= far_below && largest < far_above)) [[unlikely]]
    return write_far_digits(x, largest, to);
  const float scale = scale_of<N>(largest), inverse = 1 / scale;
  SignedWords numbers[chunk_columns / lanes];
#pragma GCC unroll 8
  for (int i = 0; i < chunk_columns / lanes; ++i)
    numbers[i] = (SignedWords)Simd::to_i32(Simd::mul(Simd::load(x + i * lanes), Simd::set1(inverse)));
  fill_digits(numbers, scale, to);
}

template <int N>
void prepare_digits(const float* x, std::int64_t columns, void* to) {
  auto* digits = static_cast<Digits<N>*>(to);
  const std::int64_t count = columns / chunk_columns;
  bool far = false;
  for (std::int64_t i = 0; i < count; ++i) {
    write_digits(x + i * chunk_columns, digits[i]);
    far |= digits[i].scale < 0;
  }
  for (std::int64_t i = 0; far && i < count; ++i) digits[i].beside_far = 1;
}

}  // namespace
}  // namespace attend::inline v1::kernels
