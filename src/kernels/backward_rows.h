// The backward's query rows, beside the products: what every key needs to know of them, and dq as it is wanted.
#pragma once

#include "kernels/operand.h"

namespace attend::kernels {
namespace {

// A row's lse and delta, and its sums of dq.
class BackwardRows : public BackwardItem {
 public:
  explicit BackwardRows(const BackwardGroup& of) : BackwardItem{of} {}

  // Before the first item that meets these rows: what every key needs to know of them, and dq = 0.
  void start_rows(std::int64_t head, std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      const float lse = load_scalar(DType::f32, operand_at(group.lse, head, i));
      const float dlse = group.dlse.data ? load_scalar(DType::f32, operand_at(group.dlse, head, i)) : 0;
      float* statistics = statistics_of(head, i);
      // A row with nothing to attend to: its weights are 2^(score - FLT_MAX) = 0.
      statistics[0] = lse == -infinity ? FLT_MAX : static_cast<float>(static_cast<double>(lse) / ln_2);
      statistics[1] = dot(head, i) - dlse;
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
    return group.statistics + (head * group.queries + i) * 2;
  }
  float* dq_row(std::int64_t head, std::int64_t i) const { return group.dq + head * group.dq_head + i * group.dq_row; }

  // dout . out of one row.
  float dot(std::int64_t head, std::int64_t i) {
    float *a = two_rows_, *c = two_rows_ + v_columns_;
    for (std::int64_t d = v_columns_ - lanes; d < v_columns_; ++d) a[d] = c[d] = 0;
    load_row(a, operand_at(group.dout, head, i), {group.dout.dtype, group.dout.column, g_.sizes.Dv});
    load_row(c, operand_at(group.out, head, i), {group.out.dtype, group.out.column, g_.sizes.Dv});
    F sum = Simd::zero();
    for (std::int64_t d = 0; d < v_columns_; d += lanes) sum = Simd::fma(Simd::load(a + d), Simd::load(c + d), sum);
    return sum_of_lanes(sum);
  }

  const Group& g_ = group.forward;
  const std::int64_t q_columns_ = round_up(g_.sizes.D, lanes), v_columns_ = round_up(g_.sizes.Dv, lanes);
  float* two_rows_ = nullptr;  // of v_columns_
};

}  // namespace
}  // namespace attend::kernels
