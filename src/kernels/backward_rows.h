// The backward's query rows, beside the products: what every key needs to know of them, and dq as it is wanted.
#pragma once

#include "kernels/lse.h"
#include "kernels/operand.h"

namespace attend::inline v1::kernels {
namespace {

// A row's lse, lse_low and delta, and its sums of dq.
class BackwardRows : public BackwardItem {
 public:
  explicit BackwardRows(const BackwardGroup& of) : BackwardItem{of} {}

  // Before the first item that meets these rows: what every key needs to know of them, and dq = 0.
  void start_rows(std::int64_t head, std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      start_weights(head, i);
      const float dlse = group.dlse.data ? load_scalar(DType::f32, operand_at(group.dlse, head, i)) : 0;
      statistics_of(head, i)[2] = dot(head, i) - dlse;
      float* dq = dq_row(head, i);
      for (std::int64_t d = 0; d < q_columns_; ++d) dq[d] = 0;
    }
  }

  // After the last item.
  void finish_rows(std::int64_t head, std::int64_t first, std::int64_t last) {
    const MutableOperand& to = group.dq_out;
    for (std::int64_t i = first; i < last; ++i) {
      store_row(dq_row(head, i), operand_at(to, head, i), {to.dtype, to.column, g_.sizes.D});
    }
  }

 protected:
  float* statistics_of(std::int64_t head, std::int64_t i) const {
    return group.statistics + (head * group.queries + i) * 3;
  }
  float* dq_row(std::int64_t head, std::int64_t i) const { return group.dq + head * group.dq_head + i * group.dq_row; }

  // lse in log2 units, as binary_lse() says.
  void start_weights(std::int64_t head, std::int64_t i) {
    float* statistics = statistics_of(head, i);
    const bool has_low = group.lse_low.data != nullptr;
    const float lse = load_scalar(DType::f32, operand_at(group.lse, head, i));
    const float low = has_low ? load_scalar(DType::f32, operand_at(group.lse_low, head, i)) : 0;
    const BinaryLse own{statistics[0], statistics[1]};
    const BinaryLse taken =
        binary_lse(lse, has_low ? &low : nullptr, group.summed ? &own : nullptr, has_low ? coarse_lse : 0);
    statistics[0] = taken.high, statistics[1] = taken.low;
  }

  // dout . out of one row.
  float dot(std::int64_t head, std::int64_t i) {
    float *a = two_rows_, *c = two_rows_ + v_columns_;
    for (std::int64_t d = v_columns_ - lanes; d < v_columns_; ++d) a[d] = c[d] = 0;
    load_row(a, operand_at(group.dout, head, i), {group.dout.dtype, group.dout.column, g_.sizes.Dv});
    load_row(c, operand_at(group.out, head, i), {group.out.dtype, group.out.column, g_.sizes.Dv});
    F sum = Simd::zero();
    for (std::int64_t d = 0; d < v_columns_; d += lanes) {
      // Where out is 0, dout counts nothing, NaN or not: the row may see no key, and have a sink.
      const F out = Simd::load(c + d);
      const F dout = Simd::select(Simd::equal(out, Simd::zero()), Simd::zero(), Simd::load(a + d));
      sum = Simd::fma(dout, out, sum);
    }
    return sum_of_lanes(sum);
  }

  const Group& g_ = group.forward;
  const std::int64_t q_columns_ = round_up(g_.sizes.D, lanes), v_columns_ = round_up(g_.sizes.Dv, lanes);
  float* two_rows_ = nullptr;  // of v_columns_
};

}  // namespace
}  // namespace attend::inline v1::kernels
