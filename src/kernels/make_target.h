// All the kernels of a target. A file that includes this has included a vector layer `Simd` before, and defined
// ATTEND_BF16_DOT where it has the bf16 dot.
#pragma once

#include "kernels/backward_kernels.h"
#include "kernels/combine_kernels.h"
#include "kernels/decode_kernels.h"
#include "kernels/fused_kernels.h"
#include "kernels/linear_kernels.h"
#include "kernels/target_list.h"

namespace attend::kernels {
namespace {

#ifdef ATTEND_BF16_DOT
constexpr bool has_bf16_dot = true;
using ForwardBF16 = Forward<DotBF16>;
using BackwardBF16 = Backward<DotBF16>;
using DecodeBF16 = Decode<DotBF16, ReadPairs, ReadBF16>;
#else
constexpr bool has_bf16_dot = false;
using ForwardBF16 = Forward<DotF32>;
using BackwardBF16 = Backward<DotF32>;
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

// body(the backward of the group's dtype).
template <class Body>
auto with_backward(const BackwardGroup& group, void* scratch, Body body) {
  auto* bytes = static_cast<char*>(scratch);
  if (group.forward.q.dtype == DType::bf16) return body(BackwardBF16(group, bytes));
  return body(Backward<DotF32>(group, bytes));
}

void backward_begin(const BackwardGroup& group, void* scratch) {
  with_backward(group, scratch, [](auto backward) { backward.begin(); });
}

void backward_start_rows(const BackwardGroup& group, std::int64_t head, std::int64_t first, std::int64_t last,
                         void* scratch) {
  with_backward(group, scratch, [&](auto backward) { backward.start_rows(head, first, last); });
}

void backward_rows_(const BackwardGroup& group, std::int64_t head, std::int64_t first, std::int64_t last,
                    void* scratch) {
  with_backward(group, scratch, [&](auto backward) { backward.rows(head, first, last); });
}

void backward_finish_rows(const BackwardGroup& group, std::int64_t head, std::int64_t first, std::int64_t last,
                          void* scratch) {
  with_backward(group, scratch, [&](auto backward) { backward.finish_rows(head, first, last); });
}

void backward_end(const BackwardGroup& group, void* scratch) {
  with_backward(group, scratch, [](auto backward) { backward.end(); });
}

std::size_t backward_bytes(const BackwardGroup& group) {
  return group.forward.q.dtype == DType::bf16 ? BackwardBF16::scratch_bytes(group)
                                              : Backward<DotF32>::scratch_bytes(group);
}

// Keys, values and their sums in 512 KiB: they stay in the L2 cache, with room beside them for the rows that pass.
std::int64_t backward_keys(std::int64_t D, std::int64_t Dv) {
  const std::int64_t floats = 512 * 1024 / 4 / (3 * D + 2 * Dv);
  return min_of<std::int64_t>(8, max_of<std::int64_t>(1, floats / pair_keys)) * pair_keys;
}

#ifdef ATTEND_BF16_DOT
using LinearBF16 = DotBF16;
#else
using LinearBF16 = DotF32;  // never asked for: the layer widens bf16 where there is no bf16 dot
#endif

std::int64_t linear_floats(DType dtype, std::int64_t out, std::int64_t in) {
  const std::int64_t panels = (out + width - 1) / width;
  return panels * (dtype == DType::bf16 ? linear_panel<LinearBF16>(in) : linear_panel<DotF32>(in));
}

void linear_pack(DType dtype, const float* weight, std::int64_t out, std::int64_t in, float* packed) {
  if (dtype == DType::bf16) return pack_linear<LinearBF16>(weight, out, in, packed);
  pack_linear<DotF32>(weight, out, in, packed);
}

void linear(const LinearOperands& a, std::int64_t first, std::int64_t last, std::int64_t panel) {
  if (a.dtype == DType::bf16) return LinearPanel<LinearBF16>(a, first, last, panel).run();
  LinearPanel<DotF32>(a, first, last, panel).run();
}

constexpr Target make_target(const char* name, bool (*supported)()) {
  return {name,
          lanes,
          block,
          width,
          has_bf16_dot,
          supported,
          forward,
          forward_bytes,
          decode,
          decode_bytes,
          combine,
          backward_begin,
          backward_start_rows,
          backward_finish_rows,
          backward_rows_,
          backward_end,
          backward_bytes,
          backward_keys,
          linear_floats,
          linear_pack,
          linear};
}

}  // namespace
}  // namespace attend::kernels
