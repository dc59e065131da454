// Adding up what decode() found in several ranges of keys.
#pragma once

#include <cstdint>

#include "kernels/fused.h"

namespace attend::kernels {

// Rows [first, last) of every head of the group: out and lse from `ranges` partials [rows][2 + Dv], `stride` floats
// from one to the next, in their order, the sink first.
void combine(const Group& group, std::int64_t first, std::int64_t last, const float* partials, std::int64_t stride,
             std::int64_t ranges);

}  // namespace attend::kernels
