// Element types.
#pragma once

#include <cstdint>

#include "attend/api.h"

namespace attend::inline v1 {

enum class DType : std::uint8_t { f32, f64, bf16, f16, i64, i8, u8, boolean };

// Bytes of one element.
ATTEND_API std::int64_t size_of(DType dtype);
// Whether it is f32, f64, bf16 or f16.
ATTEND_API bool is_floating(DType dtype);
// The dtype of numbers computed from such elements, such as lse: f64 for f64, else f32.
ATTEND_API DType statistics_dtype(DType dtype);

}  // namespace attend::inline v1
