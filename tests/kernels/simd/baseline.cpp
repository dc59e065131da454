#include "kernels/simd/sse2.h"
#include "kernels/simd/transpose_sse.h"

#include "tests/kernels/simd/operations.h"

namespace attend::test {

constinit const SimdTable simd_baseline = simd_table("baseline");

}  // namespace attend::test
