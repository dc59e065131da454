// The targets of this build, from the plainest to the fastest.
#pragma once

#include "kernels/target.h"

namespace attend::inline v1::kernels {

#if defined(__x86_64__)
extern const Target target_baseline, target_avx2, target_avx2_vnni, target_avx512, target_avx512_vnni,
    target_avx512_bf16;
#define ATTEND_TARGETS \
  &target_baseline, &target_avx2, &target_avx2_vnni, &target_avx512, &target_avx512_vnni, &target_avx512_bf16
#elif defined(__aarch64__)
extern const Target target_neon;
#define ATTEND_TARGETS &target_neon
#elif defined(__wasm_simd128__)
extern const Target target_baseline;
#define ATTEND_TARGETS &target_baseline
#else
#error "attend's kernels are written for x86-64, AArch64 and WebAssembly"
#endif

}  // namespace attend::inline v1::kernels
