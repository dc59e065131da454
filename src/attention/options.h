// The one list of the options of attention() that are tensors, and of those that are numbers.
#pragma once

#include <string>

#include "attend/attention.h"
#include "kernels/rules.h"

namespace attend::inline v1 {

// Dtypes and shapes, for `pairs` [B,H,Tq,Tk]. Throws bad_dtype, bad_shape.
void check_tensor_options(const char* function, const AttentionOptions& options, const Dims& pairs);
// The numbers as the kernels take them, into `rules`. Throws bad_value.
void check_number_options(const char* function, const AttentionOptions& options, kernels::Rules& rules);

// Whether the offset matters, and "causal, window, distance_bias or alibi_slopes": which options make it so.
bool is_positional(const AttentionOptions& options);
std::string positional_names();

}  // namespace attend::inline v1
