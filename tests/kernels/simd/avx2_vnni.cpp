#include "kernels/simd/avx2.h"
#include "kernels/simd/transpose_sse.h"

#include "tests/kernels/simd/operations.h"

namespace attend::test {

constinit const SimdTable simd_avx2_vnni = simd_table("avx2_vnni");

}  // namespace attend::test
