// What the kernels of every target share: arithmetic on vectors, and reading and writing elements of any dtype. A file
// that includes this has included a vector layer `Simd` before.
//
// A caution that holds for all that is compiled for a target: it is compiled for processors that the running one may
// not be. It may include no header with inline functions of its own (<algorithm>, <cmath>, ...): the linker would keep
// one copy for the whole program, and it might be this one.
#pragma once

#include <cfloat>
#include <cstddef>
#include <cstdint>

#include "kernels/target.h"

namespace attend::kernels {
namespace {

using F = Simd::F;
using Mask = Simd::Mask;

constexpr int vectors = Simd::vectors;  // of queries in a panel
constexpr int lanes = Simd::lanes;
constexpr int width = vectors * lanes;  // query rows in a panel
constexpr int block = Simd::block;
constexpr float log2_e = 1.44269504088896340736f;
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
    T* here = reinterpret_cast<T*>(memory + used);
    used += round_up(count * static_cast<std::int64_t>(sizeof(T)), 64);
    return here;
  }
};

// ---- Arithmetic ----

// 2^x, relative error 8.3e-8 (degree 5) or 2.9e-6 (degree 4) and exact for whole x. The polynomial is 2^f on [0,1],
// fitted for the smallest relative error with p(0) = 1.
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
  const F e = exp2<5>(Simd::mul(Simd::min(a, Simd::set1(20)), Simd::set1(2 * log2_e)));
  const F large = Simd::sub(Simd::set1(1), Simd::div(Simd::set1(2), Simd::add(e, Simd::set1(1))));
  return Simd::select(beyond, Simd::copy_sign(large, x), small);
}

// How products are made and in which form a panel holds its operands: 32 bits a lane in both.
struct DotF32 {
  static constexpr int pair = 1;  // products in one step
  static constexpr int degree = 5;
  static F fma(F a, F b, F c) { return Simd::fma(a, b, c); }
  // The weights of one step.
  static F step(F weight, F) { return weight; }
  static F scale(F step, F alpha) { return Simd::mul(step, alpha); }
};

#ifdef ATTEND_BF16_DOT
// Two bf16 products a lane and step, summed in f32.
struct DotBF16 {
  static constexpr int pair = 2;
  static constexpr int degree = 4;  // the weights keep 8 bits
  static F fma(F a, F b, F c) { return Simd::dot_bf16(a, b, c); }
  static F step(F even, F odd) { return Simd::pair_bf16(even, odd); }
  static F pair_rows(const std::uint16_t* low, const std::uint16_t* high) { return Simd::pair_rows_bf16(low, high); }
  static void store_half(std::uint16_t* to, F x) { Simd::store_bf16_operand(to, x); }
  static F interleave_low(F a, F b) { return Simd::interleave_low(a, b); }
  static F interleave_high(F a, F b) { return Simd::interleave_high(a, b); }
  static F scale(F step, F alpha) { return Simd::scale_pair_bf16(step, alpha); }
};
#endif

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

// ---- Elements of any dtype ----

float load_scalar(DType dtype, const char* from) {
  std::uint16_t half;
  float single;
  double wide;
  switch (dtype) {
    case DType::bf16: {
      __builtin_memcpy(&half, from, 2);
      const std::uint32_t bits = static_cast<std::uint32_t>(half) << 16;
      __builtin_memcpy(&single, &bits, 4);
      return single;
    }
    case DType::f16: {
      std::uint16_t padded[lanes] = {};
      float row[lanes];
      __builtin_memcpy(padded, from, 2);
      Simd::store(row, Simd::load_f16(padded));
      return row[0];
    }
    case DType::f64:
      // Finite stays finite: a bias of -1e300 is not one of -infinity.
      __builtin_memcpy(&wide, from, 8);
      if (wide - wide == 0) wide = max_of<double>(-FLT_MAX, min_of<double>(wide, FLT_MAX));
      return static_cast<float>(wide);
    default:
      __builtin_memcpy(&single, from, 4);
      return single;
  }
}

std::int64_t bytes_of(DType dtype) {
  return dtype == DType::f64 ? 8 : dtype == DType::f32 ? 4 : dtype == DType::boolean ? 1 : 2;
}

const char* at(const void* data, DType dtype, std::int64_t element) {
  return static_cast<const char*>(data) + element * bytes_of(dtype);
}
char* at(void* data, DType dtype, std::int64_t element) {
  return static_cast<char*>(data) + element * bytes_of(dtype);
}

// body(i) for i = 0, lanes, 2 * lanes, ..., and once more for the last `lanes` elements where they don't fit: some are
// then done twice. count >= lanes.
template <class Body>
inline __attribute__((always_inline)) void for_each_vector(std::int64_t count, Body body) {
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) body(i);
  if (i < count) body(count - lanes);
}

// `count` elements, `stride` apart, as f32, times `factor`.
void load_row(float* to, DType dtype, const char* from, std::int64_t stride, std::int64_t count, float factor = 1) {
  if (stride == 1 && count >= lanes && dtype != DType::f64) {
    const F f = Simd::set1(factor);
    const auto* half = reinterpret_cast<const std::uint16_t*>(from);
    const auto* single = reinterpret_cast<const float*>(from);
    switch (dtype) {
      case DType::bf16:
        return for_each_vector(count,
                               [=](std::int64_t i) { Simd::store(to + i, Simd::mul(Simd::load_bf16(half + i), f)); });
      case DType::f16:
        return for_each_vector(count,
                               [=](std::int64_t i) { Simd::store(to + i, Simd::mul(Simd::load_f16(half + i), f)); });
      default:
        return for_each_vector(count,
                               [=](std::int64_t i) { Simd::store(to + i, Simd::mul(Simd::load(single + i), f)); });
    }
  }
  for (std::int64_t i = 0; i < count; ++i) to[i] = load_scalar(dtype, from + i * stride * bytes_of(dtype)) * factor;
}

// `count` f32 elements to dtype (f32, bf16 or f16), `stride` apart.
void store_row(const float* from, DType dtype, char* to, std::int64_t stride, std::int64_t count) {
  if (stride == 1 && count >= lanes) {
    auto* half = reinterpret_cast<std::uint16_t*>(to);
    auto* single = reinterpret_cast<float*>(to);
    switch (dtype) {
      case DType::bf16:
        return for_each_vector(count, [=](std::int64_t i) { Simd::store_bf16(half + i, Simd::load(from + i)); });
      case DType::f16:
        return for_each_vector(count, [=](std::int64_t i) { Simd::store_f16(half + i, Simd::load(from + i)); });
      default:
        return for_each_vector(count, [=](std::int64_t i) { Simd::store(single + i, Simd::load(from + i)); });
    }
  }
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint16_t half[lanes];
    if (dtype == DType::bf16) Simd::store_bf16(half, Simd::set1(from[i]));
    if (dtype == DType::f16) Simd::store_f16(half, Simd::set1(from[i]));
    char* place = to + i * stride * bytes_of(dtype);
    if (dtype == DType::f32)
      __builtin_memcpy(place, from + i, 4);
    else
      __builtin_memcpy(place, half, 2);
  }
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

// ---- Rows and keys ----

const char* rows_at(const Rows& rows, std::int64_t key) {
  if (!rows.blocks) return at(rows.data, rows.dtype, key * rows.row);
  return at(rows.blocks[key / rows.block_rows], rows.dtype, rows.offset + key % rows.block_rows * rows.row);
}

char* rows_at(const MutableRows& rows, std::int64_t key) {
  return at(rows.data, rows.dtype, key * rows.row);
}

// Where one row of one head begins.
const char* operand_at(const Operand& x, std::int64_t head, std::int64_t row) {
  return at(x.data, x.dtype, head * x.head + row * x.row);
}
char* operand_at(const MutableOperand& x, std::int64_t head, std::int64_t row) {
  return at(x.data, x.dtype, head * x.head + row * x.row);
}

// Ones below that bit.
std::uint64_t below(std::int64_t bit) {
  return bit <= 0 ? 0 : bit >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bit) - 1;
}

// Which of the keys start, start + 1, ... (at most 64) a row of a bool mask shows, a bit each.
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

// Which of the keys start, start + 1, ... (64) of a row dropout keeps, a bit each.
std::uint64_t dropout_bits(std::uint64_t row, std::uint32_t threshold, std::int64_t start) {
  std::uint8_t kept[64];
  for (std::int64_t j = 0; j < 64; ++j) kept[j] = dropout_keeps(row, threshold, start + j);
  return Simd::bits_of_bools(kept);
}

// What the weights that dropout keeps are multiplied by.
float dropout_factor(const Group& g) {
  return static_cast<float>(1 / (1 - g.rules.dropout.p));
}

// `count` elements of 16 bits, `stride` apart, and zeros up to `padded`.
void copy_halves(std::uint16_t* to, const char* from, std::int64_t stride, std::int64_t count, std::int64_t padded) {
  if (stride == 1 && count >= 2 * lanes) {
    std::int64_t i = 0;
    for (; i + 2 * lanes <= count; i += 2 * lanes) __builtin_memcpy(to + i, from + i * 2, 4 * lanes);
    __builtin_memcpy(to + count - 2 * lanes, from + (count - 2 * lanes) * 2, 4 * lanes);
  } else {
    for (std::int64_t i = 0; i < count; ++i) __builtin_memcpy(to + i, from + i * stride * 2, 2);
  }
  for (std::int64_t i = count; i < padded; ++i) to[i] = 0;
}

// What a score is multiplied by where the queries do not hold it yet: |scale| log2 e. Its sign, and a scale of 0, are
// in the queries, so that a masked score of -infinity stays one.
float late_factor(const Group& g) {
  const double scale = g.rules.scale < 0 ? -g.rules.scale : g.rules.scale;
  return scale == 0 ? 1 : static_cast<float>(scale * 1.44269504088896340736);
}

// In log2 units. Beyond these bounds a cap no longer changes f32 scores, but it would overflow or vanish.
float cap_of(const Group& g) {
  return static_cast<float>(g.features.softcap ? max_of(1e-30, min_of(g.rules.softcap, 1e30)) : 0) * log2_e;
}

// One query row as the products take it, into `to` [steps * pair]: f32 with scale and log2 e in it; or for bf16
// products as it is.
template <class Dot>
void load_query(const Group& g, std::int64_t head, std::int64_t query, float* to, std::int64_t steps) {
  const char* from = operand_at(g.q, head, query);
  if constexpr (Dot::pair == 1) {
    load_row(to, g.q.dtype, from, g.q.column, g.sizes.D, static_cast<float>(g.rules.scale * 1.44269504088896340736));
    for (std::int64_t d = g.sizes.D; d < steps; ++d) to[d] = 0;
  } else {
    auto* half = reinterpret_cast<std::uint16_t*>(to);
    copy_halves(half, from, g.q.column, g.sizes.D, 2 * steps);
    const std::uint16_t sign = g.rules.scale < 0 ? 0x8000 : 0, kept = g.rules.scale == 0 ? 0 : 0xFFFF;
    for (std::int64_t d = 0; (sign || !kept) && d < g.sizes.D; ++d)
      half[d] = static_cast<std::uint16_t>((half[d] ^ sign) & kept);
  }
}

}  // namespace
}  // namespace attend::kernels
