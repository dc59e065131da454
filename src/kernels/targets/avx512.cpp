// AVX-512: F, BW, DQ and VL. And processors with AVX-512 VNNI too.
#include "kernels/simd/avx512.h"
#include "kernels/simd/transpose_sse.h"

#include "kernels/targets/make_target.h"
#include "kernels/targets/vnni.h"
#include "kernels/x86_features.h"

namespace attend::inline v1::kernels {

namespace {

bool supported() {
  return x86_features().avx512;
}

bool supported_vnni() {
  return x86_features().avx512_vnni;
}

constexpr Target with_vnni() noexcept {
  Target target = make_target("avx512_vnni", supported_vnni);
  target.decode.run = [](const DecodeGroup* groups, std::int64_t count, std::int64_t first, std::int64_t last,
                         std::int64_t begin, std::int64_t end, void* scratch) {
    const auto run = groups[0].group.sizes.quantized ? integers_avx512_vnni.decode_i8 : run_decode<DotF32>;
    run(groups, count, first, last, begin, end, scratch);
  };
  target.linear.blocks = [](QuantizedType type, Activations activations) {
    return integers_avx512_vnni.blocks(type, activations);
  };
  return target;
}

}  // namespace

constinit const Target target_avx512 = make_target("avx512", supported);
constinit const Target target_avx512_vnni = with_vnni();

}  // namespace attend::inline v1::kernels
