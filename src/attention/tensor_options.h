// The one list of the options that are tensors.
#pragma once

#include "attend/attention.h"

namespace attend {

// Dtypes and shapes, for `pairs` [B,H,Tq,Tk]. Throws bad_dtype, bad_shape.
void check_tensor_options(const char* function, const AttentionOptions& options, const Dims& pairs);

}  // namespace attend
