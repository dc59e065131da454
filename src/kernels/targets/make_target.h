// All the kernels of a target, by products of one kind. A file that includes this has included a vector layer `Simd`
// before.
#pragma once

#include "kernels/backward.h"
#include "kernels/combine.h"
#include "kernels/forward.h"
#include "kernels/row_gradients.h"
#include "kernels/rows.h"
#include "kernels/summary.h"
#include "kernels/targets/integers.h"
#include "kernels/targets/list.h"
#include "kernels/targets/vnni.h"

namespace attend::inline v1::kernels {
namespace {

template <class Dot>
void run_forward(const ForwardItem& item, const ForwardItem* next, void* scratch) {
  Forward<Dot>(item.group, item.to, item.first, item.last, static_cast<char*>(scratch)).run(next);
}

template <class Dot, bool Cached>
void run_decode(const DecodeGroup* groups, std::int64_t count, std::int64_t first, std::int64_t last,
                std::int64_t begin, std::int64_t end, void* scratch) {
  auto* bytes = static_cast<char*>(scratch);
  const Sizes& sizes = groups[0].group.sizes;
  const std::int64_t rows = count * sizes.G * (last - first);
  const auto run = [&](auto&& decode) { decode.run(begin, end); };
  if constexpr (Dot::pair == 2) {
    run(Decode<Dot, PairsBF16, ReadBF16, Cached>(groups, first, last, rows, bytes));
  } else if (sizes.dtype == DType::bf16) {  // widened
    run(Decode<Dot, ReadBF16, ReadBF16, Cached>(groups, first, last, rows, bytes));
  } else if (sizes.dtype == DType::f16) {
    run(Decode<Dot, ReadF16, ReadF16, Cached>(groups, first, last, rows, bytes));
  } else {
    run(Decode<Dot, ReadF32, ReadF32, Cached>(groups, first, last, rows, bytes));
  }
}

// But for caches of 8 bits.
template <class Dot>
void run_decode(const DecodeGroup* groups, std::int64_t count, std::int64_t first, std::int64_t last,
                std::int64_t begin, std::int64_t end, void* scratch) {
#ifndef __wasm__  // as in decode_i8()
  if (!groups[0].cached) return run_decode<Dot, false>(groups, count, first, last, begin, end, scratch);
#endif
  run_decode<Dot, true>(groups, count, first, last, begin, end, scratch);
}

template <class Dot>
void run_any_decode(const DecodeGroup* groups, std::int64_t count, std::int64_t first, std::int64_t last,
                    std::int64_t begin, std::int64_t end, void* scratch) {
  const auto run = groups[0].group.sizes.quantized ? decode_i8 : run_decode<Dot>;
  run(groups, count, first, last, begin, end, scratch);
}

template <class Dot>
std::size_t decode_bytes(const Sizes& sizes, const Features& features, std::int64_t rows) {
  if (sizes.quantized) return DecodeI8<true>::scratch_bytes(sizes, features, rows);
  return Decode<Dot, ReadF32, ReadF32, true>::scratch_bytes(sizes, features, rows);
}

template <class Dot>
BackwardItem& begin_backward(const BackwardGroup& group, void* scratch) {
  auto& backward = Backward<Dot>::make(group, scratch);
  backward.begin();
  return backward;
}

void start_backward_rows(BackwardItem& item, std::int64_t head, std::int64_t first, std::int64_t last) {
  static_cast<BackwardRows&>(item).start_rows(head, first, last);
}

template <class Dot>
void run_backward_rows(BackwardItem& item, std::int64_t head, std::int64_t first, std::int64_t last) {
  static_cast<Backward<Dot>&>(item).rows(head, first, last);
}

void finish_backward_rows(BackwardItem& item, std::int64_t head, std::int64_t first, std::int64_t last) {
  static_cast<BackwardRows&>(item).finish_rows(head, first, last);
}

template <class Dot>
void end_backward(BackwardItem& item) {
  static_cast<Backward<Dot>&>(item).end();
}

template <class Dot>
SummaryItem& begin_summary(const SummaryGroup& group, void* scratch) {
  auto& summary = Summary<Dot>::make(group, scratch);
  summary.begin();
  return summary;
}

template <class Dot>
void run_summary_rows(SummaryItem& item, std::int64_t first, std::int64_t last) {
  static_cast<Summary<Dot>&>(item).rows(first, last);
}

template <class Dot>
void count_summary(const SummaryGroup& group, std::int64_t first, std::int64_t last, std::int64_t* counts,
                   void* scratch) {
  Summary<Dot>::make(group, scratch).count(first, last, counts);
}

template <class Dot>
void exponentiate_summary(DType, float lse, float lse_low, float* row, std::int64_t count) {
  exponentiate_row<Dot>(lse, lse_low, row, count);
}

template <class Dot>
std::int64_t linear_floats(DType, std::int64_t out, std::int64_t in) {
  return (out + width - 1) / width * linear_panel<Dot>(in);
}

template <class Dot>
void linear_pack(DType, const float* weight, std::int64_t out, std::int64_t in, float* packed) {
  pack_linear<Dot>(weight, out, in, packed);
}

// Whether weights are of bf16 where the products are of f32.
template <class Dot>
bool widens(DType weight_dtype) {
  return Dot::pair == 1 && weight_dtype == DType::bf16;
}

template <class Dot>
void linear_pack_rows(DType, const void* weight, DType weight_dtype, std::int64_t in, std::int64_t first,
                      std::int64_t last, float* packed) {
  const auto pack = widens<Dot>(weight_dtype) ? pack_linear_rows<Dot, WidenedWords> : pack_linear_rows<Dot, PlainWords>;
  pack(weight, in, first, last, packed);
}

template <class Dot>
void run_linear(const LinearOperands& a, std::int64_t first, std::int64_t last, std::int64_t panel) {
  LinearPanel<Dot>(a, first, last, panel).run();
}

template <class Dot>
void stream_linear(const LinearOperands& a, std::int64_t rows, std::int64_t begin, std::int64_t end) {
  if (widens<Dot>(a.weight_dtype)) return LinearStream<Dot, WidenedWords>(a, rows).run(begin, end);
  LinearStream<Dot, PlainWords>(a, rows).run(begin, end);
}

// Without what is multiplied as whole numbers. DotF32: of f32, and of f16 and bf16, which are widened. DotBF16: of bf16
// alone.
template <class Dot>
constexpr Target make_float_target(const char* name, bool (*supported)()) noexcept {
  return {
      .name = name,
      .lanes = lanes,
      .tile_height = height,
      .panel_rows = width,
      .bf16_dot = Dot::pair == 2,
      .supported = supported,
      .forward = {.run = run_forward<Dot>, .bytes = Forward<Dot>::scratch_bytes},
      .decode = {.run = run_decode<Dot>, .combine = combine, .bytes = decode_bytes<Dot>},
      .backward = {.begin = begin_backward<Dot>,
                   .start_rows = start_backward_rows,
                   .rows = run_backward_rows<Dot>,
                   .finish_rows = finish_backward_rows,
                   .end = end_backward<Dot>,
                   .bytes = Backward<Dot>::scratch_bytes,
                   .keys = backward_keys},
      .summary = {.begin = begin_summary<Dot>,
                  .rows = run_summary_rows<Dot>,
                  .count = count_summary<Dot>,
                  .bytes = Summary<Dot>::scratch_bytes,
                  .keys = summary_keys,
                  .exponentiate = exponentiate_summary<Dot>},
      .linear = {.floats = linear_floats<Dot>,
                 .pack = linear_pack<Dot>,
                 .pack_rows = linear_pack_rows<Dot>,
                 .run = run_linear<Dot>,
                 .stream = stream_linear<Dot>,
                 .blocks = nullptr,
                 .widen = nullptr},
      .rows = {.convert = convert_row,
               .add = add_row,
               .normalize = normalize_rows,
               .activate = activate_rows,
               .normalize_gradient = normalize_gradient_rows,
               .activate_gradient = activate_gradient_rows,
               .rotate = rotate_rows,
               .multiply = multiply_rows,
               .dot = dot_rows},
  };
}

constexpr Target make_target(const char* name, bool (*supported)()) noexcept {
  Target target = make_float_target<DotF32>(name, supported);
  target.decode.run = run_any_decode<DotF32>;
  target.linear.blocks = blocks_of, target.linear.widen = widen_blocks;
  return target;
}

// The same for processors that have others for whole numbers: these are compiled for them alone.
template <const IntegerKernels& integers>
BlockKernels blocks_by(QuantizedType type, Activations activations) {
  return integers.blocks(type, activations);
}

template <const IntegerKernels& integers>
constexpr Target make_vnni_target(const char* name, bool (*supported)()) noexcept {
  Target target = make_target(name, supported);
  target.decode.run = [](const DecodeGroup* groups, std::int64_t count, std::int64_t first, std::int64_t last,
                         std::int64_t begin, std::int64_t end, void* scratch) {
    const auto run = groups[0].group.sizes.quantized ? integers.decode_i8 : run_decode<DotF32>;
    run(groups, count, first, last, begin, end, scratch);
  };
  target.linear.blocks = blocks_by<integers>;
  return target;
}

}  // namespace
}  // namespace attend::inline v1::kernels
