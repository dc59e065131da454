// A 4 x 4 transpose in SSE, which every x86-64 has.
#pragma once

#include <immintrin.h>

namespace attend::inline v1::kernels {
namespace {

// Four rows of four floats to four columns, to_stride floats apart.
inline void transpose4(const float* r0, const float* r1, const float* r2, const float* r3, float* to,
                       std::int64_t to_stride) {
  __m128 a = _mm_loadu_ps(r0), b = _mm_loadu_ps(r1), c = _mm_loadu_ps(r2), d = _mm_loadu_ps(r3);
  _MM_TRANSPOSE4_PS(a, b, c, d);
  _mm_storeu_ps(to, a);
  _mm_storeu_ps(to + to_stride, b);
  _mm_storeu_ps(to + 2 * to_stride, c);
  _mm_storeu_ps(to + 3 * to_stride, d);
}

}  // namespace
}  // namespace attend::inline v1::kernels
