// AVX2 with FMA and F16C: x86-64 processors since about 2013. Those of them with AVX-VNNI too.
#include "kernels/simd/avx2.h"
#include "kernels/simd/transpose_sse.h"

#include "kernels/targets/make_target.h"
#include "kernels/targets/vnni.h"
#include "kernels/x86_features.h"

namespace attend::inline v1::kernels {

namespace {

bool supported() {
  return x86_features().avx2;
}

bool supported_vnni() {
  return x86_features().avx2_vnni;
}

constexpr Target with_vnni() noexcept {
  Target target = make_target("avx2_vnni", supported_vnni);
  target.decode.run = [](const DecodeGroup* groups, std::int64_t count, std::int64_t first, std::int64_t last,
                         std::int64_t begin, std::int64_t end, void* scratch) {
    const auto run = groups[0].group.sizes.quantized ? integers_avx2_vnni.decode_i8 : run_decode<DotF32>;
    run(groups, count, first, last, begin, end, scratch);
  };
  target.linear.blocks = [](QuantizedType type, Activations activations) {
    return integers_avx2_vnni.blocks(type, activations);
  };
  return target;
}

}  // namespace

constinit const Target target_avx2 = make_target("avx2", supported);
constinit const Target target_avx2_vnni = with_vnni();

}  // namespace attend::inline v1::kernels
