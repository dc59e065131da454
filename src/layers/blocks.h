// Quantized matrices as the kernels take them.
#pragma once

#include <string_view>

#include "attend/quantized.h"
#include "kernels/linear_operands.h"

namespace attend::inline v1 {

// Throws bad_shape unless rows are of whole blocks; bad_value unless they are of whole heads, where these are
// interleaved.
void check_blocks(std::string_view function, const QuantizedView& matrix);

kernels::BlockMatrix cut(const QuantizedView& matrix);
// Columns [first, last) of all its rows, whole blocks.
kernels::BlockMatrix columns_of(const QuantizedView& matrix, std::int64_t first, std::int64_t last);

}  // namespace attend::inline v1
