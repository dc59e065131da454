#include "kernels/simd/avx512.h"
#include "kernels/simd/transpose_sse.h"

#include "tests/kernels/simd/operations.h"

namespace attend::test {

constinit const SimdTable simd_avx512 = simd_table("avx512");

}  // namespace attend::test
