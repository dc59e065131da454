#include "summary/head_labels.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/message.h"

namespace attend::inline v1 {

namespace {

constexpr double focused_keys = 3;

// What chance does not reach: of 1,500 heads of random logits the largest excess is 0.26 over 12 tokens, of local,
// which counts up to 15 keys, 0.47 (benchmarks/results/2026-11-29-moved-from-docs.md).
constexpr std::array<LabelRule, 6> rules = {{{"sink", &HeadKinds::sink, 0.3},
                                             {"self", &HeadKinds::self, 0.3},
                                             {"previous", &HeadKinds::previous, 0.3},
                                             {"duplicate", &HeadKinds::duplicate, 0.3},
                                             {"induction", &HeadKinds::induction, 0.3},
                                             {"local", &HeadKinds::local, 0.5}}};

const LabelRule* rule_of(std::string_view name) {
  const auto found = std::find_if(rules.begin(), rules.end(), [&](const LabelRule& rule) { return rule.name == name; });
  return found == rules.end() ? nullptr : &*found;
}

}  // namespace

std::span<const LabelRule> label_rules() {
  return rules;
}

bool has_label(const std::vector<HeadLabel>& labels, std::string_view name) {
  return std::any_of(labels.begin(), labels.end(), [&](const HeadLabel& label) { return label.name == name; });
}

std::vector<HeadLabel> labels_of(const HeadKinds& excess, bool known, double effective_keys, double keys_seen) {
  std::vector<HeadLabel> labels;
  const auto holds = [&](const LabelRule& rule) { return (excess.*rule.excess).value_or(0) > rule.threshold; };
  for (const LabelRule& rule : rules) {
    // Every head that looks at the previous key looks nearby.
    const bool nearer = rule.name == "local" && (has_label(labels, "self") || has_label(labels, "previous"));
    if (holds(rule) && !nearer) labels.push_back({rule.name, *(excess.*rule.excess)});
  }
  std::stable_sort(labels.begin(), labels.end(), [](const auto& a, const auto& b) { return a.value > b.value; });
  if (!labels.empty() || !known) return labels;
  const bool broad = effective_keys > keys_seen / 2;
  return {{broad ? "broad" : effective_keys < focused_keys ? "focused" : "other", effective_keys}};
}

const std::vector<std::string_view>& HeadKinds::names() {
  static const std::vector<std::string_view> names = [] {
    std::vector<std::string_view> all;
    all.reserve(rules.size());
    for (const LabelRule& rule : rules) all.push_back(rule.name);
    return all;
  }();
  return names;
}

const std::optional<double>& HeadKinds::of(std::string_view name) const {
  const LabelRule* rule = rule_of(name);
  if (!rule) fail(ErrorCode::bad_value, "HeadKinds", "there is no excess {}", name);
  return this->*rule->excess;
}

bool HeadLabel::is_excess() const {
  return rule_of(name) != nullptr;
}

bool HeadScores::has_label(std::string_view name) const {
  return attend::has_label(labels, name) || (without_sink && attend::has_label(without_sink->labels, name));
}

std::string HeadScores::label_text() const {
  const auto joined = [](const std::vector<HeadLabel>& all) {
    std::string text;
    for (const HeadLabel& label : all) {
      if (!text.empty()) text += ", ";
      text += label.name;
      const std::string digits = fmt::format("{:.2f}", label.value);
      if (label.is_excess()) text += " " + (digits.starts_with("0.") ? digits.substr(1) : digits);
    }
    return text;
  };
  if (labels.empty()) return "unknown";
  std::string text = joined(labels);
  if (without_sink && !without_sink->labels.empty()) {
    text += "; besides: " + joined(without_sink->labels);
  }
  return text;
}

}  // namespace attend::inline v1
