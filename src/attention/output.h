// What a result was or is to be: its kind, and the memory of the caller that it goes to.
#pragma once

#include "attend/attention.h"

namespace attend::inline v1 {

// Throws bad_shape or bad_dtype unless x is of that shape and dtype.
void check_kind(const char* function, std::string_view name, const View& x, const Dims& shape, DType dtype);
// The same, and bad_value where two elements share a place.
void check_output(const char* function, std::string_view name, const MutableView& x, const Dims& shape, DType dtype);
// What out's dtype is to be: q's, or f32 where q has 16 bits and out is f32.
DType dtype_of_out(const View& out, const View& q);
// Throws bad_value where x meets the memory of an argument.
void check_apart(const char* function, std::string_view name, const View& x, const View& q, const View& k,
                 const View& v, const AttentionOptions& options);
// Whether the stretches of memory between the first and last elements meet.
bool overlap(const View& a, const View& b);

}  // namespace attend::inline v1
