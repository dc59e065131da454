// Attention as anyone would write it in f32: what the fused kernels' error is held against.
//
// For bf16 and f16 it rounds where PyTorch's CPU kernel rounds: products and softmax in f32, the weights rounded to the
// dtype before they meet the values (their sum is taken before), the result rounded once.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/element.h"
#include "core/signed_vector.h"
#include "kernels/reference.h"
#include "tests/expect.h"

namespace attend::test {

inline float rounded(DType dtype, float x) {
  if (dtype == DType::bf16) return static_cast<float>(BF16(x));
  return dtype == DType::f16 ? static_cast<float>(F16(x)) : x;
}

// Draws for a test's random cases: a fixed seed gives the same cases everywhere.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : generator_(seed) {}
  // 0 to n - 1.
  std::int64_t below(std::int64_t n) {
    return std::min(n - 1, static_cast<std::int64_t>(generator_.rand({1}).item({0}) * static_cast<double>(n)));
  }
  bool one_in(std::int64_t n) { return below(n) == 0; }

 private:
  Generator generator_;
};

struct PlainRow {
  SignedVector<float> context;
  float lse = 0;
};

inline float plain_element(const kernels::Matrix& m, std::int64_t row, std::int64_t column) {
  const std::int64_t at = row * m.row_stride + column * m.column_stride;
  return static_cast<float>(load_element(m.dtype, element_at(m.data, m.dtype, at)));
}

// Where the head's distance_bias has the number of a query and a key.
inline std::int64_t distance_place(const kernels::Head& head, std::int64_t i, std::int64_t j) {
  return std::clamp(j - (i + head.rules.offset), -head.reach, head.reach) + head.reach;
}

// What the softmax sees. `exact` holds the oracle's logits of the same row: they say which keys are visible.
inline SignedVector<float> plain_logits(const kernels::Head& head, std::int64_t i, const kernels::Row& exact) {
  SignedVector<float> logits(head.Tk, -INFINITY);
  for (std::int64_t j = 0; j < head.Tk; ++j) {
    if (exact.logits[j] == -INFINITY) continue;
    float score = 0;
    for (std::int64_t d = 0; d < head.D; ++d) score += plain_element(head.q, i, d) * plain_element(head.k, j, d);
    score *= static_cast<float>(head.rules.scale);
    const auto cap = static_cast<float>(head.rules.softcap);
    if (cap > 0) score = cap * std::tanh(score / cap);
    if (head.bias.data) score += plain_element(head.bias, i, j);
    if (head.distance_bias.data) score += plain_element(head.distance_bias, 0, distance_place(head, i, j));
    logits[j] = score - static_cast<float>(head.alibi_slope) * static_cast<float>(std::abs(i + head.rules.offset - j));
  }
  return logits;
}

// What dropout multiplies the weight of key j with: 0, or 1 / (1 - p).
inline float plain_dropout(const kernels::Head& head, std::int64_t i, std::int64_t j) {
  const kernels::Dropout& dropout = head.rules.dropout;
  if (dropout.p == 0) return 1;
  const bool kept = kernels::dropout_keeps(kernels::dropout_row(dropout, 0, i), kernels::dropout_threshold(dropout.p),
                                           dropout.key + j);
  return kept ? static_cast<float>(1 / (1 - dropout.p)) : 0;
}

inline float plain_largest(const kernels::Head& head, const std::vector<float>& logits) {
  const float sink = head.sink ? static_cast<float>(*head.sink) : -INFINITY;
  return std::max(sink, logits.empty() ? sink : *std::max_element(logits.begin(), logits.end()));
}

// Query row i.
inline PlainRow plain_row(const kernels::Head& head, std::int64_t i, const kernels::Row& exact, DType dtype) {
  const SignedVector<float> logits = plain_logits(head, i, exact);
  const float largest = plain_largest(head, logits);
  PlainRow row{SignedVector<float>(head.Dv), -INFINITY};
  float sum = head.sink ? std::exp(static_cast<float>(*head.sink) - largest) : 0;
  for (std::int64_t j = 0; j < head.Tk; ++j) {
    if (logits[j] == -INFINITY) continue;
    const float weight = std::exp(logits[j] - largest), factor = plain_dropout(head, i, j);
    sum += weight;
    if (factor == 0) continue;
    for (std::int64_t d = 0; d < head.Dv; ++d) {
      row.context[d] += rounded(dtype, weight * factor) * plain_element(head.v, j, d);
    }
  }
  if (sum == 0) return row;
  for (float& x : row.context) x = rounded(dtype, x / sum);
  row.lse = largest + std::log(sum);
  return row;
}

// The largest errors of a result and of the plain computation, over the rows that were added.
class Errors {
 public:
  explicit Errors(DType dtype) : dtype_(dtype) {}

  // Ours multiplies keys and values of 8 bits by queries and weights that were rounded to 16: an element of the query
  // to 2^-16 of the largest one.
  void rounds_to_16_bits(const kernels::Head& head, std::int64_t i) {
    double query = 0;
    for (std::int64_t d = 0; d < head.D; ++d) {
      query = std::max(query, std::abs(static_cast<double>(plain_element(head.q, i, d))));
    }
    for (std::int64_t j = 0; j < head.rules.key_length; ++j) {
      double key = 0;
      for (std::int64_t d = 0; d < head.D; ++d) key += std::abs(static_cast<double>(plain_element(head.k, j, d)));
      rounded_scores_ = std::max(rounded_scores_, 0x1p-16 * std::abs(head.rules.scale) * query * key);
    }
    rounded_weights_ = 0x1p-13;  // 64 of them, each to 2^-16 of the largest: 2^-10 at worst
  }

  // One row: the oracle's, the plain one, and ours: ours(d) and lse.
  template <class Ours>
  void add(const kernels::Row& exact, const PlainRow& plain, Ours ours, float lse) {
    for (const double logit : exact.logits)
      if (std::isfinite(logit)) largest_logit_ = std::max(largest_logit_, std::abs(logit));
    for (std::int64_t d = 0; d < std::ssize(exact.context); ++d) {
      add(out_, exact.context[d], static_cast<double>(plain.context[d]), ours(d));
    }
    add(lse_, exact.lse, static_cast<double>(plain.lse), static_cast<double>(lse));
  }

  // Twice the plain error and a floor, for the cases in which the plain computation happens to be exact.
  // docs/numerics.md, "How attention is tested", derives the floor.
  void check(const std::string& what) const {
    const double u = dtype_ == DType::f32 ? 0x1p-24 : dtype_ == DType::f16 ? 0x1p-11 : 0x1p-8;
    const double of_scores = (8 + 2 * largest_logit_) * 0x1p-24 + rounded_scores_;
    const double out_floor = (rounded_weights_ + (dtype_ == DType::f32 ? 0 : 2 * u) + of_scores) * out_.largest;
    const double lse_floor = (dtype_ == DType::bf16 ? 3e-6 : 0) + of_scores;
    EXPECT_LE(out_.ours, 2 * out_.plain + out_floor)
        << what << " (plain " << out_.plain << ", floor " << out_floor << ")";
    EXPECT_LE(lse_.ours, 2 * lse_.plain + lse_floor) << what << " lse (plain " << lse_.plain << ")";
  }

 private:
  struct Of {
    double ours = 0, plain = 0, largest = 0;
  };
  static double distance(double a, double b) {
    if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
    return std::isfinite(a) && std::isfinite(b) ? std::abs(a - b) : INFINITY;
  }
  static void add(Of& of, double exact, double plain, double ours) {
    of.ours = std::max(of.ours, distance(ours, exact));
    of.plain = std::max(of.plain, distance(plain, exact));
    if (std::isfinite(exact)) of.largest = std::max(of.largest, std::abs(exact));
  }
  DType dtype_;
  double rounded_scores_ = 0, rounded_weights_ = 0;
  Of out_, lse_;
  double largest_logit_ = 0;
};

}  // namespace attend::test
