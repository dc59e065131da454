// gradient() of several texts in one pass.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attend/gradient.h"

namespace attend::inline v0::analysis {

// Of each of the sequences that begin at `starts` (empty: one) the number that the options ask for; of GradientOf::sum
// there is one sequence. What is observed has the rows of all.
std::vector<Gradient> gradients(const Model& model, std::span<const std::int64_t> ids,
                                std::span<const std::int64_t> starts, const GradientOptions& options);

}  // namespace attend::inline v0::analysis
