#include "kernels/simd/neon.h"

#include "tests/kernels/simd/operations.h"

namespace attend::test {

constinit const SimdTable simd_neon = simd_table("neon");

}  // namespace attend::test
