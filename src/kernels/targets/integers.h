// What is multiplied as whole numbers: quantized weights, and queries with caches of 8 bits. A file that includes this
// has included a vector layer `Simd` before.
#pragma once

#include "kernels/decode.h"
#include "kernels/linear_digits.h"

namespace attend::inline v1::kernels {
namespace {

template <bool Cached>
using DecodeI8 = Decode<DotI16, PairsI8, ReadI8, Cached>;

template <bool Cached>
void run_decode_i8(const DecodeGroup* groups, std::int64_t count, std::int64_t first, std::int64_t last,
                   std::int64_t begin, std::int64_t end, void* scratch) {
  const std::int64_t rows = count * groups[0].group.sizes.G * (last - first);
  DecodeI8<Cached>(groups, first, last, rows, static_cast<char*>(scratch)).run(begin, end);
}

// DecodeKernels::run, of caches of 8 bits alone.
inline void decode_i8(const DecodeGroup* groups, std::int64_t count, std::int64_t first, std::int64_t last,
                      std::int64_t begin, std::int64_t end, void* scratch) {
#ifndef __wasm__  // which has no way to ask for memory: one form is enough for it, and a tenth of a page's engine less
  if (!groups[0].cached) return run_decode_i8<false>(groups, count, first, last, begin, end, scratch);
#endif
  run_decode_i8<true>(groups, count, first, last, begin, end, scratch);
}

}  // namespace
}  // namespace attend::inline v1::kernels
