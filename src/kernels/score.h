// From a product of a query and a key to the logit that the softmax sees, in log2 units: scale, curve, biases, ALiBi.
#pragma once

#include "kernels/visible.h"

namespace attend::inline v1::kernels {
namespace {

// ---- Scale ----

// What a product of a query and a key is multiplied by, so that exp2 of it is e^(scale q.k).
float score_factor(const Rules& rules) {
  return static_cast<float>(rules.scale * log2_e);
}

// Where one of the operands is multiplied by it, nothing is left to do. Products of bf16 are of the numbers as they
// are, and multiplied afterwards. The forward and decode multiply what may be a masked score of -infinity, so the sign
// of the scale, and a scale of 0, are in the queries, and this is positive.
template <class Dot>
float late_factor(const Rules& rules) {
  // Never 0, by the check of the arguments: 0 * -infinity is NaN.
  return Dot::pair == 1 || Dot::integer || rules.scale == 0 ? 1 : __builtin_fabsf(score_factor(rules));
}

// The sign of the scale, and a scale of 0, on a query of bf16.
inline void take_sign(const Rules& rules, std::uint16_t* half, std::int64_t count) {
  const std::uint16_t sign = rules.scale < 0 ? 0x8000 : 0, kept = rules.scale == 0 ? 0 : 0xFFFF;
  for (std::int64_t d = 0; (sign || !kept) && d < count; ++d)
    half[d] = static_cast<std::uint16_t>((half[d] ^ sign) & kept);
}

// One query row as the products of the forward and decode take it, into `to` [steps * pair].
template <class Dot>
inline __attribute__((always_inline)) void load_query(const Group& g, std::int64_t head, std::int64_t query, float* to,
                                                      std::int64_t steps) {
  const Elements of{g.q.dtype, g.q.column, g.sizes.D};
  load_operand<Dot>(to, operand_at(g.q, head, query), of, steps, score_factor(g.rules));
  if (Dot::pair == 2) take_sign(g.rules, reinterpret_cast<std::uint16_t*>(to), of.count);
}

// Queries [first, last) of a head.
template <class Dot>
void load_queries(const Group& g, std::int64_t head, std::int64_t first, std::int64_t last, float* to,
                  std::int64_t steps) {
  const Elements of{g.q.dtype, g.q.column, g.sizes.D};
  const std::int64_t row = g.q.row * bytes_of(g.q.dtype);
  load_operands<Dot>(to, operand_at(g.q, head, first), row, last - first, of, steps, score_factor(g.rules));
  for (std::int64_t i = 0; Dot::pair == 2 && i < last - first; ++i)
    take_sign(g.rules, reinterpret_cast<std::uint16_t*>(to + i * steps), of.count);
}

// ---- Curve ----

// What scaled scores go through, in log2 units: the softcap.
struct Curve {
  float cap;  // it and its inverse are within what f32 holds
};

// A cap beyond these bounds leaves as they are all scores but those near the end of f32, or makes them all equal.
Curve curve_of(const Rules& rules) {
  return {static_cast<float>(max_of(8.2e-39, min_of(rules.softcap, 2.3e38)) * log2_e)};
}

// cap * tanh(x / cap) in place of `count` scores x; its slopes, 1 - tanh^2, where there is room for them.
__attribute__((noinline)) void curve_scores(float* scores, std::int64_t count, Curve curve, float* slopes) {
  const F most = Simd::set1(curve.cap), inverse = Simd::set1(1 / curve.cap);
  for (std::int64_t i = 0; i < count; i += lanes) {
    const F capped = tanh(Simd::mul(Simd::load(scores + i), inverse));
    if (slopes) Simd::store(slopes + i, Simd::sub(Simd::set1(1), Simd::mul(capped, capped)));
    Simd::store(scores + i, Simd::mul(capped, most));
  }
}

// ---- Bias and ALiBi ----

// The slope of an ALiBi head, as it multiplies a distance.
float slope_of(const Group& g, std::int64_t head) {
  return static_cast<float>(-g.alibi_slopes[head] * log2_e);
}

// a b + c. Decode rounds the product first, since its loops did so before they shared this function: bits do not change
// without need, and both are within the errors that docs/numerics.md states.
template <bool OneRounding>
inline __attribute__((always_inline)) F add_product_of(F a, F b, F c) {
  return OneRounding ? Simd::fma(a, b, c) : Simd::add(c, Simd::mul(a, b));
}

// Whether a score becomes a logit by more than its scale.
bool adjusts(const Features& features) {
  return features.curve || has_biases(features) || features.alibi_slopes;
}

// The scores s[r][First to Last], in registers, become logits. `pairs` is what a kernel knows of them:
//   features, rules               which options there are
//   one_rounding                  whether products are added with one rounding
//   stage, slopes(r)              the curve: memory for R rows of scores; where a row's slopes are wanted, or null
//   bias(r, v)                    the sum of the biases
//   distance(r, v), slope(r, v)   |i + offset - j|, and what it is multiplied by
template <int R, int N, int First, int Last, class Pairs>
inline __attribute__((always_inline)) void make_logits(F (&s)[R][N], const Pairs& pairs) {
  if (pairs.features.curve) {
    const Curve curve = curve_of(pairs.rules);
    constexpr int row = (Last - First) * lanes;
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int v = First; v < Last; ++v) Simd::store(pairs.stage + r * row + (v - First) * lanes, s[r][v]);
    }
    for (int r = 0; r < R; ++r) curve_scores(pairs.stage + r * row, row, curve, pairs.slopes(r));
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int v = First; v < Last; ++v) s[r][v] = Simd::load(pairs.stage + r * row + (v - First) * lanes);
    }
  }
  if (has_biases(pairs.features)) {
    const F unit = Simd::set1(static_cast<float>(log2_e)), least = Simd::set1(no_maximum);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int v = First; v < Last; ++v) {
        // The lowest finite f32, a common bias for what should not count, is beyond f32 in log2 units. A row that sees
        // nothing else weighs all its keys the same, as in any other arithmetic.
        s[r][v] = Simd::max(least, add_product_of<Pairs::one_rounding>(pairs.bias(r, v), unit, s[r][v]));
      }
    }
  }
  if (pairs.features.alibi_slopes) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int v = First; v < Last; ++v) {
        s[r][v] = add_product_of<Pairs::one_rounding>(pairs.distance(r, v), pairs.slope(r, v), s[r][v]);
      }
    }
  }
}

}  // namespace
}  // namespace attend::inline v1::kernels
