// Element types.
#pragma once

#include <cstdint>

#include "attend/api.h"

namespace attend::inline v0 {

enum class DType : std::uint8_t { f32, f64, bf16, f16, i64, i8, u8, boolean };

// Bytes of one element.
ATTEND_API std::int64_t size_of(DType dtype);
// f32, f64, bf16 or f16.
ATTEND_API bool is_floating(DType dtype);
// Of numbers that are computed from elements of that dtype, such as lse: f64 for f64, f32 for all others.
ATTEND_API DType statistics_dtype(DType dtype);

}  // namespace attend::inline v0
