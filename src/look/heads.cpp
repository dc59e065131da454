// Heads of a recording: which, in what order, and why something is not known of them.
#include <algorithm>
#include <cmath>

#include "core/message.h"
#include "look/maps.h"

namespace attend::inline v1 {

namespace {

// It has no excess and no count of the keys that queries see.
bool of_version_1(const RecordedHead& head) {
  return std::isnan(head.scores.keys_seen);
}

// Why a score, or an excess, is not known of any of them.
std::string why_unknown(const Recording& recording, const std::vector<RecordedHead>& heads, std::string_view score) {
  if (std::ranges::all_of(heads, of_version_1)) return "the recording is of version 1; record again";
  const bool of_tokens = score == "duplicate" || score == "induction";
  const auto all = [&](bool RecordedLayer::*has) {
    return std::ranges::all_of(heads, [&](const RecordedHead& x) { return !(recording.at(x.layer).*has); });
  };
  if (all(&RecordedLayer::has_distance)) return "it is not said which key is level with a query";
  if (of_tokens && all(&RecordedLayer::has_tokens)) return "the tokens' ids are not known";
  if (of_tokens)
    return fmt::format("fewer than {} queries have an earlier copy of their token", HeadScores::least_rows);
  return fmt::format("fewer than {} queries see such a key, or they see few others", HeadScores::least_rows);
}

}  // namespace

std::vector<RecordedHead> heads_of(const Recording& recording, std::int64_t item, std::optional<std::int64_t> layer,
                                   std::optional<std::int64_t> head, WeighedBy by) {
  std::vector<RecordedHead> heads;
  for (std::int64_t n = 0; n < std::ssize(recording.layers()); ++n) {
    if (layer && *layer != n) continue;
    check_item(recording, n, item);
    for (HeadScores& scores : recording.scores(n, by))
      if (scores.batch == item && (!head || *head == scores.head)) heads.push_back({n, std::move(scores), by});
  }
  return heads;
}

std::string name_of(const Recording& recording, const RecordedHead& head) {
  return head_name(recording.at(head.layer).name, head.scores.head);
}

void sort_heads(const Recording& recording, std::vector<RecordedHead>& heads, std::string_view score) {
  const std::span<const HeadStatistic> columns = head_statistics();
  const auto column = std::ranges::find(columns, score, &HeadStatistic::name);
  if (column == columns.end()) fail(ErrorCode::bad_value, "sort_heads", "'{}' is not a score of a head", score);
  const auto value = [&](const RecordedHead& x) { return column->of(x.scores); };
  if (!heads.empty() && std::ranges::none_of(
                            heads, [](const auto& known) { return known.has_value(); }, value))
    fail(ErrorCode::bad_value, "sort_heads", "{} is not known for these heads: {}", score,
         why_unknown(recording, heads, score));
  const auto key = [&](const RecordedHead& x) {
    const double number = value(x).value_or(-INFINITY);
    return std::isnan(number) ? -INFINITY : number;
  };
  std::ranges::stable_sort(heads, std::greater(), key);
}

void keep_label(const Recording& recording, std::vector<RecordedHead>& heads, std::string_view label) {
  std::string why = why_no_labels(heads);
  const auto unknown = [&](const RecordedHead& x) { return !x.scores.excess.of(label); };
  if (why.empty() && HeadLabel{label}.is_excess() && std::ranges::all_of(heads, unknown))
    why = why_unknown(recording, heads, label);
  if (!why.empty()) fail(ErrorCode::bad_value, "keep_label", "whether a head is {} is not known: {}", label, why);
  std::erase_if(heads, [&](const RecordedHead& x) { return !x.scores.has_label(label); });
}

std::string why_no_labels(const std::vector<RecordedHead>& heads) {
  std::int64_t most = 0;
  for (const RecordedHead& head : heads) {
    if (!head.scores.labels.empty()) return "";
    most = std::max(most, head.scores.rows);
  }
  if (std::ranges::all_of(heads, of_version_1)) return "the recording is of version 1; record again";
  return fmt::format("{} queries are too few to tell from chance, {} that see more than one key are needed", most,
                     HeadScores::least_rows);
}

std::optional<HeadLabel> first_label(const HeadScores& scores) {
  const auto another = [](const HeadLabel& label) { return label.name != "sink" && label.is_excess(); };
  for (const auto* labels : {&scores.labels, scores.without_sink ? &scores.without_sink->labels : &scores.labels}) {
    const auto found = std::ranges::find_if(*labels, another);
    if (found != labels->end()) return *found;
  }
  return scores.labels.empty() ? std::nullopt : std::optional(scores.labels.front());
}

}  // namespace attend::inline v1
