// AVX-VNNI: Intel since Alder Lake (2021), AMD since Zen 5.
#include "kernels/simd/avx2.h"
#include "kernels/simd/transpose_sse.h"

#include "kernels/targets/integers.h"
#include "kernels/targets/vnni.h"

namespace attend::inline v1::kernels {

constinit const IntegerKernels integers_avx2_vnni = {.decode_i8 = decode_i8, .blocks = blocks_of};

}  // namespace attend::inline v1::kernels
