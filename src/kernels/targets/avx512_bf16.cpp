// AVX-512 with the dot products of bf16 and of whole numbers, which no processor has without the other.
#include "kernels/simd/avx512.h"
#include "kernels/simd/transpose_sse.h"

#include "kernels/dot_bf16.h"
#include "kernels/targets/make_target.h"

namespace attend::kernels {

namespace {

bool supported() {
  return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
         __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0 &&
         __builtin_cpu_supports("avx512bf16") != 0 && __builtin_cpu_supports("avx512vnni") != 0;
}

}  // namespace

constinit const Target target_avx512_bf16 = make_target("avx512_bf16", supported);

}  // namespace attend::kernels
