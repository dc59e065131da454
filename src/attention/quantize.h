// Rows of 8 bits: whole numbers from -127 to 127 times a scale for each row.
#pragma once

#include "attend/tensor.h"

namespace attend::inline v1 {

// x [B,H,T,D] of any floating-point dtype to rows [B,H,T,D] i8 and scales [B,H,T] f32, as far from x as half a scale at
// most: a row's scale is its largest magnitude / 127. That of a row that is not finite is NaN; rows below 1.5e-36 are
// 0.
void quantize(const View& x, const MutableView& rows, const MutableView& scales);
// rows times scales, f32.
void dequantize(const View& rows, const View& scales, const MutableView& x);

}  // namespace attend::inline v1
