// Armv8.2 with FEAT_DotProd: Cortex-A55 and A75 (2017), Neoverse N1, Apple's A13 and M1, and later.
#include "kernels/targets/neon_dotprod.h"

#include "kernels/simd/neon.h"

#include "kernels/linear_digits.h"

namespace attend::inline v1::kernels {

BlockKernels int8_blocks_by_dotprod(QuantizedType type) {
  BlockKernels found{};
  with_type(type, [&]<class Type>() { found = digit_blocks<1, Type>; });
  return found;
}

}  // namespace attend::inline v1::kernels
