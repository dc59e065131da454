// AVX-512: F, BW, DQ and VL. And processors with AVX-512 VNNI too.
#include "kernels/simd/avx512.h"
#include "kernels/simd/transpose_sse.h"

#include "kernels/targets/make_target.h"
#include "kernels/x86_features.h"

namespace attend::inline v1::kernels {

namespace {

bool supported() {
  return x86_features().avx512;
}

bool supported_vnni() {
  return x86_features().avx512_vnni;
}

}  // namespace

constinit const Target target_avx512 = make_target("avx512", supported);
constinit const Target target_avx512_vnni = make_vnni_target<integers_avx512_vnni>("avx512_vnni", supported_vnni);

}  // namespace attend::inline v1::kernels
