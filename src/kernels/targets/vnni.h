// Processors whose instructions sum products of bytes (VNNI) multiply whole numbers by these; all else is as without.
#pragma once

#include "kernels/target.h"

namespace attend::inline v1::kernels {

struct IntegerKernels {
  decltype(DecodeKernels::run) decode_i8;  // of caches of 8 bits alone
  decltype(LinearKernels::blocks) blocks;
};

extern const IntegerKernels integers_avx2_vnni, integers_avx512_vnni;

}  // namespace attend::inline v1::kernels
