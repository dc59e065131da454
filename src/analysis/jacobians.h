// What a stream means for the last one, as a Jacobian lens has it.
#pragma once

#include <cstdint>
#include <string_view>

#include "attend/jacobian_lens.h"

namespace attend::inline v1::analysis {

// Throws bad_value for a lens of another model.
void check_jacobians(std::string_view function, const JacobianLens& lens, const ModelInfo& info);

// J x of rows [R,E] of the stream before a layer; the embedding and what stands after the last layer are as they are.
Tensor meant_at_last(const JacobianLens& lens, std::int64_t layer, Tensor rows);

}  // namespace attend::inline v1::analysis
