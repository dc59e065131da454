#include "kernels/simd/avx2.h"
#include "kernels/simd/transpose_sse.h"

#include "tests/kernels/simd/operations.h"

namespace attend::test {

constinit const SimdTable simd_avx2 = simd_table("avx2");

}  // namespace attend::test
