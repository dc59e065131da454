// Rows of numbers as a GGUF file has them: as they are, or in blocks of quantized ones.
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/gguf/file.h"

namespace attend::inline v1::models {

// Of the types that rows are made of: F32, F16, Q4_0, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K and Q6_K.
std::uint64_t bytes_of_row(GgufType type, std::int64_t count);
// No number of a row may have a larger magnitude: scales are f16.
float largest_number(GgufType type);
// Q8_0 and Q4_0 are rounded as ggml's reference rounds them. For the others scales are sought that leave a small error.
// row: `count` numbers, whole blocks; to: bytes_of_row().
void quantize_row(GgufType type, const float* row, std::int64_t count, std::byte* to);

}  // namespace attend::inline v1::models
