// Numbers of any magnitude: what must hold between a call and the same one with other magnitudes, to the last bit where
// that is so.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <string>

#include "tests/attention/gradient.h"

namespace attend {
namespace {

using namespace test;

constexpr DType dtypes[] = {DType::f32, DType::bf16, DType::f16, DType::f64};

// x * 2^exponent in place, which is exact as long as it stays within the dtype's range.
void scale_by(const View& x, int exponent) {
  const Tensor scaled = [&] {
    Tensor out = x.to(DType::f64);
    for (std::int64_t n = 0; n < out.count(); ++n) out.data<double>()[n] = std::ldexp(out.data<double>()[n], exponent);
    return out;
  }();
  MutableView(const_cast<void*>(x.raw()), x.dtype(), x.shape(), x.strides()).copy_from(scaled);
}

void expect_scaled(const View& actual, const View& expected, int exponent, const std::string& what) {
  const Tensor scaled = expected.clone();
  scale_by(scaled, exponent);
  expect_same(actual, scaled, what + " * 2^" + std::to_string(exponent));
}

// How a call is scaled: q, k, v and dout by 2^q, ... and the scale so that the logits stay.
struct Exponents {
  int q, k, v, dout;

  // Of what comes out of the call: gradients of q, k and v, and of logits.
  int dq() const { return v + dout - q; }
  int dk() const { return v + dout - k; }
  int dlogits() const { return v + dout; }

  // Numbers near 1 keep away from both ends of the dtype's range: a gradient is a sum of terms that are smaller than 1.
  bool fit(int most) const {
    for (const int e : {q, k, v, dout, q + k, dq(), dk(), dlogits()})
      if (std::abs(e) > most) return false;
    return true;
  }
};

Exponents draw_exponents(Dice& dice, int most) {
  for (;;) {
    const auto draw = [&] { return static_cast<int>(dice.below(2 * most + 1)) - most; };
    const Exponents e{draw(), draw(), draw(), draw()};
    if (e.fit(most)) return e;
  }
}

void scale_call(BackwardCall& c, const Exponents& e) {
  c.x.options.scale = std::ldexp(c.x.options.scale.value_or(1 / std::sqrt(c.x.Q.size(3))), -e.q - e.k);
  scale_by(c.x.Q, e.q), scale_by(c.x.K, e.k), scale_by(c.x.V, e.v), scale_by(c.Dout, e.dout);
  if (c.wanted.dlse) scale_by(*c.wanted.dlse, e.dlogits());
  c.forward = c.x.run({.lse_low = true});
  c.wanted.lse_low = c.forward.lse_low;
}

// f32 and bf16 reach from 2^-126 to 2^128. Terms of a sum may be far smaller than it, weights among them 2^-60, so the
// exponents stay away from there.
TEST(AttentionMagnitudes, PowersOfTwoChangeNoOtherBit) {
  for (const std::uint64_t seed : sweep(80'000, 80'160)) {
    Dice dice(seed);
    const DType dtype = seed % 2 == 0 ? DType::f32 : DType::bf16;
    const unsigned wanted = random_features(dice);
    const Sizes sizes = random_sizes(dice, 40, 90);
    const bool with_dlse = dice.one_in(2);
    const auto make = [&] { return backward_of(make_call(sizes, wanted, dtype, seed), seed, with_dlse); };
    BackwardCall plain = make(), scaled = make();
    const Exponents e = draw_exponents(dice, 30);
    scale_call(scaled, e);
    const std::string what = fmt::format("{} q 2^{} k 2^{} v 2^{} dout 2^{}", plain.x.what, e.q, e.k, e.v, e.dout);
    expect_scaled(scaled.forward.out, plain.forward.out, e.v, what + " out");
    expect_same(scaled.forward.lse, plain.forward.lse, what + " lse");
    expect_same(*scaled.forward.lse_low, *plain.forward.lse_low, what + " lse_low");
    const AttentionGradients got = scaled.run(), expected = plain.run();
    const auto ours = listed(got), theirs = listed(expected);
    const int of[] = {e.dq(), e.dk(), e.dout, e.dlogits(), e.dlogits(), e.dlogits(), e.dlogits()};
    for (std::size_t n = 0; n < gradient_names.size(); ++n) {
      if (!theirs[n] || theirs[n]->dtype() == DType::f16) continue;  // which reaches from 2^-14 to 2^16 alone
      expect_scaled(*ours[n], *theirs[n], of[n], what + " " + gradient_names[n]);
    }
  }
}

// Of values 1: a row that sees a key gives 1, and what dv sums up to over the keys is dout over the rows that see one.
void expect_sums_of_1(const BackwardCall& c, const BackwardOptions& wanted, double tolerance) {
  const View &out = c.forward.out, &lse = c.forward.lse;
  const AttentionGradients g = attention_backward(c.Dout, c.x.Q, c.x.K, c.x.V, out, lse, c.x.options, wanted);
  const std::int64_t group = c.x.Q.size(1) / c.x.K.size(1);
  for (std::int64_t b = 0; b < out.size(0); ++b)
    for (std::int64_t kv = 0; kv < c.x.K.size(1); ++kv)
      for (std::int64_t d = 0; d < out.size(3); ++d) {
        double douts = 0, size = 0, dvs = 0;
        for (std::int64_t h = kv * group; h < (kv + 1) * group; ++h)
          for (std::int64_t i = 0; i < out.size(2); ++i) {
            const bool sees = lse.item({b, h, i}) != -INFINITY;
            EXPECT_NEAR(out.item({b, h, i, d}), sees ? 1 : 0, tolerance) << c.x.what;
            if (sees) douts += c.Dout.item({b, h, i, d}), size += std::abs(c.Dout.item({b, h, i, d}));
          }
        for (std::int64_t j = 0; j < c.x.K.size(2); ++j) {
          dvs += g.dv.item({b, kv, j, d}), size += std::abs(g.dv.item({b, kv, j, d}));
        }
        EXPECT_NEAR(dvs, douts, tolerance * size) << c.x.what;
      }
}

// A constant in all logits of a row changes them by what rounding does. Whatever it is, weights are finite and their
// sum is 1, in the forward and in the backward, with lse_low or without.
TEST(AttentionMagnitudes, WeightsSumTo1WhateverTheLogitsShare) {
  for (const std::uint64_t seed : sweep(81'000, 81'120)) {
    Dice dice(seed);
    const DType dtype = dtypes[seed % 4];
    Call x = make_call(random_sizes(dice, 40, 90), dice.one_in(2) ? with_causal : 0u, dtype, seed);
    const double exponent = static_cast<double>(dice.below(76'000)) / 1000 - 38;
    x.bias = Tensor({1}, DType::f64);
    x.bias.data<double>()[0] = (dice.one_in(2) ? 1 : -1) * std::min(2.3e38, std::pow(10, exponent));
    x.options.bias = x.bias;
    for (std::int64_t n = 0; n < x.v.count(); ++n) {
      store_element(dtype, static_cast<std::byte*>(x.v.raw()) + n * size_of(dtype), 1);
    }
    x.what += fmt::format(" constant {}", x.bias.item({0}));
    const BackwardCall c = backward_of(std::move(x), seed, false);
    // bf16 and f16 round out, weights and dv.
    const double tolerance = dtype == DType::f64 ? 1e-12 : dtype == DType::f32 ? 2e-6 : 2 * roundoff(dtype);
    expect_sums_of_1(c, {.lse_low = c.forward.lse_low}, tolerance);
    expect_sums_of_1(c, {}, tolerance);
  }
}

}  // namespace
}  // namespace attend
