// AVX2 with FMA and F16C: x86-64 processors since about 2013. Those of them with AVX-VNNI too.
#include "kernels/simd/avx2.h"
#include "kernels/simd/transpose_sse.h"

#include "kernels/targets/make_target.h"
#include "kernels/x86_features.h"

namespace attend::inline v1::kernels {

namespace {

bool supported() {
  return x86_features().avx2;
}

bool supported_vnni() {
  return x86_features().avx2_vnni;
}

}  // namespace

constinit const Target target_avx2 = make_target("avx2", supported);
constinit const Target target_avx2_vnni = make_vnni_target<integers_avx2_vnni>("avx2_vnni", supported_vnni);

}  // namespace attend::inline v1::kernels
