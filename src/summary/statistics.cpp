// The one list of what a summary has of rows, keys and blocks, and that of a head's numbers.
#include <iterator>

#include "core/message.h"
#include "core/tensor_memory.h"
#include "summary/summary.h"

namespace attend::inline v1 {

namespace {

using Shape = SummaryStatistic::Shape;
using Needs = SummaryStatistic::Needs;

constexpr SummaryStatistic statistics[] = {
    {"top_keys", Shape::top,
     "int64: the keys of a row's largest weights, falling, of equal ones the lower key first; -1 where fewer are "
     "visible",
     &AttentionSummary::top_keys},
    {"top_weights", Shape::top, "their weights", &AttentionSummary::top_weights},
    {"entropy", Shape::rows,
     "of a row's weights, in nats (Clark et al. 2019); exp of it is how many keys are attended to",
     &AttentionSummary::entropy},
    {"distance", Shape::rows, "mean of abs(i + offset - j) (Vig and Belinkov 2019); None where no offset is known",
     nullptr, &AttentionSummary::distance, Needs::offset},
    {"sink_weights", Shape::rows, "what the sinks take of a row; None without sinks", nullptr,
     &AttentionSummary::sink_weights, Needs::sinks},
    {"received", Shape::keys, "the sum of the weights that a key has in all rows", &AttentionSummary::received},
    {"lift", Shape::keys, "received over what uniform attention would give the key", &AttentionSummary::lift},
    {"map", Shape::map, "a block's weights summed over its keys, their mean over its queries that see a key", nullptr,
     &AttentionSummary::map},
    {"map_max", Shape::map, "the largest weight of each block", nullptr, &AttentionSummary::map_max},
    {"carried_top_keys", Shape::top, "int64: as top_keys, of weights times key_sizes; None without these", nullptr,
     &AttentionSummary::carried_top_keys, Needs::key_sizes},
    {"carried_top_weights", Shape::top, "these products", nullptr, &AttentionSummary::carried_top_weights,
     Needs::key_sizes},
    {"carried_received", Shape::keys, "received times key_sizes", nullptr, &AttentionSummary::carried_received,
     Needs::key_sizes},
    {"carried_map", Shape::map, "as map, of weights times key_sizes", nullptr, &AttentionSummary::carried_map,
     Needs::key_sizes},
    {"carried_map_max", Shape::map, "as map_max, of weights times key_sizes", nullptr,
     &AttentionSummary::carried_map_max, Needs::key_sizes},
};

// Where a pass writes each.
constexpr MutableView SummaryViews::*views[] = {
    &SummaryViews::top_keys,
    &SummaryViews::top_weights,
    &SummaryViews::entropy,
    &SummaryViews::distance,
    &SummaryViews::sink_weights,
    &SummaryViews::received,
    &SummaryViews::lift,
    &SummaryViews::map,
    &SummaryViews::map_max,
    &SummaryViews::carried_top_keys,
    &SummaryViews::carried_top_weights,
    &SummaryViews::carried_received,
    &SummaryViews::carried_map,
    &SummaryViews::carried_map_max,
};
static_assert(std::size(statistics) == std::size(views));

using Scores = HeadScores;

constexpr HeadStatistic of_heads[] = {
    {"sink", "sink", 2,
     "the largest mean weight that a key has among the queries that see it (after Gu et al. 2024), of the keys that at "
     "least half as many see as see any",
     [](const Scores& s) { return s.sink; }},
    {"sink_key", "at key", 0, "that key; -1: none",
     [](const Scores& s) { return s.sink_key < 0 ? std::nullopt : std::optional(static_cast<double>(s.sink_key)); }},
    {"self", "self", 2, "mean weight of the level key", [](const Scores& s) { return s.self; }},
    {"previous", "previous", 2, "mean weight of the key before the level one (Olsson et al. 2022)",
     [](const Scores& s) { return s.previous; }},
    {"duplicate", "duplicate", 2, "mean of the weights of earlier keys with the query's own token",
     [](const Scores& s) { return s.duplicate; }},
    {"induction", "induction", 2, "mean of the weights of keys that come right after such a key",
     [](const Scores& s) { return s.induction; }},
    {"local", "local", 2, "mean of the weights within 8 keys of the level one",
     [](const Scores& s) { return s.local; }},
    {"entropy", "entropy", 2, "mean entropy, in nats", [](const Scores& s) { return std::optional(s.entropy); }},
    {"effective_keys", "keys", 1, "exp(entropy)", [](const Scores& s) { return std::optional(s.effective_keys); }},
    {"distance", "distance", 1, "mean distance; None where no offset is known",
     [](const Scores& s) { return s.distance; }},
};

bool is_known(const SummaryProblem& x, const SummaryStatistic& statistic) {
  if (statistic.needs == Needs::offset) return x.has_distance;
  if (statistic.needs == Needs::key_sizes) return x.key_sizes.has_value();
  return statistic.needs == Needs::nothing || !x.forward.sinks.empty();
}

}  // namespace

bool SummaryStatistic::is_index() const {
  return value == &AttentionSummary::top_keys || optional == &AttentionSummary::carried_top_keys;
}

const Tensor* SummaryStatistic::in(const AttentionSummary& summary) const {
  if (value) return &(summary.*value);
  return summary.*optional ? &*(summary.*optional) : nullptr;
}

std::string_view name_of(SummaryStatistic::Shape shape) {
  constexpr std::string_view names[] = {"[B,H,Tq,top]", "[B,H,Tq]", "[B,H,Tk]", "[B,H,R,C]"};
  return names[static_cast<int>(shape)];
}

std::span<const SummaryStatistic> summary_statistics() {
  return statistics;
}

std::string_view name_of(WeighedBy by) {
  return by == WeighedBy::norm ? "norm" : "weight";
}

WeighedBy weighed_by(std::string_view name) {
  for (const WeighedBy by : {WeighedBy::weight, WeighedBy::norm})
    if (name == name_of(by)) return by;
  fail(ErrorCode::bad_value, "weighed_by", "by is '{}', expected weight or norm", name);
}

std::span<const HeadStatistic> head_statistics() {
  return of_heads;
}

AttentionSummary SummaryProblem::want_rows_and_keys() {
  const Problem& p = forward;
  AttentionSummary summary;
  for (std::size_t n = 0; n < std::size(statistics); ++n) {
    const SummaryStatistic& statistic = statistics[n];
    if (statistic.shape == Shape::map || !is_known(*this, statistic)) continue;
    Dims shape{p.B, p.H, statistic.shape == Shape::keys ? p.Tk : p.Tq};
    const bool is_top = statistic.shape == Shape::top;
    if (is_top) shape.push_back(top);
    Tensor made = statistic.is_index() ? filled_tensor(p.trim(shape), DType::i64, 0xff)
                                       : filled_tensor(p.trim(shape), dtype(), 0);
    Tensor& kept = statistic.value ? summary.*statistic.value : (summary.*statistic.optional).emplace();
    kept = std::move(made);
    if (!is_top || top > 0) to.*views[n] = kept.view().reshape(shape);
  }
  return summary;
}

}  // namespace attend::inline v1
