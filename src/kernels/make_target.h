// All the kernels of a target. A file that includes this has included a vector layer `Simd` before, and defined
// ATTEND_BF16_DOT where it has the bf16 dot.
#pragma once

#include "kernels/decode_kernels.h"
#include "kernels/fused_kernels.h"
#include "kernels/target_list.h"

namespace attend::kernels {
namespace {

#ifdef ATTEND_BF16_DOT
constexpr bool has_bf16_dot = true;
using ForwardBF16 = Forward<DotBF16>;
using DecodeBF16 = Decode<DotBF16, ReadPairs, ReadBF16>;
#else
constexpr bool has_bf16_dot = false;
using ForwardBF16 = Forward<DotF32>;
using DecodeBF16 = Decode<DotF32, ReadBF16, ReadBF16>;
#endif
using DecodeF32 = Decode<DotF32, ReadF32, ReadF32>;
using DecodeF16 = Decode<DotF32, ReadF16, ReadF16>;

void forward(const Group& group, std::int64_t first, std::int64_t last, void* scratch) {
  if (group.q.dtype == DType::bf16) return ForwardBF16(group, first, last, static_cast<char*>(scratch)).run();
  Forward<DotF32>(group, first, last, static_cast<char*>(scratch)).run();
}

std::size_t forward_bytes(const Group& group, std::int64_t rows) {
  return group.q.dtype == DType::bf16 ? ForwardBF16::scratch_bytes(group, rows)
                                      : Forward<DotF32>::scratch_bytes(group, rows);
}

void decode(const Group& group, std::int64_t first, std::int64_t last, std::int64_t begin, std::int64_t end,
            float* partial, void* scratch) {
  auto* bytes = static_cast<char*>(scratch);
  switch (group.q.dtype) {
    case DType::bf16:
      return DecodeBF16(group, first, last, bytes).run(begin, end, partial);
    case DType::f16:
      return DecodeF16(group, first, last, bytes).run(begin, end, partial);
    default:
      return DecodeF32(group, first, last, bytes).run(begin, end, partial);
  }
}

std::size_t decode_bytes(const Group& group, std::int64_t rows) {
  return group.q.dtype == DType::bf16 ? DecodeBF16::scratch_bytes(group, rows) : DecodeF32::scratch_bytes(group, rows);
}

constexpr Target make_target(const char* name, bool (*supported)()) {
  return {name, lanes, block, width, has_bf16_dot, supported, forward, forward_bytes, decode, decode_bytes};
}

}  // namespace
}  // namespace attend::kernels
