// A call of attention_backward(), and its gradients by the oracle and by plain loops in the dtype, put together from
// the header's words alone.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "tests/attention/call.h"

namespace attend::test {

struct BackwardCall {
  Call x;
  AttentionResult forward;
  Tensor dout, dlse;  // in memory
  View Dout;          // as it is passed
  BackwardOptions wanted;

  AttentionGradients run() const {
    return attention_backward(Dout, x.Q, x.K, x.V, forward.out, forward.lse, x.options, wanted);
  }
};

// Every gradient that the options of x have is wanted.
inline BackwardCall backward_of(Call x, std::uint64_t seed, bool with_dlse) {
  Generator generator(seed + (std::uint64_t{1} << 41));
  BackwardCall c{std::move(x), {}, {}, {}, {}, {}};
  c.forward = c.x.run({.lse_low = true});
  c.wanted.lse_low = c.forward.lse_low;
  const View& out = c.forward.out;
  const bool permuted = !c.x.Q.is_contiguous();
  c.dout = draw(generator, out.size(0), out.size(1), out.size(2), out.size(3), out.dtype(), permuted);
  c.Dout = permuted ? c.dout.view().transpose(1, 2) : c.dout.view();
  if (with_dlse) {
    c.dlse = generator.normal(c.forward.lse.shape(), 0, 1).view().to(c.forward.lse.dtype());
    c.wanted.dlse = c.dlse.view();
    c.x.what += " dlse";
  }
  for (const TensorOption& option : tensor_options()) {
    if (option.wanted) c.wanted.*option.wanted = (c.x.options.*option.value).has_value();
  }
  return c;
}

// The gradients in the order of their names, whichever are there.
constexpr std::array gradient_names{"dq", "dk", "dv", "dbias", "dalibi_slopes", "dsinks", "ddistance_bias"};
inline std::array<std::optional<View>, gradient_names.size()> listed(const AttentionGradients& g) {
  const auto view = [](const std::optional<Tensor>& x) { return x ? std::optional(x->view()) : std::nullopt; };
  return {g.dq, g.dk, g.dv, view(g.dbias), view(g.dalibi_slopes), view(g.dsinks), view(g.ddistance_bias)};
}

// What they are gradients of.
inline std::array<std::optional<View>, gradient_names.size()> arguments(const BackwardCall& c) {
  const AttentionOptions& o = c.x.options;
  return {c.x.Q, c.x.K, c.x.V, o.bias, o.alibi_slopes, o.sinks, o.distance_bias};
}

// One number for each element of each gradient, row-major in its argument's shape; the bias also as pairs.
class GradientSums {
 public:
  explicit GradientSums(const BackwardCall& c) {
    const auto of = arguments(c);
    for (std::size_t n = 0; n < gradient_names.size(); ++n)
      tensors[n] = of[n] ? Tensor(of[n]->shape(), DType::f64) : Tensor();
    if (!of[3]) return;
    const Dims pairs{c.x.Q.size(0), c.x.Q.size(1), c.x.Q.size(2), c.x.K.size(2)};
    pair_strides_ = tensors[3].view().broadcast_to(pairs).strides();
  }

  double* row(std::size_t gradient, std::int64_t b, std::int64_t h, std::int64_t t) {
    Tensor& x = tensors[gradient];
    return x.data<double>() + ((b * x.size(1) + h) * x.size(2) + t) * x.size(3);
  }
  double& bias(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
    const Dims& s = pair_strides_;
    return tensors[3].data<double>()[b * s[0] + h * s[1] + i * s[2] + j * s[3]];
  }
  double& alibi_slope(std::int64_t h) { return tensors[4].data<double>()[h]; }
  double& sink(std::int64_t h) { return tensors[5].data<double>()[h]; }

  double& distance(std::int64_t h, std::int64_t place) {
    return tensors[6].data<double>()[h * tensors[6].size(1) + place];
  }

  std::array<Tensor, gradient_names.size()> tensors;

 private:
  Dims pair_strides_;
};

// Adds up gradients row by row: the exact ones, the plain ones, and the squares of the magnitudes of all that is
// added, from which docs/numerics.md derives what rounding may do.
class GradientOracle {
 public:
  explicit GradientOracle(const BackwardCall& c) : exact(c), plain(c), squares(c), c_(c) {
    kv_group_ = c.x.Q.size(1) / std::max<std::int64_t>(1, c.x.K.size(1));
    for_each_oracle_row(c.x, [&](const OracleRow& at) { add(at); });
  }

  GradientSums exact, plain, squares;
  double largest_logit = 0;

 private:
  bool has(std::size_t gradient) const { return arguments(c_)[gradient].has_value(); }

  void add(const OracleRow& at) {
    kernels::reference_row(at.head, at.row, forward_);
    if (forward_.lse == -INFINITY) return;
    for (const double logit : forward_.logits)
      if (std::isfinite(logit)) largest_logit = std::max(largest_logit, std::abs(logit));
    gradient_.dcontext.resize(at.head.Dv);
    gradient_.lse = forward_.lse;
    const double dlse = c_.wanted.dlse ? c_.wanted.dlse->item({at.b, at.h, at.i}) : 0;
    gradient_.delta = -dlse, delta_size_ = std::abs(dlse);
    for (std::int64_t d = 0; d < at.head.Dv; ++d) {
      const double dout = gradient_.dcontext[d] = c_.Dout.item({at.b, at.h, at.i, d});
      gradient_.delta += dout * forward_.context[d], delta_size_ += std::abs(dout * forward_.context[d]);
    }
    add_exact(at);
    add_plain(at, static_cast<float>(dlse));
    add_squares(at);
  }

  void add_exact(const OracleRow& at) {
    const std::int64_t kv = at.h / kv_group_;
    kernels::reference_row_backward(at.head, at.row, steps_, gradient_, exact.row(1, at.b, kv, at.key_start),
                                    exact.row(2, at.b, kv, at.key_start));
    std::copy(gradient_.dquery.begin(), gradient_.dquery.end(), exact.row(0, at.b, at.h, at.i));
    if (has(5)) exact.sink(at.h) += gradient_.dsink;
    for (std::int64_t j = 0; j < at.head.Tk; ++j) {
      if (has(3)) exact.bias(at.b, at.h, at.i, at.key_start + j) += gradient_.dlogits[j];
      if (has(6)) exact.distance(at.h, distance_place(at.head, at.row, j)) += gradient_.dlogits[j];
      if (has(4)) exact.alibi_slope(at.h) -= gradient_.dlogits[j] * distance(at, j);
    }
  }

  static double distance(const OracleRow& at, std::int64_t j) {
    return static_cast<double>(std::abs(at.row + at.head.rules.offset - j));
  }

  // to + term in f32.
  static void add_f32(double& to, float term) { to = static_cast<double>(static_cast<float>(to) + term); }

  // As PyTorch differentiates the textbook's formula: sums in f32; weights, their gradients and those of the logits
  // rounded to the dtype.
  void add_plain(const OracleRow& at, float dlse) {
    const kernels::Head& head = at.head;
    const DType dtype = c_.x.Q.dtype();
    const SignedVector<float> logits = plain_logits(head, at.row, forward_);
    const float largest = plain_largest(head, logits);
    float sum = head.sink ? std::exp(static_cast<float>(*head.sink) - largest) : 0;
    for (const float logit : logits) sum += logit == -INFINITY ? 0 : std::exp(logit - largest);
    SignedVector<float> weights(head.Tk), dweights(head.Tk);
    float delta = -dlse;
    for (std::int64_t j = 0; j < head.Tk; ++j) {
      if (logits[j] == -INFINITY) continue;
      weights[j] = rounded(dtype, std::exp(logits[j] - largest) / sum);
      dweights[j] = plain_through_value(at, j, weights[j]);
      delta += weights[j] * dweights[j];
    }
    for (std::int64_t j = 0; j < head.Tk; ++j) {
      if (logits[j] == -INFINITY) continue;
      plain_through_score(at, j, rounded(dtype, weights[j] * (dweights[j] - delta)));
    }
    if (has(5))
      add_f32(plain.sink(at.h), -rounded(dtype, std::exp(static_cast<float>(*head.sink) - largest) / sum * delta));
  }

  // The share of a weight in dv; its gradient.
  float plain_through_value(const OracleRow& at, std::int64_t j, float weight) {
    const float factor = plain_dropout(at.head, at.row, j);
    if (factor == 0) return 0;
    const DType dtype = c_.x.Q.dtype();
    double* dv = plain.row(2, at.b, at.h / kv_group_, at.key_start + j);
    float dweight = 0;
    for (std::int64_t d = 0; d < at.head.Dv; ++d) {
      const auto dout = static_cast<float>(gradient_.dcontext[d]);
      add_f32(dv[d], rounded(dtype, weight * factor) * dout);
      dweight += dout * plain_element(at.head.v, j, d);
    }
    return rounded(dtype, rounded(dtype, dweight) * factor);
  }

  void plain_through_score(const OracleRow& at, std::int64_t j, float dlogit) {
    if (has(3)) add_f32(plain.bias(at.b, at.h, at.i, at.key_start + j), dlogit);
    if (has(6)) add_f32(plain.distance(at.h, distance_place(at.head, at.row, j)), dlogit);
    if (has(4)) add_f32(plain.alibi_slope(at.h), -dlogit * static_cast<float>(distance(at, j)));
    double *dq = plain.row(0, at.b, at.h, at.i), *dk = plain.row(1, at.b, at.h / kv_group_, at.key_start + j);
    const auto cap = static_cast<float>(at.head.rules.softcap);
    if (cap > 0) {
      const float capped = std::tanh(static_cast<float>(forward_.scaled_scores[j]) / cap);
      dlogit *= 1 - capped * capped;
    }
    const float dscore = dlogit * static_cast<float>(at.head.rules.scale);
    for (std::int64_t d = 0; d < at.head.D; ++d) {
      add_f32(dq[d], dscore * plain_element(at.head.k, j, d));
      add_f32(dk[d], dscore * plain_element(at.head.q, at.row, d));
    }
  }

  static void add_square(double& to, double term) { to += term * term; }

  void add_squares(const OracleRow& at) {
    const kernels::Head& head = at.head;
    if (has(5)) add_square(squares.sink(at.h), std::exp(*head.sink - forward_.lse) * delta_size_);
    for (std::int64_t j = 0; j < head.Tk; ++j) {
      if (forward_.logits[j] == -INFINITY) continue;
      const double weight = std::exp(forward_.logits[j] - forward_.lse);
      const auto factor = static_cast<double>(plain_dropout(head, at.row, j));
      double* dv = squares.row(2, at.b, at.h / kv_group_, at.key_start + j);
      double dweight = 0;
      for (std::int64_t d = 0; d < head.Dv; ++d) {
        add_square(dv[d], weight * factor * gradient_.dcontext[d]);
        dweight += factor * std::abs(gradient_.dcontext[d] * static_cast<double>(plain_element(head.v, j, d)));
      }
      squares_of_score(at, j, weight * (dweight + delta_size_));
    }
  }

  void squares_of_score(const OracleRow& at, std::int64_t j, double dlogit) {
    if (has(3)) add_square(squares.bias(at.b, at.h, at.i, at.key_start + j), dlogit);
    if (has(6)) add_square(squares.distance(at.h, distance_place(at.head, at.row, j)), dlogit);
    if (has(4)) add_square(squares.alibi_slope(at.h), dlogit * distance(at, j));
    double dscore = dlogit * at.head.rules.scale;
    if (at.head.rules.softcap > 0) {
      const double capped = std::tanh(forward_.scaled_scores[j] / at.head.rules.softcap);
      // The slope 1 - tanh^2 is known to some 2^-24, however small it is: in f32, as if it were 1.
      const double least = c_.x.Q.dtype() == DType::f32 ? 1 : c_.x.Q.dtype() == DType::f16 ? 0x1p-13 : 0x1p-16;
      dscore *= std::max(1 - capped * capped, least);
    }
    double *dq = squares.row(0, at.b, at.h, at.i), *dk = squares.row(1, at.b, at.h / kv_group_, at.key_start + j);
    for (std::int64_t d = 0; d < at.head.D; ++d) {
      add_square(dq[d], dscore * static_cast<double>(plain_element(at.head.k, j, d)));
      add_square(dk[d], dscore * static_cast<double>(plain_element(at.head.q, at.row, d)));
    }
  }

  const BackwardCall& c_;
  std::int64_t kv_group_;
  double delta_size_ = 0;  // what delta is a sum of, in magnitude
  kernels::Row forward_, steps_;
  kernels::RowGradient gradient_;
};

inline double roundoff(DType dtype) {
  return dtype == DType::f64 ? 0x1p-53 : dtype == DType::f32 ? 0x1p-24 : dtype == DType::f16 ? 0x1p-11 : 0x1p-8;
}

// Each gradient as a whole: at most three times the error of the plain one, and a floor for the cases in which that
// happens to be exact. docs/numerics.md, "How attention is tested", derives the floor.
inline void expect_as_exact(const BackwardCall& c, const AttentionGradients& gradients) {
  const GradientOracle oracle(c);
  const DType dtype = c.x.Q.dtype();
  const double of_terms = (8 + 2 * oracle.largest_logit) * 0x1p-24 + (dtype == DType::f32 ? 0 : 2 * roundoff(dtype));
  const auto ours = listed(gradients), of = arguments(c);
  for (std::size_t n = 0; n < gradient_names.size(); ++n) {
    ASSERT_EQ(ours[n].has_value(), of[n].has_value()) << c.x.what << " " << gradient_names[n];
    if (!of[n]) continue;
    ASSERT_EQ(ours[n]->shape().str(), of[n]->shape().str()) << c.x.what << " " << gradient_names[n];
    ASSERT_EQ(name_of(ours[n]->dtype()), name_of(of[n]->dtype())) << c.x.what << " " << gradient_names[n];
    const Tensor actual = ours[n]->to(DType::f64), plain = oracle.plain.tensors[n].view().to(of[n]->dtype());
    const Tensor plainly = plain.view().to(DType::f64);
    double error = 0, plain_error = 0, largest = 0, terms = 0;
    for (std::int64_t i = 0; i < actual.count(); ++i) {
      const double exact = oracle.exact.tensors[n].data<double>()[i], e = std::abs(actual.data<double>()[i] - exact);
      error = std::isnan(e) ? INFINITY : std::max(error, e);
      plain_error = std::max(plain_error, std::abs(plainly.data<double>()[i] - exact));
      largest = std::max(largest, std::abs(exact));
      terms = std::max(terms, std::sqrt(oracle.squares.tensors[n].data<double>()[i]));
    }
    const double floor = of_terms * (terms + largest) + roundoff(of[n]->dtype()) * largest;
    EXPECT_LE(error, 3 * plain_error + floor) << c.x.what << " " << gradient_names[n] << " (plain " << plain_error
                                              << ", floor " << floor << ", largest " << largest << ")";
  }
}

}  // namespace attend::test
