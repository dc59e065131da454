// AArch64.
#ifdef __linux__
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include "kernels/simd/neon.h"

#include "kernels/targets/make_target.h"
#include "kernels/targets/neon_dotprod.h"

namespace attend::inline v1::kernels {

namespace {

bool supported() {
  return true;
}

bool has_dotprod() {
#ifdef __linux__
  return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#else
  return false;
#endif
}

BlockKernels blocks_of_processor(QuantizedType type, Activations activations) {
  if (activations == Activations::int8 && has_dotprod()) return int8_blocks_by_dotprod(type);
  return blocks_of(type, activations);
}

constexpr Target with_dotprod() noexcept {
  Target target = make_target("neon", supported);
  target.linear.blocks = blocks_of_processor;
  return target;
}

}  // namespace

constinit const Target target_neon = with_dotprod();

}  // namespace attend::inline v1::kernels
