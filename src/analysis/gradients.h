// gradient() of several texts in one pass, and what else analyses ask of it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "attend/gradient.h"
#include "models/backward.h"

namespace attend::inline v0::analysis {

// Of each of the sequences that begin at `starts` (empty: one) the number that the options ask for; of GradientOf::sum
// there is one sequence. What is observed has the rows of all. Shown: all places of the pass forward, and every
// attention of the pass back.
struct Shown {
  std::function<void(ModelPlace place, std::int64_t layer, const View& values)> forward = {};
  models::AttentionGradients attentions = {};
};
std::vector<Gradient> gradients(const Model& model, std::span<const std::int64_t> ids,
                                std::span<const std::int64_t> starts, const GradientOptions& options,
                                const Shown& shown = {});

// The number by itself, of one sequence, and with rows that may not see keys; not of GradientOf::sum. Nothing is
// observed.
Gradient number(const Model& model, std::span<const std::int64_t> ids, const GradientOptions& options,
                std::span<const Knockout> knockouts);

}  // namespace attend::inline v0::analysis
