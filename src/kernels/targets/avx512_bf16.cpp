// AVX-512 with the dot products of bf16, and so of whole numbers. All but those of bf16 is avx512_vnni's: it is
// compiled once.
#include "kernels/simd/avx512.h"
#include "kernels/simd/transpose_sse.h"

#include "kernels/dot_bf16.h"
#include "kernels/targets/make_target.h"
#include "kernels/x86_features.h"

namespace attend::inline v1::kernels {

namespace {

bool supported() {
  return x86_features().avx512_bf16;
}

constexpr Target own = make_float_target<DotBF16>("avx512_bf16", supported);

const Target& of(DType dtype) {
  return dtype == DType::bf16 ? own : target_avx512;
}

const Target& of(const BackwardItem& item) {
  return of(item.group.forward.sizes.dtype);
}

const Target& of(const SummaryGroup& group) {
  return of(group.forward.sizes.dtype);
}

constexpr Target by_dtype() noexcept {
  Target target = own;
  target.forward = {.run = [](const ForwardItem& item, const ForwardItem* next,
                              void* scratch) { of(item.group.sizes.dtype).forward.run(item, next, scratch); },
                    .bytes = [](const Sizes& sizes, const Features& features,
                                std::int64_t rows) { return of(sizes.dtype).forward.bytes(sizes, features, rows); }};
  target.decode.run = [](const DecodeGroup* groups, std::int64_t count, std::int64_t first, std::int64_t last,
                         std::int64_t begin, std::int64_t end, void* scratch) {
    const Sizes& sizes = groups[0].group.sizes;
    const auto run = sizes.quantized ? integers_avx512_vnni.decode_i8 : of(sizes.dtype).decode.run;
    run(groups, count, first, last, begin, end, scratch);
  };
  target.decode.bytes = [](const Sizes& sizes, const Features& features, std::int64_t rows) {
    return of(sizes.dtype).decode.bytes(sizes, features, rows);
  };
  target.backward.begin = [](const BackwardGroup& group, void* scratch) -> BackwardItem& {
    return of(group.forward.sizes.dtype).backward.begin(group, scratch);
  };
  target.backward.start_rows = [](BackwardItem& item, std::int64_t head, std::int64_t first, std::int64_t last) {
    of(item).backward.start_rows(item, head, first, last);
  };
  target.backward.rows = [](BackwardItem& item, std::int64_t head, std::int64_t first, std::int64_t last) {
    of(item).backward.rows(item, head, first, last);
  };
  target.backward.finish_rows = [](BackwardItem& item, std::int64_t head, std::int64_t first, std::int64_t last) {
    of(item).backward.finish_rows(item, head, first, last);
  };
  target.backward.end = [](BackwardItem& item) { of(item).backward.end(item); };
  target.backward.bytes = [](const Sizes& sizes, const Features& features) {
    return of(sizes.dtype).backward.bytes(sizes, features);
  };
  target.summary.begin = [](const SummaryGroup& group, void* scratch) -> SummaryItem& {
    return of(group).summary.begin(group, scratch);
  };
  target.summary.rows = [](SummaryItem& item, std::int64_t first, std::int64_t last) {
    of(item.group).summary.rows(item, first, last);
  };
  target.summary.count = [](const SummaryGroup& group, std::int64_t first, std::int64_t last, std::int64_t* counts,
                            void* scratch) { of(group).summary.count(group, first, last, counts, scratch); };
  target.summary.bytes = [](const Sizes& sizes, const Features& features, std::int64_t top) {
    return of(sizes.dtype).summary.bytes(sizes, features, top);
  };
  target.summary.exponentiate = [](DType dtype, float lse, float lse_low, float* row, std::int64_t count) {
    of(dtype).summary.exponentiate(dtype, lse, lse_low, row, count);
  };
  target.linear = {
      .floats = [](DType dtype, std::int64_t out, std::int64_t in) { return of(dtype).linear.floats(dtype, out, in); },
      .pack = [](DType dtype, const float* weight, std::int64_t out, std::int64_t in,
                 float* packed) { of(dtype).linear.pack(dtype, weight, out, in, packed); },
      .pack_rows =
          [](DType dtype, const void* weight, DType weight_dtype, std::int64_t in, std::int64_t first,
             std::int64_t last,
             float* packed) { of(dtype).linear.pack_rows(dtype, weight, weight_dtype, in, first, last, packed); },
      .run = [](const LinearOperands& a, std::int64_t first, std::int64_t last,
                std::int64_t panel) { of(a.dtype).linear.run(a, first, last, panel); },
      .stream = [](const LinearOperands& a, std::int64_t rows, std::int64_t begin,
                   std::int64_t end) { of(a.dtype).linear.stream(a, rows, begin, end); },
      .blocks = blocks_by<integers_avx512_vnni>,
      .widen = [](const BlockMatrix& weight, std::int64_t first, std::int64_t last, float* to,
                  std::int64_t stride) { target_avx512.linear.widen(weight, first, last, to, stride); }};
  return target;
}

}  // namespace

constinit const Target target_avx512_bf16 = by_dtype();

}  // namespace attend::inline v1::kernels
