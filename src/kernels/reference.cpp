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

bool visible(const Head& head, std::int64_t i, std::int64_t j) {
  const std::int64_t level = i + head.offset;
  if (j >= head.key_length) return false;
  if (head.causal && j > level) return false;
  if (head.window_left >= 0 && j < level - head.window_left) return false;
  if (head.window_right >= 0 && j > level + head.window_right) return false;
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
    double logit = row.scaled_scores[j] = row.scores[j] * head.scale;
    if (head.softcap > 0) logit = head.softcap * std::tanh(logit / head.softcap);
    if (head.bias.data) logit += element(head.bias, i, j);
    logit -= head.alibi_slope * static_cast<double>(std::abs(i + head.offset - j));
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

// Step 4: context = sum over j of weights[j] * v[j]. A key that is not attended to is skipped rather than multiplied by
// 0: 0 * NaN would be NaN.
void mix_values(const Head& head, Row& row) {
  std::fill(row.context.begin(), row.context.end(), 0);
  for (std::int64_t j = 0; j < head.Tk; ++j) {
    if (row.logits[j] == -infinity) continue;
    for (std::int64_t d = 0; d < head.Dv; ++d) row.context[d] += row.weights[j] * element(head.v, j, d);
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
  mix_values(head, row);
}

}  // namespace attend::kernels
