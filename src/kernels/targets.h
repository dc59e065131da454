// The targets that the kernels are compiled for, and the one that runs.
#pragma once

#include <span>

#include "kernels/target.h"

namespace attend::inline v1::kernels {

// All that this build holds, from the plainest to the fastest.
std::span<const Target* const> targets();

// The fastest that the processor supports; or the one that the environment variable ATTEND_TARGET names. Read once.
// Throws bad_value where that is not a target of this build or this processor.
const Target& target();

}  // namespace attend::inline v1::kernels
