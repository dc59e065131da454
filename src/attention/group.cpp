#include "attention/operands.h"
#include "attention/problem.h"

namespace attend::inline v1 {

namespace {

kernels::Rows rows_at(const View& x, const Sequence& s, std::int64_t h) {
  const kernels::Operand at = operand_at(x, s.b, h, s.key_start);
  return {.data = at.data, .dtype = at.dtype, .row = at.row, .column = at.column};
}

// In blocks: x has their strides.
kernels::Rows rows_in(const void* const* blocks, const float* const* scales, std::int64_t block_rows, const View& x,
                      const Sequence& s, std::int64_t h) {
  const std::int64_t offset = s.b * x.strides()[0] + h * x.strides()[1], row = x.strides()[2];
  return {.blocks = blocks,
          .block_rows = block_rows,
          .offset = offset,
          .dtype = x.dtype(),
          .row = row,
          .column = 1,
          .scales = scales,
          .first = offset / row};
}

}  // namespace

kernels::Rules Problem::rules(const Sequence& s, std::int64_t h) const {
  kernels::Rules rules = common;
  rules.offset = s.offset, rules.key_length = s.key_length;
  rules.dropout.b = s.b, rules.dropout.h = h, rules.dropout.query = s.query_place, rules.dropout.key = s.key_place;
  return rules;
}

kernels::Sizes Problem::sizes() const {
  return {G(), D, Dv, q.dtype(), k.dtype() == DType::i8};
}

kernels::Features Problem::features() const {
  return {.mask = mask.has_value(),
          .bias = bias.has_value(),
          .distance_bias = distance_bias.has_value(),
          .alibi_slopes = !alibi_slopes.empty(),
          .curve = kernels::has_curve(common),
          .dropout = common.dropout.p > 0};
}

kernels::Head Problem::head(const Sequence& s, std::int64_t h) const {
  kernels::Head head;
  head.Tk = s.Tk, head.D = D, head.Dv = Dv;
  const std::int64_t kv_head = h / G();
  head.q = matrix_at(q, s.b, h, s.query_start);
  head.k = matrix_at(k, s.b, kv_head, s.key_start);
  if (key_panels && s.key_start % kernels::keys_together == 0) {
    head.key_panels = key_panels + ((s.b * Hkv + kv_head) * (Tk - Tk % kernels::keys_together) + s.key_start) * D;
  }
  head.v = matrix_at(v, s.b, kv_head, s.key_start);
  if (mask) head.mask = matrix_at(*mask, s.b, h, s.query_start, s.key_start);
  if (bias) head.bias = matrix_at(*bias, s.b, h, s.query_start, s.key_start);
  if (distance_bias) head.distance_bias = matrix_at(*distance_bias, s.b, h, 0), head.reach = reach();
  head.rules = rules(s, h);
  if (!alibi_slopes.empty()) head.alibi_slope = alibi_slopes[static_cast<std::size_t>(h)];
  if (!sinks.empty()) head.sink = sinks[static_cast<std::size_t>(h)];
  return head;
}

kernels::Group Problem::group(const Sequence& s, std::int64_t h) const {
  kernels::Group group{.sizes = sizes(), .features = features()};
  const std::int64_t first = h * group.sizes.G;
  group.rules = rules(s, first);
  group.q = operand_at(q, s.b, first, s.query_start);
  const KeyBlocks cached = blocks_of(s);
  group.k = cached.k ? rows_in(cached.k, cached.k_scales, cached.rows, k, s, h) : rows_at(k, s, h);
  group.v = cached.v ? rows_in(cached.v, cached.v_scales, cached.rows, v, s, h) : rows_at(v, s, h);
  if (mask) group.mask = operand_at(*mask, s.b, first, s.query_start, s.key_start);
  if (bias) group.bias = operand_at(*bias, s.b, first, s.query_start, s.key_start);
  if (distance_bias) group.distance_bias = operand_at(*distance_bias, s.b, first, 0), group.reach = reach();
  if (!alibi_slopes.empty()) group.alibi_slopes = alibi_slopes.data() + first;
  if (!sinks.empty()) group.sinks = sinks.data() + first;
  return group;
}

kernels::Results Problem::results(const Sequence& s, std::int64_t h, const ResultViews& to) const {
  const std::int64_t first = h * G();
  kernels::Results results{
      operand_at(to.out, s.b, first, s.query_start), operand_at(to.lse, s.b, first, s.query_start), {}, to.log2};
  if (to.lse_low) results.lse_low = operand_at(*to.lse_low, s.b, first, s.query_start);
  if (to.sums) results.sums = operand_at(*to.sums, s.b, first, s.query_start);
  return results;
}

}  // namespace attend::inline v1
