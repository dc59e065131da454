// Calls whose numbers have magnitudes from 1e-38 to 1e38, each tensor its own, held to the oracle's doubles: by what
// rounding can do where the weights are known, and by what must hold whatever they are where f32 cannot tell them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "core/signed_vector.h"
#include "tests/attention/gradient.h"

namespace attend {
namespace {

using namespace test;

// 10^e, e uniform.
double magnitude(Dice& dice, double lowest, double highest) {
  return std::pow(10, lowest + (highest - lowest) * static_cast<double>(dice.below(10'000)) / 10'000);
}

// x times `factor` in place, as far as the dtype reaches: numbers drawn near 1 stay finite.
void multiply(const Tensor& x, double factor) {
  const double largest = x.dtype() == DType::f16 ? 5e3 : 5e36;
  const double within = std::clamp(factor, 1 / largest, largest);
  for (std::int64_t n = 0; n < x.count(); ++n) {
    auto* element = static_cast<std::byte*>(const_cast<void*>(x.raw())) + n * size_of(x.dtype());
    store_element(x.dtype(), element, load_element(x.dtype(), element) * within);
  }
}

// Magnitudes for all operands. Logits that decide something are a narrow band of all that may be, so the scale brings
// half of them there.
void draw_magnitudes(BackwardCall& c, Dice& dice) {
  Call& x = c.x;
  const double q = magnitude(dice, -38, 38), k = magnitude(dice, -38, 38);
  const bool decides = dice.one_in(2);
  const double logits = decides ? magnitude(dice, -2, 3) : magnitude(dice, -38, 38);
  multiply(x.q, q), multiply(x.k, k);
  x.options.scale = std::clamp(logits / q / k, 1e-38, 2e38);
  multiply(x.v, magnitude(dice, -38, 38)), multiply(c.dout, magnitude(dice, -38, 38));
  x.what += fmt::format(" scale {}", *x.options.scale);
  if (c.wanted.dlse) multiply(c.dlse, magnitude(dice, -38, 38));
  const auto added = [&] { return decides ? magnitude(dice, -2, 3) : magnitude(dice, -38, 38); };
  for (const Tensor* each : {&x.bias, &x.distances, &x.slopes, &x.sinks})
    if (each->rank() > 0) multiply(*each, added());
  if (x.options.softcap > 0) x.options.softcap = std::clamp(x.options.softcap * added(), 1e-38, 2e38);
}

// A weight below it, the largest of its row being about 1, may be 0.
constexpr double underflow = 0x1p-110;
constexpr double fits = 1e38;  // of f32's 3.4e38: what a sum passes through may be larger than it is

// Of the smallest numbers.
double step_of(DType dtype) {
  return dtype == DType::f16 ? 0x1p-23 : 0x1p-125;
}

// What docs/numerics.md and docs/reliability.md promise of one row, by the oracle's steps.
class RowBounds {
 public:
  RowBounds(const BackwardCall& c, const OracleRow& at) : c_(c), at_(at), head_(at.head) {
    kernels::reference_row(head_, at.row, exact);
    dropout = head_.rules.dropout.p > 0 ? 1 / (1 - head_.rules.dropout.p) : 1;
    for (std::int64_t j = 0; j < head_.Tk; ++j)
      if (visible(j)) add_key(j);
    if (head_.sink) add_logit(std::abs(*head_.sink));
    for (std::int64_t d = 0; d < head_.D; ++d) {
      in_range_ &= std::abs(q(d) * head_.rules.scale) * 2 < fits;
      largest_q_ = std::max(largest_q_, std::abs(q(d)));
    }
    // What f32 and its product cannot hold: the scaled query's last step, and in the bf16 dot all below 2^-126.
    const double lost =
        static_cast<double>(head_.D) *
        (0x1p-149 * largest_k_ +
         (dtype() == DType::bf16 ? 0x1p-125 * (largest_k_ + largest_q_ + 1) : 0) * std::abs(head_.rules.scale));
    logit_error = (8 + static_cast<double>(head_.D) / 2) * 0x1p-24 * largest_logit_ + 2 * lost;
    // The cap's slope, 1 - tanh^2 of score / cap.
    const double score_error = (8 + static_cast<double>(head_.D) / 2) * 0x1p-24 * largest_score_ + 2 * lost;
    if (head_.rules.softcap > 0) slope_error = std::min(1.0, 2 * score_error / head_.rules.softcap);
    // The weights are known, or all that is known is that they are weights.
    known = logit_error < 0.1;
  }

  bool visible(std::int64_t j) const { return exact.logits[j] != -INFINITY; }
  bool sees() const { return exact.lse != -INFINITY; }
  // Of a weight, relative to it.
  double weight_error() const { return known ? 3 * logit_error + of_rounding() : 2; }

  // Of bf16's and f16's two or three roundings, and of f32's sums.
  double of_rounding() const {
    return 4 * roundoff(dtype()) + (32 + static_cast<double>(head_.Dv + head_.Tk)) * 0x1p-24;
  }

  double largest_value() const { return largest_v_ * dropout; }
  // Sums of weights times values may be 2^9 times what comes out.
  bool forward_in_range() const { return in_range_ && largest_v_ * static_cast<double>(head_.Tk) * 1024 < fits; }
  // Of out at d.
  double out_error(std::int64_t d) const {
    double sum = 0;
    for (std::int64_t j = 0; j < head_.Tk; ++j)
      if (visible(j)) sum += exact.weights[j] * std::abs(v(j, d));
    return (known ? weight_error() * sum : largest_value() * (1 + of_rounding())) + underflow * largest_value() +
           static_cast<double>(head_.Tk) * 0x1p-125;
  }

  // Before dropout.
  double probability(std::int64_t j) const { return known ? std::exp(exact.logits[j] - exact.lse - exact.lse_low) : 1; }

  double q(std::int64_t d) const { return static_cast<double>(plain_element(head_.q, at_.row, d)); }
  double k(std::int64_t j, std::int64_t d) const { return static_cast<double>(plain_element(head_.k, j, d)); }
  double v(std::int64_t j, std::int64_t d) const { return static_cast<double>(plain_element(head_.v, j, d)); }
  double dout(std::int64_t d) const { return c_.Dout.item({at_.b, at_.h, at_.i, d}); }
  DType dtype() const { return c_.x.Q.dtype(); }

  kernels::Row exact;
  double dropout = 1;  // what a weight that is kept is multiplied by
  double logit_error = 0, slope_error = 0;
  bool known = false;

 private:
  void add_logit(double size) {
    largest_logit_ = std::max(largest_logit_, size);
    in_range_ &= size * 1.5 < fits;
  }

  void add_key(std::int64_t j) {
    double size = 0;
    for (std::int64_t d = 0; d < head_.D; ++d) {
      size += std::abs(q(d) * k(j, d));
      largest_k_ = std::max(largest_k_, std::abs(k(j, d)));
    }
    in_range_ &= dtype() != DType::bf16 || size < fits;
    size *= std::abs(head_.rules.scale);
    in_range_ &= size * 1.5 < fits;
    largest_score_ = std::max(largest_score_, size);
    add_logit(size + std::abs(exact.logits[j]) + added(j));
    for (std::int64_t d = 0; d < head_.Dv; ++d) largest_v_ = std::max(largest_v_, std::abs(v(j, d)));
  }

  // Magnitudes of what is added to the score.
  double added(std::int64_t j) const {
    const auto number = [](const kernels::Matrix& m, std::int64_t row, std::int64_t column) {
      return m.data ? std::abs(static_cast<double>(plain_element(m, row, column))) : 0;
    };
    const double slope = std::abs(head_.alibi_slope) * static_cast<double>(std::abs(at_.row + head_.rules.offset - j));
    const double distance =
        head_.distance_bias.data ? number(head_.distance_bias, 0, distance_place(head_, at_.row, j)) : 0;
    return number(head_.bias, at_.row, j) + distance + slope + head_.rules.softcap;
  }

  const BackwardCall& c_;
  const OracleRow& at_;
  const kernels::Head& head_;
  double largest_logit_ = 0, largest_v_ = 0, largest_k_ = 0, largest_score_ = 0, largest_q_ = 0;
  bool in_range_ = true;
};

// Whether the row was in range, so that its gradients may be asked for.
bool check_row(const BackwardCall& c, const RowBounds& row, const OracleRow& at) {
  const AttentionResult& got = c.forward;
  const double lse = got.lse.item({at.b, at.h, at.i});
  if (!row.sees()) {
    EXPECT_EQ(lse, -INFINITY) << c.x.what;
    return true;
  }
  if (!row.forward_in_range()) return false;
  EXPECT_NEAR(lse, row.exact.lse, row.logit_error + 0x1p-23 * std::abs(row.exact.lse) + 6e-6) << c.x.what;
  const double limit = row.dtype() == DType::f16 ? 65'000 : fits;
  for (std::int64_t d = 0; d < at.head.Dv; ++d) {
    const double out = got.out.item({at.b, at.h, at.i, d}), exact = row.exact.context[d];
    if (row.largest_value() > limit) continue;
    EXPECT_NEAR(out, exact, (row.known ? 0 : std::abs(exact)) + row.out_error(d) + step_of(row.dtype()))
        << c.x.what << fmt::format(" row {} {} {} column {}, logits known to {}", at.b, at.h, at.i, d, row.logit_error);
  }
  return true;
}

// How far a gradient may be from the oracle's, and what its sums pass through, element by element.
class GradientBounds {
 public:
  explicit GradientBounds(const BackwardCall& c) : error(c), size(c), c_(c) {}

  void add(const RowBounds& row, const OracleRow& at) {
    if (!row.sees()) return;
    const double dlse = c_.wanted.dlse ? std::abs(c_.wanted.dlse->item({at.b, at.h, at.i})) : 0;
    double douts = 0, values = row.largest_value();
    for (std::int64_t d = 0; d < at.head.Dv; ++d) douts = std::max(douts, std::abs(row.dout(d)));
    // Products that are too small for f32 or the bf16 dot, and what is too small in out, from which delta is made.
    const double lost = static_cast<double>(at.head.Dv) *
                        (0x1p-125 * (values + 1) + step_of(row.dtype()) * douts + underflow * values * douts);
    double delta = dlse;
    SignedVector<double> through(at.head.Tk);
    for (std::int64_t j = 0; j < at.head.Tk; ++j) {
      if (!row.visible(j)) continue;
      for (std::int64_t d = 0; d < at.head.Dv; ++d)
        through[j] += std::abs(row.dout(d) * row.v(j, d)) * row.dropout + lost;
      in_range &= through[j] < fits;
      delta += row.probability(j) * through[j];
    }
    in_range &= delta < fits;
    for (std::int64_t j = 0; j < at.head.Tk; ++j)
      if (row.visible(j)) add_pair(row, at, j, through[j] + delta, lost);
    const double sink = row.known ? row.exact.sink_weight + underflow : 1;
    if (at.head.sink)
      put(error.sink(at.h), size.sink(at.h), sink * delta, sink * (delta * row.weight_error() + 2 * lost));
  }

  GradientSums error, size;
  bool in_range = true;

 private:
  bool has(std::size_t gradient) const { return arguments(c_)[gradient].has_value(); }

  static void put(double& error, double& size, double term, double off) { error += off, size += term; }

  void add_pair(const RowBounds& row, const OracleRow& at, std::int64_t j, double logit_size, double lost) {
    const double p = row.probability(j) + underflow;
    const double term = p * logit_size, off = term * row.weight_error() + 2 * p * lost + 0x1p-125;
    const std::int64_t kv = at.h / (c_.x.Q.size(1) / c_.x.K.size(1)), key = at.key_start + j;
    const double scale = std::abs(at.head.rules.scale);
    // Of q and k in the bf16 dot, of the scaled query elsewhere.
    const double least = row.dtype() == DType::bf16 ? 0x1p-125 * scale : 0x1p-148;
    const auto through_score = [&](double* errors, double* sizes, std::int64_t d, double factor) {
      put(errors[d], sizes[d], term * factor * std::max(scale, 1.0),
          ((off + term * row.slope_error) * factor + step_of(DType::f32)) * scale + term * least);
    };
    for (std::int64_t d = 0; d < at.head.D; ++d) {
      through_score(error.row(0, at.b, at.h, at.i), size.row(0, at.b, at.h, at.i), d, std::abs(row.k(j, d)));
      through_score(error.row(1, at.b, kv, key), size.row(1, at.b, kv, key), d, std::abs(row.q(d)));
    }
    for (std::int64_t d = 0; d < at.head.Dv; ++d) {
      const double dv = p * row.dropout * std::abs(row.dout(d));
      put(error.row(2, at.b, kv, key)[d], size.row(2, at.b, kv, key)[d], dv, dv * row.weight_error() + 0x1p-125);
    }
    if (has(3)) put(error.bias(at.b, at.h, at.i, key), size.bias(at.b, at.h, at.i, key), term, off);
    const auto distance = static_cast<double>(std::abs(at.row + at.head.rules.offset - j));
    if (has(4)) put(error.alibi_slope(at.h), size.alibi_slope(at.h), term * distance, off * distance);
    if (!has(6)) return;
    const std::int64_t place = distance_place(at.head, at.row, j);
    put(error.distance(at.h, place), size.distance(at.h, place), term, off);
  }

  const BackwardCall& c_;
};

void check_gradients(const BackwardCall& c, const GradientBounds& bounds) {
  const GradientOracle oracle(c);
  const AttentionGradients gradients = c.run();
  const auto got = listed(gradients);
  for (std::size_t n = 0; n < gradient_names.size(); ++n) {
    if (!got[n]) continue;
    const DType dtype = got[n]->dtype();
    const double limit = dtype == DType::f16 ? 65'000 : fits;
    const Tensor ours = got[n]->to(DType::f64);
    const double *exact = oracle.exact.tensors[n].data<double>(), *size = bounds.size.tensors[n].data<double>();
    for (std::int64_t i = 0; i < ours.count(); ++i) {
      if (!(size[i] < limit)) continue;
      const double off = bounds.error.tensors[n].data<double>()[i];
      EXPECT_NEAR(ours.data<double>()[i], exact[i], off + roundoff(dtype) * std::abs(exact[i]) + step_of(dtype))
          << c.x.what << " " << gradient_names[n] << " element " << i;
    }
  }
}

// Both ways are taken often enough to mean something.
struct Seen {
  int rows = 0, in_range = 0, known = 0, calls = 0;
};

void check(const BackwardCall& c, Seen& seen) {
  GradientBounds bounds(c);
  bool in_range = true;
  for_each_oracle_row(c.x, [&](const OracleRow& at) {
    const RowBounds row(c, at);
    const bool within = check_row(c, row, at);
    in_range &= within;
    ++seen.rows, seen.in_range += within, seen.known += within && row.known;
    bounds.add(row, at);
  });
  if (!in_range || !bounds.in_range) return;
  ++seen.calls;
  check_gradients(c, bounds);
}

TEST(AttentionMagnitudes, LogUniformOnesAreWithinWhatRoundingDoes) {
  Seen seen;
  const std::vector<std::uint64_t> seeds = sweep(82'500, 82'700);
  for (const std::uint64_t seed : seeds) {
    Dice dice(seed);
    const DType dtype = std::array{DType::f32, DType::bf16, DType::f16}[seed % 3];
    const unsigned wanted = random_features(dice) & ~unsigned{with_scale};
    BackwardCall c = backward_of(make_call(random_sizes(dice, 30, 80), wanted, dtype, seed), seed, dice.one_in(2));
    draw_magnitudes(c, dice);
    c.forward = c.x.run({.lse_low = true});
    c.wanted.lse_low = c.forward.lse_low;
    if (dice.one_in(3)) c.wanted.lse_low.reset();
    check(c, seen);
    if (HasFailure()) return;
  }
  EXPECT_GT(seen.in_range, seen.rows / 2);
  EXPECT_GT(seen.known, seen.rows / 4);
  EXPECT_GT(seen.calls, std::ssize(seeds) / 2);
}

}  // namespace
}  // namespace attend
