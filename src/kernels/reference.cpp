#include "kernels/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/element.h"

namespace attend::inline v1::kernels {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

double element(const Matrix& matrix, std::int64_t row, std::int64_t column) {
  const std::int64_t at = row * matrix.row_stride + column * matrix.column_stride;
  return load_element(matrix.dtype, static_cast<const std::byte*>(matrix.data) + at * size_of(matrix.dtype));
}

// By how many keys j comes after the one that i is level with: at most `reach` of them are told apart on either side.
double distance_bias(const Head& head, std::int64_t i, std::int64_t j) {
  const std::int64_t distance = std::clamp(j - (i + head.rules.offset), -head.reach, head.reach);
  return element(head.distance_bias, 0, distance + head.reach);
}

// The oracle's own rule, key by key: a witness that visible_keys() can be held against.
bool visible(const Head& head, std::int64_t i, std::int64_t j) {
  const Rules& rules = head.rules;
  const std::int64_t level = i + rules.offset;
  if (j >= rules.key_length) return false;
  if (rules.window_left >= 0 && j < level - rules.window_left) return false;
  if (rules.window_right >= 0 && j > level + rules.window_right) return false;
  if (head.bias.data && element(head.bias, i, j) == -infinity) return false;
  if (head.distance_bias.data && distance_bias(head, i, j) == -infinity) return false;
  return !head.mask.data || element(head.mask, i, j) != 0;
}

// ---- Doubles, side by side ----

// The vector that every processor has. GCC 12 makes a longer one of a plain loop over keys by shuffling, at thrice the
// time.
using Pair = double __attribute__((vector_size(16)));

// Row `row` of a matrix with so many columns: where it lies, or else copied.
const double* read_row(const Matrix& matrix, std::int64_t row, std::int64_t columns, double* copy) {
  const std::byte* from = element_at(matrix.data, matrix.dtype, row * matrix.row_stride);
  const bool aligned = reinterpret_cast<std::uintptr_t>(from) % alignof(double) == 0;
  if (matrix.dtype == DType::f64 && matrix.column_stride == 1 && aligned) return reinterpret_cast<const double*>(from);
  load_elements(matrix.dtype, from, matrix.column_stride, columns, copy);
  return copy;
}

// dots[j] = sum over d of x[d] * matrix[j,d], in the order of d. `panels` are the matrix's, or null; `copies` has room
// for one.
void dot_rows(const Matrix& matrix, const double* panels, std::int64_t rows, const SignedVector<double>& x,
              SignedVector<double>& copies, SignedVector<double>& dots) {
  const std::int64_t columns = std::ssize(x);
  for (std::int64_t j = 0; j < rows; j += keys_together) {
    const std::int64_t count = std::min(keys_together, rows - j);
    const double* panel = copies.data();
    if (panels && count == keys_together) {
      panel = panels + j * columns;
    } else {
      for (std::int64_t d = 0; d < columns; ++d) {
        const std::int64_t at = j * matrix.row_stride + d * matrix.column_stride;
        load_elements(matrix.dtype, element_at(matrix.data, matrix.dtype, at), matrix.row_stride, count,
                      copies.data() + d * keys_together);
      }
    }
    Pair sums[keys_together / 2] = {};
    for (std::int64_t d = 0; d < columns; ++d) {
      for (int n = 0; n < keys_together / 2; ++n) sums[n] += x[d] * load<Pair>(panel + d * keys_together + 2 * n);
    }
    std::memcpy(dots.data() + j, sums, static_cast<std::size_t>(count) * sizeof(double));
  }
}

// sums[d] += factor * x[d].
void add_row(double* sums, double factor, const double* x, std::int64_t columns) {
  for (std::int64_t d = 0; d < columns; ++d) sums[d] += factor * x[d];
}

// The same for as many rows, in their order.
void add_rows(double* sums, const double* factors, const double* const* rows, std::int64_t columns) {
  for (std::int64_t d = 0; d < columns; ++d) {
    double sum = sums[d];
    for (int n = 0; n < keys_together; ++n) sum += factors[n] * rows[n][d];
    sums[d] = sum;
  }
}

// ---- Forward ----

// Step 1: scores[j] = sum over d of q[i,d] * k[j,d].
void score_keys(const Head& head, std::int64_t i, Row& row) {
  for (std::int64_t d = 0; d < head.D; ++d) row.query[d] = element(head.q, i, d);
  dot_rows(head.k, head.key_panels, head.Tk, row.query, row.copies, row.scores);
}

// What else may change a scaled score; -infinity for a key that the query does not see.
double logit_of(const Head& head, std::int64_t i, std::int64_t j, double logit) {
  if (head.rules.softcap > 0) logit = head.rules.softcap * std::tanh(logit / head.rules.softcap);
  if (head.bias.data) logit += element(head.bias, i, j);
  if (head.distance_bias.data) logit += distance_bias(head, i, j);
  logit -= head.alibi_slope * static_cast<double>(std::abs(i + head.rules.offset - j));
  return visible(head, i, j) ? logit : -infinity;
}

// Step 2: scale, and the rest of the way to a logit.
void make_logits(const Head& head, std::int64_t i, Row& row) {
  for (std::int64_t j = 0; j < head.Tk; ++j) {
    row.scaled_scores[j] = row.scores[j] * head.rules.scale;
    row.logits[j] = logit_of(head, i, j, row.scaled_scores[j]);
  }
}

// Step 3: weights = softmax(logits). Subtracting the largest logit keeps exp in range and cancels in the quotient.
void softmax(const Head& head, Row& row) {
  double largest = head.sink.value_or(-infinity);
  for (const double logit : row.logits) largest = std::max(largest, logit);
  double sum = row.sink_weight = head.sink ? std::exp(*head.sink - largest) : 0;
  for (std::int64_t j = 0; j < head.Tk; ++j) {
    // Not exp(-infinity): where every logit is -infinity, the difference would be NaN.
    row.weights[j] = row.logits[j] == -infinity ? 0 : std::exp(row.logits[j] - largest);
    sum += row.weights[j];
  }
  row.lse = sum == 0 ? -infinity : largest + std::log(sum);
  row.lse_low = std::isfinite(row.lse) ? (largest - row.lse) + std::log(sum) : 0;
  for (double& weight : row.weights) {
    if (weight != 0) weight /= sum;
  }
  if (row.sink_weight != 0) row.sink_weight /= sum;
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
  double factors[keys_together];
  const double* rows[keys_together];
  int waiting = 0;
  for (std::int64_t j = 0; j < head.Tk; ++j) {
    if (row.logits[j] == -infinity || (head.rules.dropout.p > 0 && row.weights[j] == 0)) continue;
    factors[waiting] = row.weights[j];
    rows[waiting] = read_row(head.v, j, head.Dv, row.copies.data() + waiting * head.Dv);
    if (++waiting < keys_together) continue;
    add_rows(row.context.data(), factors, rows, head.Dv);
    waiting = 0;
  }
  for (int n = 0; n < waiting; ++n) add_row(row.context.data(), factors[n], rows[n], head.Dv);
}

// ---- Backward ----

// Step 3 again. Without lse_low: where these keys' own sum is, as well as lse tells, the one that lse was computed
// from, their weights are exact; else lse is of more keys, as merge() gives it. A row with nothing to attend to has lse
// -infinity.
void weigh_again(const Head& head, Row& row, double lse, std::optional<double> lse_low) {
  if (!lse_low) {
    softmax(head, row);
    if (std::abs(row.lse - lse) <= 0x1p-50 * std::max(1.0, std::abs(lse))) return;
  }
  const auto weight = [=, low = lse_low.value_or(0)](double logit) {
    return logit == -infinity || lse == -infinity ? 0 : std::exp((logit - lse) - low);
  };
  for (std::int64_t j = 0; j < std::ssize(row.weights); ++j) row.weights[j] = weight(row.logits[j]);
  row.sink_weight = head.sink ? std::min(1.0, weight(*head.sink)) : 0;
}

// Steps 4 and 3: dv[j] += weights[j] dcontext; dweights[j] = dcontext . v[j]; dlogits[j] = weights[j] (dweights[j] -
// delta), for delta = sum over j of weights[j] dweights[j] = dcontext . context.
void back_through_values(const Head& head, std::int64_t i, Row& row, RowGradient& g, double* dv) {
  const double factor = 1 / (1 - head.rules.dropout.p);
  for (std::int64_t d = 0; d < head.Dv; ++d) row.context[d] = factor * g.dcontext[d];
  dot_rows(head.v, nullptr, head.Tk, row.context, row.copies, g.dlogits);  // dweights
  const auto through = [&](std::int64_t j, bool kept) {
    const double dweight = kept ? g.dlogits[j] : 0;
    const bool seen = row.logits[j] != -infinity && g.lse != -infinity;
    g.dlogits[j] = seen ? row.weights[j] * (dweight - g.delta) : 0;
    if (seen && kept) add_row(dv + j * head.Dv, row.weights[j] * factor, g.dcontext.data(), head.Dv);
  };
  if (head.rules.dropout.p > 0) return for_each_draw(head, i, through);
  for (std::int64_t j = 0; j < head.Tk; ++j) through(j, true);
}

// Steps 2 and 1: dscores[j] = dlogits[j] * scale * (1 - tanh^2 of the softcap); dquery += dscores[j] k[j]; dk[j] +=
// dscores[j] query. A key that is not attended to is skipped: 0 * NaN would be NaN.
void back_through_scores(const Head& head, Row& row, RowGradient& g, double* dk) {
  for (std::int64_t j = 0; j < head.Tk; ++j) {
    if (row.logits[j] == -infinity || g.lse == -infinity) continue;
    double dscore = g.dlogits[j] * head.rules.scale;
    if (head.rules.softcap > 0) {
      const double capped = std::tanh(row.scaled_scores[j] / head.rules.softcap);
      dscore *= 1 - capped * capped;
    }
    add_row(g.dquery.data(), dscore, read_row(head.k, j, head.D, row.copies.data()), head.D);
    add_row(dk + j * head.D, dscore, row.query.data(), head.D);
  }
}

}  // namespace

void Row::resize(std::int64_t Tk, std::int64_t D, std::int64_t Dv) {
  query.resize(D);
  for (auto* step : {&scores, &scaled_scores, &logits, &weights}) step->resize(Tk);
  context.resize(Dv);
  copies.resize(keys_together * std::max(D, Dv));
}

double reference_logit(const Head& head, std::int64_t i, std::int64_t j) {
  double score = 0;
  for (std::int64_t d = 0; d < head.D; ++d) score += element(head.q, i, d) * element(head.k, j, d);
  return logit_of(head, i, j, score * head.rules.scale);
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
  weigh_again(head, row, gradient.lse, gradient.lse_low);
  gradient.dsink = head.sink ? -row.sink_weight * gradient.delta : 0;
  back_through_values(head, i, row, gradient, dv);
  back_through_scores(head, row, gradient, dk);
}

}  // namespace attend::inline v1::kernels
