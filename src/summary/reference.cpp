#include <algorithm>
#include <cmath>
#include <numbers>

#include "attention/operands.h"
#include "core/divide_up.h"
#include "core/parallel.h"
#include "summary/summary.h"

namespace attend::inline v1 {

namespace {

constexpr double log2_e = std::numbers::log2e;

// One query head of one sequence in double, a row at a time.
class ReferenceSummary {
 public:
  explicit ReferenceSummary(SummaryProblem& x) : x_(x), p_(x.forward), weights_(static_cast<std::size_t>(p_.Tk)) {
    steps_.resize(p_.Tk, p_.D, 0);
    uniform_.resize(static_cast<std::size_t>(p_.Tk));
  }

  void run(std::int64_t n, std::int64_t h) {
    s_ = p_.sequence(n), n_ = n, h_ = h;
    const kernels::Head head = p_.head(s_, h);
    std::fill(uniform_.begin(), uniform_.end(), 0);
    if (!x_.grid) clear_maps(x_.to, n, h);
    const Range queries = x_.queries_of(s_);
    for (std::int64_t i = queries.begin; i < queries.end; ++i) {
      kernels::reference_row(head, i, steps_);
      take_row(i);
    }
    for (const MutableView& map : {x_.to.map, x_.to.carried_map})
      if (map.raw() && !x_.grid) divide_map(map);
    if (x_.to.received.raw()) divide_received();
  }

 private:
  // Element [b,h,row,...] of a result.
  double* place(const MutableView& x, std::int64_t row) const {
    return static_cast<double*>(operand_at(x, s_.b, h_, row).data);
  }
  double* row_of(const MutableView& x, std::int64_t i) const { return place(x, s_.query_start + i); }

  void take_row(std::int64_t i) {
    const auto given = [&](const View& x) {
      const auto at = operand_at(x, s_.b, h_, s_.query_start + i);
      return load_element(at.dtype, at.data);
    };
    const double lse = x_.lse ? given(*x_.lse) : steps_.lse;
    const double low = x_.lse_low ? given(*x_.lse_low) : x_.lse ? 0 : steps_.lse_low;
    double seen = 0, entropy = 0, distance = 0;
    for (std::int64_t j = 0; j < s_.Tk; ++j) {
      const double logit = steps_.logits[j];
      const double exponent = (logit - lse) - low;
      weights_[static_cast<std::size_t>(j)] = logit == -INFINITY ? 0 : std::exp(exponent);
      if (logit == -INFINITY) continue;
      const double weight = weights_[static_cast<std::size_t>(j)];
      seen += 1;
      if (weight != 0) entropy -= weight * exponent;
      distance += weight * std::abs(static_cast<double>(i + s_.offset - j));
    }
    const SummaryViews& to = x_.to;
    if (to.seen.raw()) *row_of(to.seen, i) = seen > 0 ? 1 / seen : 0;
    if (to.entropy.raw()) *row_of(to.entropy, i) = entropy;
    if (to.distance.raw()) *row_of(to.distance, i) = distance;
    if (to.sink_weights.raw()) {
      const double sink = p_.sinks[static_cast<std::size_t>(h_)];
      *row_of(to.sink_weights, i) = std::exp(std::min(0.0, (sink - lse) - low));
    }
    if (to.statistics.raw()) row_of(to.statistics, i)[0] = lse * log2_e, row_of(to.statistics, i)[1] = low * log2_e;
    if (to.top_keys.raw()) take_largest(i, to.top_keys, to.top_weights);
    if (to.received.raw()) add_to_keys(seen);
    if (to.map.raw()) add_to_map(i, to.map, to.map_max);
    if (to.weights.raw()) store_weights(i);
    if (to.probe_weights.raw()) probe(i);
    if (!x_.key_sizes) return;
    for (std::int64_t j = 0; j < s_.Tk; ++j)
      if (sees(j)) weights_[static_cast<std::size_t>(j)] *= key_size(j);
    if (to.carried_top_keys.raw()) take_largest(i, to.carried_top_keys, to.carried_top_weights);
    if (to.carried_map.raw()) add_to_map(i, to.carried_map, to.carried_map_max);
  }

  bool sees(std::int64_t j) const { return steps_.logits[j] != -INFINITY; }
  double weight(std::int64_t j) const { return weights_[static_cast<std::size_t>(j)]; }
  double key_size(std::int64_t j) const {
    return x_.key_sizes->data<double>()[(s_.b * p_.H + h_) * p_.Tk + s_.key_start + j];
  }

  void take_largest(std::int64_t i, const MutableView& top_keys, const MutableView& top_weights) {
    const std::int64_t top = top_keys.size(3);
    auto* keys = static_cast<std::int64_t*>(operand_at(top_keys, s_.b, h_, s_.query_start + i).data);
    double* weights = row_of(top_weights, i);
    for (std::int64_t j = 0; j < s_.Tk; ++j) {
      if (!sees(j) || !(weight(j) > (keys[top - 1] < 0 ? -1 : weights[top - 1]))) continue;
      std::int64_t at = top - 1;
      for (; at > 0 && (keys[at - 1] < 0 || weights[at - 1] < weight(j)); --at) {
        weights[at] = weights[at - 1], keys[at] = keys[at - 1];
      }
      weights[at] = weight(j), keys[at] = s_.key_start + j;
    }
  }

  void add_to_keys(double seen) {
    for (std::int64_t j = 0; j < s_.Tk; ++j) {
      if (!sees(j)) continue;
      place(x_.to.received, s_.key_start)[j] += weight(j);
      uniform_[static_cast<std::size_t>(j)] += 1 / seen;
      if (x_.to.seen_by.raw()) place(x_.to.seen_by, s_.key_start)[j] += 1;
    }
  }

  void divide_received() {
    for (std::int64_t j = 0; j < s_.Tk; ++j) {
      const double share = uniform_[static_cast<std::size_t>(j)];
      if (share > 0) place(x_.to.lift, s_.key_start)[j] = place(x_.to.received, s_.key_start)[j] / share;
      if (x_.to.uniform.raw()) place(x_.to.uniform, s_.key_start)[j] = share;
      const double received = place(x_.to.received, s_.key_start)[j];
      if (x_.to.carried_received.raw() && received != 0)
        place(x_.to.carried_received, s_.key_start)[j] = received * key_size(j);
    }
  }

  double* cells(const MutableView& map, std::int64_t r) const {
    return static_cast<double*>(operand_at(map, n_, h_, r).data);
  }

  void add_to_map(std::int64_t i, const MutableView& map, const MutableView& map_max) {
    const kernels::MapBlocks blocks = x_.blocks_of(s_, map);
    const Range keys = x_.keys_of(s_);
    const std::int64_t r = (i - blocks.first_row) * blocks.R / blocks.rows;
    for (std::int64_t j = keys.begin; j < keys.end; ++j) {
      const std::int64_t c = (j - blocks.first_key) * blocks.C / blocks.keys;
      cells(map, r)[c] += weight(j);
      double& most = cells(map_max, r)[c];
      most = std::max(most, weight(j));
    }
  }

  void divide_map(const MutableView& map) {
    const kernels::MapBlocks blocks = x_.blocks_of(s_, map);
    for (std::int64_t r = 0; r < blocks.R; ++r) {
      const auto begin_of = [&](std::int64_t block) { return divide_up(block * blocks.rows, blocks.R); };
      double seeing = 0;
      for (std::int64_t i = begin_of(r); i < begin_of(r + 1); ++i)
        seeing += *row_of(x_.to.seen, blocks.first_row + i) > 0;
      double* row = cells(map, r);
      for (std::int64_t c = 0; c < blocks.C; ++c) row[c] /= std::max(1.0, seeing);
    }
  }

  void store_weights(std::int64_t i) {
    const Range keys = x_.keys_of(s_);
    double* to = place(x_.to.weights, s_.query_start + i - x_.queries.begin) + s_.key_start - x_.keys.begin;
    for (std::int64_t j = keys.begin; j < keys.end; ++j) to[j] = weight(j);
  }

  void probe(std::int64_t i) {
    using Probes = kernels::Probes;
    double *weights = row_of(x_.to.probe_weights, i), *keys = row_of(x_.to.probe_keys, i);
    double* carried = x_.to.probe_carried.raw() ? row_of(x_.to.probe_carried, i) : nullptr;
    double* sizes = carried ? row_of(x_.to.probe_sizes, i) : nullptr;
    const auto count = [&](Probes::Kind kind, std::int64_t j) {
      weights[kind] += weight(j), keys[kind] += 1;
      if (carried) carried[kind] += weight(j) * key_size(j), sizes[kind] += key_size(j);
    };
    const std::int64_t level = i + s_.offset;
    for (std::int64_t j = 0; j < s_.Tk; ++j) {
      if (!sees(j)) continue;
      const auto add = [&](Probes::Kind kind, bool of_kind) {
        if (of_kind) count(kind, j);
      };
      add(Probes::self, j == level), add(Probes::previous, j == level - 1);
      add(Probes::local, std::abs(level - j) <= x_.near && j != level && j != level - 1);
    }
    if (x_.same_tokens.empty()) return;
    const SummaryProblem::SameTokens& same = x_.same_tokens[static_cast<std::size_t>(s_.b)];
    for (std::int32_t n = same.begin[static_cast<std::size_t>(i)]; n < same.end[static_cast<std::size_t>(i)]; ++n) {
      const std::int64_t j = same.keys[static_cast<std::size_t>(n)];
      if (sees(j)) count(Probes::duplicate, j);
      if (sees(j + 1)) count(Probes::induction, j + 1);
    }
  }

  SummaryProblem& x_;
  const Problem& p_;
  Sequence s_;
  std::int64_t n_ = 0, h_ = 0;
  kernels::Row steps_;
  std::vector<double> weights_, uniform_;
};

}  // namespace

void run_reference(SummaryProblem& x, const SummarySchedule& s) {
  std::vector<ReferenceSummary> workers;
  workers.reserve(static_cast<std::size_t>(s.workers));
  for (int worker = 0; worker < s.workers; ++worker) workers.emplace_back(x);
  parallel_items(std::ssize(s.items), s.workers, [&](int worker, std::int64_t at) {
    const SummarySchedule::Item& item = s.items[static_cast<std::size_t>(at)];
    workers[static_cast<std::size_t>(worker)].run(item.sequence, item.head);
  });
}

}  // namespace attend::inline v1
