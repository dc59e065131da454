// Memory of the caller that a result goes to.
#pragma once

#include "attend/attention.h"

namespace attend {

// Throws bad_shape, bad_dtype, and bad_value where two elements share a place.
void check_output(const char* function, std::string_view name, const MutableView& x, const Dims& shape, DType dtype);
// Throws bad_value where x meets the memory of an argument.
void check_apart(const char* function, std::string_view name, const View& x, const View& q, const View& k,
                 const View& v, const AttentionOptions& options);
// Whether the stretches of memory between the first and last elements meet.
bool overlap(const View& a, const View& b);

}  // namespace attend
