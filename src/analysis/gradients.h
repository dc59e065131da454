// gradient() of several texts in one pass, and what else analyses ask of it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "attend/gradient.h"
#include "models/backward.h"

namespace attend::inline v1::analysis {

// What else looks at the passes: at all places of the one forward, and at every attention of the one back.
struct Shown {
  std::function<void(ModelPlace place, std::int64_t layer, const View& values)> forward = {};
  models::AttentionGradients attentions = {};
};
// Of each of the sequences that begin at `starts` (empty: one) the number that its options ask for; or those of all,
// which then observe the rows of all. Of GradientOf::sum there is one sequence. types and edits are the first's, of all
// rows.
std::vector<Gradient> gradients(const Model& model, std::span<const std::int64_t> ids,
                                std::span<const std::int64_t> starts, std::span<const GradientOptions> options,
                                const Shown& shown = {});

// The number by itself, of one sequence, and with rows that may not see keys; not of GradientOf::sum. Nothing is
// observed.
Gradient number(const Model& model, std::span<const std::int64_t> ids, const GradientOptions& options,
                std::span<const Knockout> knockouts);

}  // namespace attend::inline v1::analysis
