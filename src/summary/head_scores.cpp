#include "summary/head_scores.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "attend/threads.h"
#include "attention/compute.h"
#include "core/message.h"
#include "summary/head_labels.h"

namespace attend::inline v1 {

namespace {

using kernels::Probes;

// Random logits over 5 tokens reach a sink's excess of 0.5 one time in a hundred, over 20 of 0.1.
constexpr std::int64_t least_rows = HeadScores::least_rows;
constexpr double least_range = 0.1;
// A row that gives its sink more than 0.99 says little of what it does besides.
constexpr double least_kept = 0.01;
// Another thread takes 20 us to begin; the scores of a head of 100 queries take some 10.
constexpr std::int64_t heads_of_a_thread = 8;

// Of HeadSums those of one item and head, in double.
class Numbers {
 public:
  Numbers(const HeadSums& sums, std::int64_t batch, std::int64_t number)
      : of(sums), b(batch), h(number), Tq(sums.seen.size(2)), Tk(sums.received.size(2)), top(sums.top_keys.size(3)) {
    seen = wide(sums.seen), entropy = wide(sums.entropy), distance = wide(sums.distance);
    received = wide(sums.received), seen_by = wide(sums.seen_by), uniform = wide(sums.uniform);
    top_weights = wide(sums.top_weights);
    top_keys = tensors_.emplace_back(own(sums.top_keys).clone()).data<std::int64_t>();
    if (sums.has_distance) probe_weights = wide(sums.probe_weights), probe_keys = wide(sums.probe_keys);
    probe_sizes = probe_keys;
    if (sums.sink_weights) sink_weights = wide(*sums.sink_weights);
    if (sums.key_sizes) key_sizes = wide(*sums.key_sizes);
    if (key_sizes && sums.has_distance) probe_weights = wide(sums.probe_carried), probe_sizes = wide(sums.probe_sizes);
    if (sums.tokens) {
      const View ids = sums.tokens->rank() == 2 ? sums.tokens->select(0, b) : *sums.tokens;
      tokens = tensors_.emplace_back(ids.clone()).data<std::int64_t>();
    }
  }

  const HeadSums& of;
  std::int64_t b, h, Tq, Tk, top;
  double *seen, *entropy, *distance, *received, *seen_by, *uniform, *top_weights;
  // By norm, probe_weights are what is carried, and probe_sizes the sizes of the probes' keys; else these are 1.
  double *probe_weights = nullptr, *probe_keys = nullptr, *probe_sizes = nullptr;
  double *sink_weights = nullptr, *key_sizes = nullptr;
  const std::int64_t *top_keys, *tokens = nullptr;

 private:
  View own(const View& all) const { return all.select(0, b).select(0, h); }
  double* wide(const View& all) { return tensors_.emplace_back(own(all).to(DType::f64)).data<double>(); }

  std::vector<Tensor> tensors_;
};

// body(item and head, its numbers) for all of them, by several threads.
template <class Body>
void for_each_head(const HeadSums& sums, Body body) {
  const std::int64_t H = sums.seen.size(1), heads = sums.seen.size(0) * H;
  parallel_for(heads, heads_of_a_thread, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t at = begin; at < end; ++at) {
      Numbers found(sums, at / H, at % H);
      body(at, found);
    }
  });
}

struct Sink {
  std::int64_t key = -1;
  double mean = 0, uniform = 0;  // uniform: the largest mean weight that uniform attention would give a key
  double rows = 0;
};

// ---- By norm ----

// Sums over rows of weights that keys have become what is carried, of which a row has 1 in the mean, as it has of
// weights: the share of the head's own total, so that one pass is enough. Returns what makes it so.
double carry(double* sums, const double* sizes, std::int64_t keys, double rows) {
  double total = 0;
  for (std::int64_t j = 0; j < keys; ++j) {
    sums[j] = sums[j] == 0 ? 0 : sums[j] * sizes[j];
    total += sums[j];
  }
  const double scale = total > 0 ? rows / total : 0;
  for (std::int64_t j = 0; j < keys; ++j) sums[j] *= scale;
  return scale;
}

// Of the sums of all rows.
struct Shares {
  double weights = 1, sizes = 1;
};
Shares shares_of(const Numbers& found) {
  if (!found.key_sizes) return {};
  std::vector<double> received(found.received, found.received + found.Tk);
  std::vector<double> uniform(found.uniform, found.uniform + found.Tk);
  const double rows = std::accumulate(uniform.begin(), uniform.end(), 0.0);
  return {carry(received.data(), found.key_sizes, found.Tk, rows),
          carry(uniform.data(), found.key_sizes, found.Tk, rows)};
}

// A query that sees one key alone gives it all that it has, whatever the head does: it does not make a sink. Nor do the
// few queries that see a causal model's last keys, where any head that looks nearby gives them much.
Sink find_sink(Numbers& found) {
  double *received = found.received, *seen_by = found.seen_by, *uniform = found.uniform;
  for (std::int64_t i = 0; i < found.Tq; ++i) {
    const std::int64_t key = found.top_keys[i * found.top];
    if (found.seen[i] != 1 || key < 0) continue;
    received[key] -= found.top_weights[i * found.top], seen_by[key] -= 1, uniform[key] -= 1;
  }
  if (found.key_sizes) {
    const double rows = std::accumulate(uniform, uniform + found.Tk, 0.0);
    carry(received, found.key_sizes, found.Tk, rows);
    carry(uniform, found.key_sizes, found.Tk, rows);
  }
  const double most = found.Tk > 0 ? *std::max_element(seen_by, seen_by + found.Tk) : 0;
  Sink sink;
  for (std::int64_t j = 0; j < found.Tk; ++j) {
    if (seen_by[j] <= 0 || 2 * seen_by[j] < most) continue;
    sink.uniform = std::max(sink.uniform, uniform[j] / seen_by[j]);
    if (received[j] / seen_by[j] > sink.mean)
      sink.mean = received[j] / seen_by[j], sink.key = j, sink.rows = seen_by[j];
  }
  return sink;
}

// (s - u) / (m - u), from sums over the rows of which s is the mean: `rows` see a key that counts, and m is their
// share.
std::optional<double> excess_of(double weights, double uniform, double rows, double all_rows) {
  const double excess = (weights - uniform) / (rows - uniform);
  if (rows < static_cast<double>(least_rows) || !std::isfinite(excess)) return std::nullopt;
  return (rows - uniform) / all_rows < least_range ? std::nullopt : std::optional(excess);
}

// A head's probes, row by row.
class Tally {
 public:
  // keys: how many the row sees; of[kind], sizes[kind], weights[kind]: of them that kind's, their sizes and weights.
  void add(double keys, const double* of, const double* sizes, const double* weights, const Shares& shares = {}) {
    rows_ += 1;
    for (std::size_t kind = 0; kind < Probes::kinds; ++kind) {
      weights_[kind] += weights[kind] * shares.weights, uniform_[kind] += sizes[kind] * shares.sizes / keys;
      seeing_[kind] += of[kind] > 0;
    }
  }

  double rows() const { return rows_; }
  double sum(Probes::Kind kind) const { return weights_[kind]; }
  // Over the rows that see a key of that kind, and over all.
  std::optional<double> mean_of_seeing(Probes::Kind kind) const {
    return seeing_[kind] > 0 ? std::optional(weights_[kind] / seeing_[kind]) : std::nullopt;
  }
  std::optional<double> mean(Probes::Kind kind) const {
    return rows_ > 0 ? std::optional(weights_[kind] / rows_) : std::nullopt;
  }
  HeadKinds excess(bool has_tokens) const {
    HeadKinds found;
    found.self = excess(Probes::self, seeing_[Probes::self]);
    found.previous = excess(Probes::previous, seeing_[Probes::previous]);
    found.local = excess(Probes::local, rows_);
    if (has_tokens) found.duplicate = excess(Probes::duplicate, rows_);
    if (has_tokens) found.induction = excess(Probes::induction, rows_);
    return found;
  }

 private:
  std::optional<double> excess(Probes::Kind kind, double rows) const {
    return excess_of(weights_[kind], uniform_[kind], seeing_[kind], rows);
  }

  double rows_ = 0;
  double weights_[Probes::kinds] = {}, uniform_[Probes::kinds] = {}, seeing_[Probes::kinds] = {};
};

void score_probes(const Numbers& found, const Shares& shares, HeadScores& scores) {
  Tally tally;
  double distance = 0;
  for (std::int64_t i = 0; i < found.Tq; ++i) {
    if (found.seen[i] == 0) continue;
    distance += found.distance[i];
    const std::int64_t row = i * Probes::kinds;
    tally.add(1 / found.seen[i], found.probe_keys + row, found.probe_sizes + row, found.probe_weights + row, shares);
  }
  if (tally.rows() == 0) return;
  const bool has_tokens = found.of.tokens.has_value();
  scores.distance = distance / tally.rows();
  scores.self = tally.mean_of_seeing(Probes::self), scores.previous = tally.mean_of_seeing(Probes::previous);
  scores.local = (tally.sum(Probes::self) + tally.sum(Probes::previous) + tally.sum(Probes::local)) / tally.rows();
  if (has_tokens) scores.duplicate = tally.mean(Probes::duplicate), scores.induction = tally.mean(Probes::induction);
  const std::optional<double> sink = scores.excess.sink;
  scores.excess = tally.excess(has_tokens), scores.excess.sink = sink;
}

// ---- Without the sink ----

// Which of the probes count key j for a query that is level with `level`.
std::array<bool, Probes::kinds> kinds_of(std::int64_t j, std::int64_t level, const std::int64_t* tokens) {
  std::array<bool, Probes::kinds> of{};
  of[Probes::self] = j == level, of[Probes::previous] = j == level - 1;
  of[Probes::local] = std::abs(level - j) <= near_keys && j != level && j != level - 1;
  if (!tokens) return of;
  of[Probes::duplicate] = j < level && tokens[j] == tokens[level];
  of[Probes::induction] = j > 0 && j <= level && tokens[j - 1] == tokens[level];
  return of;
}

double weight_in(const Numbers& found, const PairWeight& weight, std::int64_t i, std::int64_t key) {
  const std::int64_t row = i * found.top;
  const std::int64_t *begin = found.top_keys + row, *end = begin + found.top;
  const std::int64_t* listed = std::find(begin, end, key);
  return listed != end ? found.top_weights[row + (listed - begin)] : weight(found.b, found.h, i, key);
}

// None where a row's weight of the sink is not known.
std::optional<WithoutSink> leave_out_sink(const Numbers& found, const PairWeight& weight, std::int64_t sink) {
  WithoutSink rest;
  Tally tally;
  double entropy = 0, keys_seen = 0, rows = 0;
  for (std::int64_t i = 0; i < found.Tq; ++i) {
    if (found.seen[i] == 0) continue;
    const double w = weight_in(found, weight, i, sink);
    if (std::isnan(w)) return std::nullopt;
    const bool sees = w != hidden_pair;
    const double taken = sees ? w : 0, keys = std::round(1 / found.seen[i]) - (sees ? 1 : 0), kept = 1 - taken;
    if (keys == 0) continue;
    if (kept < least_kept) {
      ++rest.rows_left_out;
      continue;
    }
    // What the option `sinks` takes is in neither: the weights that are left sum to `all`.
    const double all = kept - (found.sink_weights ? found.sink_weights[i] : 0);
    const double of_sink = taken > 0 ? taken * std::log(taken) : 0;
    entropy += (found.entropy[i] + of_sink) / kept + all / kept * std::log(kept);
    keys_seen += std::log(keys), rows += 1;
    if (!found.of.has_distance) continue;
    double of[Probes::kinds], weights[Probes::kinds];
    const auto counts = kinds_of(sink, found.of.levels[static_cast<std::size_t>(found.b)] + i, found.tokens);
    for (std::size_t kind = 0; kind < Probes::kinds; ++kind) {
      const std::size_t place = static_cast<std::size_t>(i) * Probes::kinds + kind;
      of[kind] = found.probe_keys[place] - (sees && counts[kind] ? 1 : 0);
      // Of rounded sums: what is left of nothing is nothing.
      weights[kind] = of[kind] > 0 ? (found.probe_weights[place] - (counts[kind] ? taken : 0)) / kept : 0;
    }
    tally.add(keys, of, of, weights);
  }
  if (rows == 0) return rest;
  rest.effective_keys = std::exp(entropy / rows), rest.keys_seen = std::exp(keys_seen / rows);
  if (found.of.has_distance) rest.excess = tally.excess(found.of.tokens.has_value());
  const bool known = rows >= static_cast<double>(least_rows);
  rest.labels = labels_of(rest.excess, known, rest.effective_keys, rest.keys_seen);
  return rest;
}

HeadScores score_head(Numbers& found, const PairWeight& weight) {
  HeadScores scores{.batch = found.b, .head = found.h};
  double keys_seen = 0;
  for (std::int64_t i = 0; i < found.Tq; ++i) {
    if (found.seen[i] == 0) continue;
    scores.rows += 1;
    scores.entropy += found.entropy[i], keys_seen -= std::log(found.seen[i]);
  }
  const double rows = static_cast<double>(std::max<std::int64_t>(1, scores.rows));
  scores.entropy /= rows, scores.effective_keys = std::exp(scores.entropy),
                          scores.keys_seen = std::exp(keys_seen / rows);
  const Shares shares = shares_of(found);
  const Sink sink = find_sink(found);
  scores.sink_key = sink.key;
  if (sink.key >= 0) {
    scores.sink = sink.mean;
    scores.excess.sink = excess_of(sink.mean * sink.rows, sink.uniform * sink.rows, sink.rows, sink.rows);
  }
  if (found.of.has_distance) score_probes(found, shares, scores);
  scores.labels = labels_of(scores.excess, scores.excess.sink.has_value(), scores.effective_keys, scores.keys_seen);
  if (has_label(scores.labels, "sink") && !found.key_sizes)
    scores.without_sink = leave_out_sink(found, weight, sink.key);
  return scores;
}

std::vector<HeadScores> look(SummaryProblem& x, const ProbeTensors& probes, const std::optional<View>& tokens) {
  const Problem& p = x.forward;
  const Dims rows{p.B, p.H, p.Tq}, keys{p.B, p.H, p.Tk}, one{p.B, p.H, p.Tq, 1};
  const auto zeros = [&](const Dims& shape) { return Tensor(shape, x.dtype()); };
  Tensor seen = zeros(rows), entropy = zeros(rows), distance = zeros(rows), received = zeros(keys), lift = zeros(keys);
  Tensor seen_by = zeros(keys), uniform = zeros(keys), top_keys(one, DType::i64), top_weights = zeros(one);
  std::optional<Tensor> sink_weights;
  if (!p.sinks.empty()) x.to.sink_weights = sink_weights.emplace(zeros(rows)).view();
  std::fill_n(top_keys.data<std::int64_t>(), top_keys.count(), -1);
  x.to.seen = seen.view(), x.to.entropy = entropy.view();
  if (x.has_distance) x.to.distance = distance.view();
  x.to.received = received.view(), x.to.seen_by = seen_by.view(), x.to.lift = lift.view();
  x.to.uniform = uniform.view();
  x.to.top_keys = top_keys.view(), x.to.top_weights = top_weights.view();
  run_summary(x, make_summary_schedule(x));
  HeadSums sums{seen,        entropy,        distance,    received, seen_by,        uniform, top_keys,
                top_weights, probes.weights, probes.keys, {},       x.has_distance, {},      tokens};
  if (sink_weights) sums.sink_weights = *sink_weights;
  if (x.key_sizes) sums.key_sizes = *x.key_sizes, sums.probe_carried = probes.carried, sums.probe_sizes = probes.sizes;
  for (std::int64_t b = 0; b < p.B; ++b) sums.levels.push_back(p.sequence(b).offset);
  return scores_of(sums, pair_weights(x));
}

}  // namespace

std::vector<std::int64_t> sink_keys(const HeadSums& sums) {
  std::vector<std::int64_t> keys(static_cast<std::size_t>(sums.seen.size(0) * sums.seen.size(1)));
  for_each_head(sums,
                [&](std::int64_t at, Numbers& found) { keys[static_cast<std::size_t>(at)] = find_sink(found).key; });
  return keys;
}

std::vector<HeadScores> scores_of(const HeadSums& sums, const PairWeight& weight) {
  std::vector<HeadScores> scores(static_cast<std::size_t>(sums.seen.size(0) * sums.seen.size(1)));
  for_each_head(
      sums, [&](std::int64_t at, Numbers& found) { scores[static_cast<std::size_t>(at)] = score_head(found, weight); });
  return scores;
}

std::vector<HeadScores> head_scores(const View& q, const View& k, const std::optional<View>& lse,
                                    const AttentionOptions& options, const std::optional<View>& tokens,
                                    const std::optional<View>& lse_low, const std::optional<View>& key_sizes) {
  constexpr const char* function = "head_scores";
  return with_memory(function, q, k, [&] {
    if (options.query_starts) {
      fail(ErrorCode::bad_value, function, "query_starts are given: scores are of one sequence, so slice q and k");
    }
    SummaryProblem x = SummaryProblem::check(function, q, k, lse, lse_low, options);
    x.take_key_sizes(function, key_sizes);
    x.want_top(function, 1);
    const ProbeTensors probes = want_probes(function, x, tokens);
    return look(x, probes, tokens);
  });
}

}  // namespace attend::inline v1
