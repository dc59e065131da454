// AArch64.
#include "kernels/simd_neon.h"

#include "kernels/make_target.h"

namespace attend::kernels {

const Target target_neon = make_target("neon", [] { return true; });

}  // namespace attend::kernels
