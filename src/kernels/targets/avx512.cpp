// AVX-512: F, BW, DQ and VL.
#include "kernels/simd/avx512.h"
#include "kernels/simd/transpose_sse.h"

#include "kernels/targets/make_target.h"
#include "kernels/x86_features.h"

namespace attend::inline v1::kernels {

namespace {

bool supported() {
  return x86_features().avx512;
}

}  // namespace

constinit const Target target_avx512 = make_target("avx512", supported);

}  // namespace attend::inline v1::kernels
