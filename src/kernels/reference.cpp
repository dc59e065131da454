#include "kernels/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/element.h"

namespace attend::kernels {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

double element(const Matrix& matrix, std::int64_t row, std::int64_t column) {
  const std::int64_t at = row * matrix.row_stride + column * matrix.column_stride;
  return load_element(matrix.dtype, static_cast<const std::byte*>(matrix.data) + at * size_of(matrix.dtype));
}

// The oracle's own rule, key by key: a witness that visible_keys() can be held against.
bool visible(const Head& head, std::int64_t i, std::int64_t j) {
  const Rules& rules = head.rules;
  const std::int64_t level = i + rules.offset;
  if (j >= rules.key_length) return false;
  if (rules.causal && j > level) return false;
  if (rules.window_left >= 0 && j < level - rules.window_left) return false;
  if (rules.window_right >= 0 && j > level + rules.window_right) return false;
  if (head.bias.data && element(head.bias, i, j) == -infinity) return false;
  return !head.mask.data || element(head.mask, i, j) != 0;
}

// Step 1: scores[j] = sum over d of q[i,d] * k[j,d].
void score_keys(const Head& head, std::int64_t i, Row& row) {
  for (std::int64_t d = 0; d < head.D; ++d) row.query[d] = element(head.q, i, d);
  for (std::int64_t j = 0; j < head.Tk; ++j) {
    double sum = 0;
    for (std::int64_t d = 0; d < head.D; ++d) sum += row.query[d] * element(head.k, j, d);
    row.scores[j] = sum;
  }
}

// Step 2: scale; then what else may change a score, and -infinity for every key that the query does not see.
void make_logits(const Head& head, std::int64_t i, Row& row) {
  for (std::int64_t j = 0; j < head.Tk; ++j) {
    double logit = row.scaled_scores[j] = row.scores[j] * head.rules.scale;
    if (head.rules.softcap > 0) logit = head.rules.softcap * std::tanh(logit / head.rules.softcap);
    if (head.bias.data) logit += element(head.bias, i, j);
    logit -= head.alibi_slope * static_cast<double>(std::abs(i + head.rules.offset - j));
    row.logits[j] = visible(head, i, j) ? logit : -infinity;
  }
}

// Step 3: weights = softmax(logits). Subtracting the largest logit keeps exp in range and cancels in the quotient.
void softmax(const Head& head, Row& row) {
  double largest = head.sink.value_or(-infinity);
  for (const double logit : row.logits) largest = std::max(largest, logit);
  double sum = head.sink ? std::exp(*head.sink - largest) : 0;
  for (std::int64_t j = 0; j < head.Tk; ++j) {
    // Not exp(-infinity): where every logit is -infinity, the difference would be NaN.
    row.weights[j] = row.logits[j] == -infinity ? 0 : std::exp(row.logits[j] - largest);
    sum += row.weights[j];
  }
  row.lse = sum == 0 ? -infinity : largest + std::log(sum);
  for (double& weight : row.weights) {
    if (weight != 0) weight /= sum;
  }
}

// Whether dropout keeps the weight of each key; body(j, kept) for all of them.
template <class Body>
void for_each_draw(const Head& head, std::int64_t i, Body body) {
  const std::uint64_t draws = dropout_row(head.rules.dropout, 0, i);
  const std::uint32_t threshold = dropout_threshold(head.rules.dropout.p);
  for (std::int64_t j = 0; j < head.Tk; ++j) body(j, dropout_keeps(draws, threshold, head.rules.dropout.key + j));
}

void drop_weights(const Head& head, std::int64_t i, Row& row) {
  if (head.rules.dropout.p == 0) return;
  for_each_draw(head, i, [&](std::int64_t j, bool kept) {
    row.weights[j] = kept ? row.weights[j] / (1 - head.rules.dropout.p) : 0;
  });
}

// Step 4: context = sum over j of weights[j] * v[j]. A key that is not attended to is skipped rather than multiplied by
// 0: 0 * NaN would be NaN.
void mix_values(const Head& head, Row& row) {
  std::fill(row.context.begin(), row.context.end(), 0);
  for (std::int64_t j = 0; j < head.Tk; ++j) {
    if (row.logits[j] == -infinity || (head.rules.dropout.p > 0 && row.weights[j] == 0)) continue;
    for (std::int64_t d = 0; d < head.Dv; ++d) row.context[d] += row.weights[j] * element(head.v, j, d);
  }
}

// ---- Backward ----

// Step 3 again: with lse known there is nothing to sum. A row with nothing to attend to has lse -infinity.
void weigh_again(Row& row, double lse) {
  for (std::size_t j = 0; j < row.weights.size(); ++j) {
    row.weights[j] = row.logits[j] == -infinity || lse == -infinity ? 0 : std::exp(row.logits[j] - lse);
  }
}

// Steps 4 and 3: dv[j] += weights[j] dcontext; dweights[j] = dcontext . v[j]; dlogits[j] = weights[j] (dweights[j] -
// delta), for delta = sum over j of weights[j] dweights[j] = dcontext . context.
void back_through_values(const Head& head, std::int64_t i, Row& row, RowGradient& g, double* dv) {
  const auto through = [&](std::int64_t j, bool kept) {
    g.dlogits[j] = 0;
    if (row.logits[j] == -infinity || g.lse == -infinity) return;
    const double factor = kept ? 1 / (1 - head.rules.dropout.p) : 0;
    double dweight = 0;
    for (std::int64_t d = 0; kept && d < head.Dv; ++d) {
      dv[j * head.Dv + d] += row.weights[j] * factor * g.dcontext[d];
      dweight += factor * g.dcontext[d] * element(head.v, j, d);
    }
    g.dlogits[j] = row.weights[j] * (dweight - g.delta);
  };
  if (head.rules.dropout.p > 0) return for_each_draw(head, i, through);
  for (std::int64_t j = 0; j < head.Tk; ++j) through(j, true);
}

// Steps 2 and 1: dscores[j] = dlogits[j] * scale * (1 - tanh^2 of the softcap); dquery += dscores[j] k[j]; dk[j] +=
// dscores[j] query. A key that is not attended to is skipped: 0 * NaN would be NaN.
void back_through_scores(const Head& head, const Row& row, RowGradient& g, double* dk) {
  for (std::int64_t j = 0; j < head.Tk; ++j) {
    if (row.logits[j] == -infinity || g.lse == -infinity) continue;
    double dscore = g.dlogits[j] * head.rules.scale;
    if (head.rules.softcap > 0) {
      const double capped = std::tanh(row.scaled_scores[j] / head.rules.softcap);
      dscore *= 1 - capped * capped;
    }
    for (std::int64_t d = 0; d < head.D; ++d) {
      g.dquery[d] += dscore * element(head.k, j, d);
      dk[j * head.D + d] += dscore * row.query[d];
    }
  }
}

}  // namespace

void Row::resize(std::int64_t Tk, std::int64_t D, std::int64_t Dv) {
  query.resize(D);
  for (auto* step : {&scores, &scaled_scores, &logits, &weights}) step->resize(Tk);
  context.resize(Dv);
}

void reference_row(const Head& head, std::int64_t i, Row& row) {
  row.resize(head.Tk, head.D, head.Dv);
  score_keys(head, i, row);
  make_logits(head, i, row);
  softmax(head, row);
  drop_weights(head, i, row);
  mix_values(head, row);
}

void reference_row_backward(const Head& head, std::int64_t i, Row& row, RowGradient& gradient, double* dk, double* dv) {
  row.resize(head.Tk, head.D, head.Dv);
  gradient.dlogits.resize(head.Tk);
  gradient.dquery.assign(head.D, 0);
  score_keys(head, i, row);
  make_logits(head, i, row);
  weigh_again(row, gradient.lse);
  gradient.dsink = head.sink ? -std::exp(*head.sink - gradient.lse) * gradient.delta : 0;
  back_through_values(head, i, row, gradient, dv);
  back_through_scores(head, row, gradient, dk);
}

}  // namespace attend::kernels
