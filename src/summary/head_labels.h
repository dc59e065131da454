// From what a head does beyond chance to what it is called.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "attend/head_scores.h"

namespace attend::inline v1 {

// A label that stands for an excess above its threshold.
struct LabelRule {
  std::string_view name;
  std::optional<double> HeadKinds::*excess;
  double threshold;
};
std::span<const LabelRule> label_rules();

// known: whether enough of the head is known to say that it does nothing of it.
std::vector<HeadLabel> labels_of(const HeadKinds& excess, bool known, double effective_keys, double keys_seen);
bool has_label(const std::vector<HeadLabel>& labels, std::string_view name);

}  // namespace attend::inline v1
