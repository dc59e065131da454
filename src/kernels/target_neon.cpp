// AArch64.
#include "kernels/simd_neon.h"

#include "kernels/fused_kernels.h"
#include "kernels/target_list.h"

namespace attend::kernels {

const Target target_neon = make_target("neon", [] { return true; });

}  // namespace attend::kernels
