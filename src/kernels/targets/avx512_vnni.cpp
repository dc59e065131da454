// AVX-512 VNNI: Intel servers since Cascade Lake (2019), AMD since Zen 4.
#include "kernels/simd/avx512.h"
#include "kernels/simd/transpose_sse.h"

#include "kernels/targets/integers.h"
#include "kernels/targets/vnni.h"

namespace attend::inline v1::kernels {

constinit const IntegerKernels integers_avx512_vnni = {.decode_i8 = decode_i8, .blocks = blocks_of};

}  // namespace attend::inline v1::kernels
