// AVX-512: F, BW, DQ and VL.
#include "kernels/simd/avx512.h"
#include "kernels/simd/transpose_sse.h"

#include "kernels/targets/make_target.h"

namespace attend::inline v1::kernels {

namespace {

bool supported() {
  return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
         __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
}

}  // namespace

constinit const Target target_avx512 = make_target("avx512", supported);

}  // namespace attend::inline v1::kernels
