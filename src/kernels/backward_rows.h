// The backward's query rows, beside the products: what every key needs to know of them, and dq as it is wanted.
#pragma once

#include "kernels/operand.h"

namespace attend::kernels {
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

  // lse in log2 units, in two f32: weights are 2^((logit - first) - second).
  void start_weights(std::int64_t head, std::int64_t i) {
    const float lse = load_scalar(DType::f32, operand_at(group.lse, head, i));
    const float low = group.lse_low.data ? load_scalar(DType::f32, operand_at(group.lse_low, head, i)) : 0;
    float* statistics = statistics_of(head, i);
    const double given = (static_cast<double>(lse) + static_cast<double>(low)) * log2_e;
    if (group.summed && fits(given, lse, statistics)) return;
    const auto high = static_cast<float>(given);
    statistics[0] = high, statistics[1] = high - high == 0 ? static_cast<float>(given - static_cast<double>(high)) : 0;
    // A row with nothing to attend to: its weights are 2^(score - FLT_MAX) = 0.
    if (lse == -infinity) statistics[0] = FLT_MAX;
  }

  // Whether the sum that this group's keys give is, as well as lse tells, the one that lse was computed from: then it
  // is exact where f32 is not. Else lse is of more keys than these, as merge() gives it.
  bool fits(double given, float lse, const float* sums) const {
    if (group.lse_low.data && __builtin_fabsf(lse) < coarse_lse) return false;  // exact as it is
    const double own = static_cast<double>(sums[0]) + static_cast<double>(sums[1]);
    const double step = group.lse_low.data ? 0x1p-40 : 0x1p-22;
    return __builtin_fabs(own - given) <= step * max_of(1.0, __builtin_fabs(given));
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
}  // namespace attend::kernels
