#include "kernels/simd/avx512.h"
#include "kernels/simd/transpose_sse.h"

#include "tests/kernels/simd/operations.h"

namespace attend::test {

constinit const SimdTable simd_avx512_vnni = simd_table("avx512_vnni");

}  // namespace attend::test
