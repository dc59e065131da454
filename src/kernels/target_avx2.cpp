// AVX2 with FMA and F16C: x86-64 processors since about 2013.
#include "kernels/simd_avx2.h"
#include "kernels/transpose_sse.h"

#include "kernels/make_target.h"

namespace attend::kernels {

const Target target_avx2 = make_target("avx2", [] {
  return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 &&
         __builtin_cpu_supports("f16c") != 0;
});

}  // namespace attend::kernels
