#include "attention/head_scores.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "attention/compute.h"
#include "core/message.h"

namespace attend {

namespace {

constexpr std::int64_t near_keys = 8;

// Equal numbers for equal tokens, counted in the order in which they come: f32 holds 2^24 of them. One number before
// them, and a vector's after, that equal none.
std::vector<float> number_tokens(const char* function, const View& tokens) {
  constexpr std::size_t padding = 16, most = std::size_t{1} << 24;
  std::vector<float> numbers{-1};
  std::map<std::int64_t, float> known;
  const Tensor list = tokens.clone();
  for (std::int64_t j = 0; j < list.count(); ++j) {
    const auto [at, is_new] = known.try_emplace(list.data<std::int64_t>()[j], static_cast<float>(known.size()));
    if (is_new && known.size() > most) fail(ErrorCode::bad_value, function, "tokens: more than {} kinds", most);
    numbers.push_back(at->second);
  }
  numbers.insert(numbers.end(), padding, -1.0f);
  return numbers;
}

void take_tokens(const char* function, SummaryProblem& x, const View& tokens) {
  const Problem& p = x.forward;
  if (tokens.dtype() != DType::i64) fail(ErrorCode::bad_dtype, function, "tokens are {}, expected i64", tokens.dtype());
  const bool shared = tokens.shape() == Dims{p.Tk};
  if (!shared && tokens.shape() != Dims{p.B, p.Tk}) {
    fail(ErrorCode::bad_shape, function, "tokens have shape {}, expected [Tk] = {} or [B,Tk] = {}", tokens.shape(),
         Dims{p.Tk}, Dims{p.B, p.Tk});
  }
  if (!x.has_distance) {
    fail(ErrorCode::bad_value, function, "tokens are given for {} queries and {} keys without an offset", p.Tq, p.Tk);
  }
  for (std::int64_t b = 0; b < p.B; ++b) {
    const Sequence s = p.sequence(b);
    if (s.Tq > 0 && (s.offset < 0 || s.offset + s.Tq > p.Tk)) {
      fail(ErrorCode::bad_value, function, "tokens are given, but query {} is level with key {} of {}",
           s.offset < 0 ? 0 : s.Tq - 1, s.offset < 0 ? s.offset : s.offset + s.Tq - 1, p.Tk);
    }
    x.tokens.push_back(number_tokens(function, shared ? tokens : tokens.select(0, b)));
  }
}

// HeadSums in double: of the top keys, the first ones.
struct Numbers {
  explicit Numbers(const HeadSums& sums)
      : B(sums.seen.size(0)), H(sums.seen.size(1)), Tq(sums.seen.size(2)), Tk(sums.received.size(2)) {
    seen = wide(sums.seen), entropy = wide(sums.entropy), distance = wide(sums.distance);
    received = wide(sums.received), seen_by = wide(sums.seen_by);
    top_keys = wide(sums.top_keys.select(3, 0)), top_weights = wide(sums.top_weights.select(3, 0));
  }

  std::int64_t B, H, Tq, Tk;
  double *seen, *entropy, *distance, *received, *seen_by, *top_keys, *top_weights;

 private:
  double* wide(const View& view) {
    tensors_.push_back(view.to(DType::f64));
    return tensors_.back().data<double>();
  }

  std::vector<Tensor> tensors_;
};

// A query that sees one key alone gives it all that it has, whatever the head does: it does not make a sink. Nor do the
// few queries that see a causal model's last keys, where any head that looks nearby gives them much.
void find_sink(HeadScores& scores, Numbers& found, std::int64_t at) {
  double *received = found.received + at * found.Tk, *seen_by = found.seen_by + at * found.Tk;
  for (std::int64_t i = at * found.Tq; i < (at + 1) * found.Tq; ++i) {
    const auto key = static_cast<std::int64_t>(found.top_keys[i]);
    if (found.seen[i] != 1 || key < 0) continue;
    received[key] -= found.top_weights[i], seen_by[key] -= 1;
  }
  const double most = found.Tk > 0 ? *std::max_element(seen_by, seen_by + found.Tk) : 0;
  for (std::int64_t j = 0; j < found.Tk; ++j) {
    if (seen_by[j] <= 0 || 2 * seen_by[j] < most || !(received[j] / seen_by[j] > scores.sink)) continue;
    scores.sink = received[j] / seen_by[j], scores.sink_key = j;
  }
}

HeadScores score_head(const HeadSums& sums, Numbers& found, std::int64_t at) {
  HeadScores scores{.batch = at / found.H, .head = at % found.H};
  double rows = 0, distance = 0;
  for (std::int64_t i = at * found.Tq; i < (at + 1) * found.Tq; ++i) {
    if (found.seen[i] == 0) continue;
    rows += 1;
    scores.entropy += found.entropy[i];
    distance += found.distance[i];
  }
  const auto mean = [](double sum, double count) { return count > 0 ? sum / count : 0; };
  scores.entropy = mean(scores.entropy, rows), scores.effective_keys = std::exp(scores.entropy);
  find_sink(scores, found, at);
  if (sums.has_distance) {
    const double* probes = sums.probes[static_cast<std::size_t>(at)].sums;
    scores.distance = mean(distance, rows);
    scores.previous = mean(probes[kernels::Probes::previous], sums.with_previous[static_cast<std::size_t>(at)]);
    scores.local = mean(probes[kernels::Probes::local], rows);
    if (sums.has_tokens) {
      scores.duplicate = mean(probes[kernels::Probes::duplicate], rows);
      scores.induction = mean(probes[kernels::Probes::induction], rows);
    }
  }
  scores.kind = kind_of(scores);
  return scores;
}

std::vector<HeadScores> look(SummaryProblem& x) {
  const Problem& p = x.forward;
  const Dims rows{p.B, p.H, p.Tq}, keys{p.B, p.H, p.Tk}, one{p.B, p.H, p.Tq, 1};
  const auto zeros = [&](const Dims& shape) { return Tensor(shape, x.dtype()); };
  Tensor seen = zeros(rows), entropy = zeros(rows), distance = zeros(rows), received = zeros(keys), lift = zeros(keys);
  Tensor seen_by = zeros(keys), top_keys(one, DType::i64), top_weights = zeros(one);
  std::fill_n(top_keys.data<std::int64_t>(), top_keys.count(), -1);
  x.to.seen = seen.view(), x.to.entropy = entropy.view();
  if (x.has_distance) x.to.distance = distance.view();
  x.to.received = received.view(), x.to.seen_by = seen_by.view(), x.to.lift = lift.view();
  x.to.top_keys = top_keys.view(), x.to.top_weights = top_weights.view();
  run_summary(x, make_summary_schedule(x));
  return scores_of({seen, entropy, distance, received, seen_by, top_keys, top_weights, x.found,
                    rows_with_previous(x, seen), x.has_distance, !x.tokens.empty()});
}

}  // namespace

void want_probes(const char* function, SummaryProblem& x, const std::optional<View>& tokens) {
  if (tokens) take_tokens(function, x, *tokens);
  x.probes = x.has_distance, x.near = near_keys;
  x.found.resize(static_cast<std::size_t>(x.forward.B * x.forward.H));
}

std::vector<double> rows_with_previous(const SummaryProblem& x, const View& seen) {
  const Problem& p = x.forward;
  const Tensor wide = seen.to(DType::f64);
  const double* sees = wide.data<double>();
  std::vector<double> counts;
  for (std::int64_t at = 0; at < p.B * p.H; ++at) {
    const Sequence s = p.sequence(at / p.H);
    double count = 0;
    for (std::int64_t i = 0; i < p.Tq; ++i) {
      const std::int64_t before = i + s.offset - 1;
      count += sees[at * p.Tq + i] != 0 && before >= 0 && before < s.key_length;
    }
    counts.push_back(count);
  }
  return counts;
}

std::string_view kind_of(const HeadScores& scores) {
  if (scores.sink > 0.3) return "sink";
  if (scores.previous > 0.4) return "previous";
  if (scores.induction.value_or(0) > 0.3) return "induction";
  return scores.local > 0.8 ? "local" : "broad";
}

std::vector<HeadScores> scores_of(const HeadSums& sums) {
  Numbers found(sums);
  std::vector<HeadScores> scores;
  for (std::int64_t at = 0; at < found.B * found.H; ++at) scores.push_back(score_head(sums, found, at));
  return scores;
}

std::vector<HeadScores> head_scores(const View& q, const View& k, const std::optional<View>& lse,
                                    const AttentionOptions& options, const std::optional<View>& tokens,
                                    const std::optional<View>& lse_low) {
  constexpr const char* function = "head_scores";
  return with_memory(function, q, k, [&] {
    if (options.query_starts) {
      fail(ErrorCode::bad_value, function, "query_starts are given: scores are of one sequence, so slice q and k");
    }
    SummaryProblem x = SummaryProblem::check(function, q, k, lse, lse_low, options);
    x.want_top(function, 1);
    want_probes(function, x, tokens);
    return look(x);
  });
}

}  // namespace attend
