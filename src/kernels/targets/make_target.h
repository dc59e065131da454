// All the kernels of a target. A file that includes this has included a vector layer `Simd` before, and dot_bf16.h
// where the layer has the bf16 dot.
#pragma once

#include <type_traits>

#include "kernels/backward.h"
#include "kernels/combine.h"
#include "kernels/decode.h"
#include "kernels/forward.h"
#include "kernels/linear.h"
#include "kernels/rows.h"
#include "kernels/summary.h"
#include "kernels/targets/list.h"

namespace attend::kernels {
namespace {

template <class Dot>
constexpr bool is_defined = requires {
  sizeof(Dot);
};
constexpr bool has_bf16_dot = is_defined<DotBF16>;
// Without it, bf16 is widened.
using DotOfBF16 = std::conditional_t<has_bf16_dot, DotBF16, DotF32>;
using ForwardBF16 = Forward<DotOfBF16>;
using BackwardBF16 = Backward<DotOfBF16>;
using SummaryBF16 = Summary<DotOfBF16>;
template <bool Cached>
using DecodeBF16 = Decode<DotOfBF16, std::conditional_t<has_bf16_dot, PairsBF16, ReadBF16>, ReadBF16, Cached>;
template <bool Cached>
using DecodeF32 = Decode<DotF32, ReadF32, ReadF32, Cached>;
template <bool Cached>
using DecodeF16 = Decode<DotF32, ReadF16, ReadF16, Cached>;
template <bool Cached>
using DecodeI8 = Decode<DotI16, PairsI8, ReadI8, Cached>;

template <class Kernel>
void run_forward(const ForwardItem& item, const ForwardItem* next, void* scratch) {
  Kernel(item.group, item.to, item.first, item.last, static_cast<char*>(scratch)).run(next);
}

void run_forward(const ForwardItem& item, const ForwardItem* next, void* scratch) {
  if (item.group.sizes.dtype == DType::bf16) return run_forward<ForwardBF16>(item, next, scratch);
  run_forward<Forward<DotF32>>(item, next, scratch);
}

std::size_t forward_bytes(const Sizes& sizes, const Features& features, std::int64_t rows) {
  return sizes.dtype == DType::bf16 ? ForwardBF16::scratch_bytes(sizes, features, rows)
                                    : Forward<DotF32>::scratch_bytes(sizes, features, rows);
}

template <bool Cached>
void run_decode(const DecodeGroup* groups, std::int64_t count, std::int64_t first, std::int64_t last,
                std::int64_t begin, std::int64_t end, void* scratch) {
  auto* bytes = static_cast<char*>(scratch);
  const std::int64_t rows = count * groups[0].group.sizes.G * (last - first);
  if (groups[0].group.sizes.quantized) return DecodeI8<Cached>(groups, first, last, rows, bytes).run(begin, end);
  switch (groups[0].group.sizes.dtype) {
    case DType::bf16:
      return DecodeBF16<Cached>(groups, first, last, rows, bytes).run(begin, end);
    case DType::f16:
      return DecodeF16<Cached>(groups, first, last, rows, bytes).run(begin, end);
    case DType::f32:
      return DecodeF32<Cached>(groups, first, last, rows, bytes).run(begin, end);
    case DType::f64:
    case DType::i64:
    case DType::i8:
    case DType::u8:
    case DType::boolean:
      break;  // the plain path's, and none of attention's
  }
  __builtin_trap();
}

void run_decode(const DecodeGroup* groups, std::int64_t count, std::int64_t first, std::int64_t last,
                std::int64_t begin, std::int64_t end, void* scratch) {
#ifndef __wasm__  // which has no way to ask for memory: one form is enough for it, and a tenth of a page's engine less
  if (!groups[0].cached) return run_decode<false>(groups, count, first, last, begin, end, scratch);
#endif
  run_decode<true>(groups, count, first, last, begin, end, scratch);
}

std::size_t decode_bytes(const Sizes& sizes, const Features& features, std::int64_t rows) {
  if (sizes.quantized) return DecodeI8<true>::scratch_bytes(sizes, features, rows);
  return sizes.dtype == DType::bf16 ? DecodeBF16<true>::scratch_bytes(sizes, features, rows)
                                    : DecodeF32<true>::scratch_bytes(sizes, features, rows);
}

BackwardItem& begin_backward(const BackwardGroup& group, void* scratch) {
  const auto begin = [](auto& backward) -> BackwardItem& {
    backward.begin();
    return backward;
  };
  if (group.forward.sizes.dtype == DType::bf16) return begin(BackwardBF16::make(group, scratch));
  return begin(Backward<DotF32>::make(group, scratch));
}

// body(the item as what it is).
template <class Body>
void with_backward(BackwardItem& item, Body body) {
  if (item.group.forward.sizes.dtype == DType::bf16) return body(static_cast<BackwardBF16&>(item));
  body(static_cast<Backward<DotF32>&>(item));
}

void start_backward_rows(BackwardItem& item, std::int64_t head, std::int64_t first, std::int64_t last) {
  static_cast<BackwardRows&>(item).start_rows(head, first, last);
}

void run_backward_rows(BackwardItem& item, std::int64_t head, std::int64_t first, std::int64_t last) {
  with_backward(item, [&](auto& backward) { backward.rows(head, first, last); });
}

void finish_backward_rows(BackwardItem& item, std::int64_t head, std::int64_t first, std::int64_t last) {
  static_cast<BackwardRows&>(item).finish_rows(head, first, last);
}

void end_backward(BackwardItem& item) {
  with_backward(item, [](auto& backward) { backward.end(); });
}

std::size_t backward_bytes(const Sizes& sizes, const Features& features) {
  return sizes.dtype == DType::bf16 ? BackwardBF16::scratch_bytes(sizes, features)
                                    : Backward<DotF32>::scratch_bytes(sizes, features);
}

SummaryItem& begin_summary(const SummaryGroup& group, void* scratch) {
  const auto begin = [](auto& summary) -> SummaryItem& {
    summary.begin();
    return summary;
  };
  if (group.forward.sizes.dtype == DType::bf16) return begin(SummaryBF16::make(group, scratch));
  return begin(Summary<DotF32>::make(group, scratch));
}

void run_summary_rows(SummaryItem& item, std::int64_t first, std::int64_t last) {
  if (item.group.forward.sizes.dtype == DType::bf16) return static_cast<SummaryBF16&>(item).rows(first, last);
  static_cast<Summary<DotF32>&>(item).rows(first, last);
}

// What is visible does not depend on the products.
void count_summary(const SummaryGroup& group, std::int64_t first, std::int64_t last, std::int64_t* counts,
                   void* scratch) {
  Summary<DotF32>::make(group, scratch).count(first, last, counts);
}

std::size_t summary_bytes(const Sizes& sizes, const Features& features, std::int64_t top) {
  const std::size_t bytes = Summary<DotF32>::scratch_bytes(sizes, features, top);
  return sizes.dtype == DType::bf16 ? max_of(bytes, SummaryBF16::scratch_bytes(sizes, features, top)) : bytes;
}

std::int64_t linear_floats(DType dtype, std::int64_t out, std::int64_t in) {
  const std::int64_t panels = (out + width - 1) / width;
  return panels * (dtype == DType::bf16 ? linear_panel<DotOfBF16>(in) : linear_panel<DotF32>(in));
}

void linear_pack(DType dtype, const float* weight, std::int64_t out, std::int64_t in, float* packed) {
  if (dtype == DType::bf16) return pack_linear<DotOfBF16>(weight, out, in, packed);
  pack_linear<DotF32>(weight, out, in, packed);
}

void linear_pack_rows(DType dtype, const void* weight, std::int64_t in, std::int64_t first, std::int64_t last,
                      float* packed) {
  if (dtype == DType::bf16) return pack_linear_rows<DotOfBF16>(weight, in, first, last, packed);
  pack_linear_rows<DotF32>(weight, in, first, last, packed);
}

void run_linear(const LinearOperands& a, std::int64_t first, std::int64_t last, std::int64_t panel) {
  if (a.dtype == DType::bf16) return LinearPanel<DotOfBF16>(a, first, last, panel).run();
  LinearPanel<DotF32>(a, first, last, panel).run();
}

void stream_linear(const LinearOperands& a, std::int64_t rows, std::int64_t begin, std::int64_t end) {
  if (a.dtype == DType::bf16) return LinearStream<DotOfBF16>(a, rows).run(begin, end);
  LinearStream<DotF32>(a, rows).run(begin, end);
}

constexpr Target make_target(const char* name, bool (*supported)()) noexcept {
  return {
      .name = name,
      .lanes = lanes,
      .tile_height = height,
      .panel_rows = width,
      .bf16_dot = has_bf16_dot,
      .supported = supported,
      .forward = {.run = run_forward, .bytes = forward_bytes},
      .decode = {.run = run_decode, .combine = combine, .bytes = decode_bytes},
      .backward = {.begin = begin_backward,
                   .start_rows = start_backward_rows,
                   .rows = run_backward_rows,
                   .finish_rows = finish_backward_rows,
                   .end = end_backward,
                   .bytes = backward_bytes,
                   .keys = backward_keys},
      .summary = {.begin = begin_summary,
                  .rows = run_summary_rows,
                  .count = count_summary,
                  .bytes = summary_bytes,
                  .keys = summary_keys},
      .linear = {.floats = linear_floats,
                 .pack = linear_pack,
                 .pack_rows = linear_pack_rows,
                 .run = run_linear,
                 .stream = stream_linear},
      .rows = {.convert = convert_row,
               .add = add_row,
               .normalize = normalize_rows,
               .activate = activate_rows,
               .rotate = rotate_rows},
  };
}

}  // namespace
}  // namespace attend::kernels
