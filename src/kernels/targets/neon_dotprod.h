// What AArch64 processors with products of bytes (sdot) do faster than target_neon, with the same bits.
#pragma once

#include "kernels/target.h"

namespace attend::inline v1::kernels {

// LinearKernels::blocks of Activations::int8.
BlockKernels int8_blocks_by_dotprod(QuantizedType type);

}  // namespace attend::inline v1::kernels
