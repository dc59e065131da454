#include "summary/probes.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <span>
#include <vector>

#include "attention/operands.h"
#include "core/message.h"
#include "core/tensor_memory.h"

namespace attend::inline v1 {

namespace {

// For each query the earlier keys with its token. Of few queries' tokens (a step of a generation), few keys are kept.
SummaryProblem::SameTokens same_tokens(const View& tokens, const Sequence& s) {
  const Tensor list = tokens.clone();
  const std::span<const std::int64_t> ids(list.data<std::int64_t>(), static_cast<std::size_t>(list.count()));
  if (s.Tq == 0) return {};
  const auto own = ids.subspan(static_cast<std::size_t>(s.offset), static_cast<std::size_t>(s.Tq));
  std::vector<std::int64_t> kinds(own.begin(), own.end());
  std::sort(kinds.begin(), kinds.end());
  kinds.erase(std::unique(kinds.begin(), kinds.end()), kinds.end());
  constexpr std::size_t none = SIZE_MAX;
  std::vector<std::size_t> kind_of(ids.size(), none);
  std::vector<std::int32_t> next(kinds.size() + 1, 0);  // where a kind's keys begin; then where its next one goes
  for (std::size_t j = 0; j < ids.size(); ++j) {
    const auto found = std::lower_bound(kinds.begin(), kinds.end(), ids[j]);
    if (found == kinds.end() || *found != ids[j]) continue;
    kind_of[j] = static_cast<std::size_t>(found - kinds.begin());
    ++next[kind_of[j] + 1];
  }
  std::partial_sum(next.begin(), next.end(), next.begin());
  const std::vector<std::int32_t> begins = next;
  SummaryProblem::SameTokens same{std::vector<std::int32_t>(static_cast<std::size_t>(begins.back())), {}, {}};
  for (std::size_t j = 0; j < ids.size(); ++j) {
    if (kind_of[j] == none) continue;
    std::int32_t& at = next[kind_of[j]];
    const std::int64_t query = static_cast<std::int64_t>(j) - s.offset;
    if (query >= 0 && query < s.Tq) same.begin.push_back(begins[kind_of[j]]), same.end.push_back(at);
    same.keys[static_cast<std::size_t>(at++)] = static_cast<std::int32_t>(j);
  }
  return same;
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
    x.same_tokens.push_back(same_tokens(shared ? tokens : tokens.select(0, b), s));
  }
}

}  // namespace

ProbeTensors want_probes(const char* function, SummaryProblem& x, const std::optional<View>& tokens) {
  if (tokens) take_tokens(function, x, *tokens);
  x.near = near_keys;
  const Problem& p = x.forward;
  ProbeTensors made;
  made.statistics = Tensor({p.B, p.H, p.Tq, 2}, x.dtype());
  x.to.statistics = made.statistics.view();
  if (!x.has_distance) return made;
  const Dims kinds{p.B, p.H, p.Tq, kernels::Probes::kinds};
  made.weights = filled_tensor(kinds, x.dtype(), 0), made.keys = filled_tensor(kinds, x.dtype(), 0);
  x.to.probe_weights = made.weights.view(), x.to.probe_keys = made.keys.view();
  if (!x.key_sizes) return made;
  made.carried = filled_tensor(kinds, x.dtype(), 0), made.sizes = filled_tensor(kinds, x.dtype(), 0);
  x.to.probe_carried = made.carried.view(), x.to.probe_sizes = made.sizes.view();
  return made;
}

PairWeight pair_weights(const SummaryProblem& x) {
  return [&x](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
    const Sequence sequence = x.forward.sequence(b);
    const double logit = kernels::reference_logit(x.forward.head(sequence, h), i, j);
    if (logit == -INFINITY) return hidden_pair;
    const auto lse = [&](std::int64_t n) {
      const auto at = operand_at(x.to.statistics, b, h, sequence.query_start + i, n);
      return load_element(at.dtype, at.data);
    };
    return std::min(1.0, std::exp2(logit * std::numbers::log2e - lse(0) - lse(1)));
  };
}

}  // namespace attend::inline v1
