// AVX2 with FMA and F16C: x86-64 processors since about 2013.
#include <cpuid.h>

#include "kernels/simd/avx2.h"
#include "kernels/simd/transpose_sse.h"

#include "kernels/targets/make_target.h"

namespace attend::inline v1::kernels {

namespace {

bool supported() {
  // Clang 16's __builtin_cpu_supports does not know f16c.
  unsigned a, b, c, d;
  return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 && __get_cpuid(1, &a, &b, &c, &d) &&
         (c & bit_F16C) != 0;
}

}  // namespace

constinit const Target target_avx2 = make_target("avx2", supported);

}  // namespace attend::inline v1::kernels
