// AArch64.
#include "kernels/simd/neon.h"

#include "kernels/targets/make_target.h"

namespace attend::inline v0::kernels {

namespace {

bool supported() {
  return true;
}

}  // namespace

constinit const Target target_neon = make_target("neon", supported);

}  // namespace attend::inline v0::kernels
