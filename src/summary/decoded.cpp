#include <algorithm>
#include <limits>

#include "attention/operands.h"
#include "attention/row_sums.h"
#include "core/parallel.h"
#include "summary/summary.h"

namespace attend::inline v1 {

namespace {

// Rows of weights in place of their logits, [B,H,Tq,Tk], by the lse of each.
void exponentiate(const SummaryProblem& x, const Tensor& statistics, const MutableView& rows) {
  const Problem& p = x.forward;
  constexpr std::int64_t numbers_at_once = 1 << 14;
  const kernels::SummaryKernels& kernels = kernels::target().summary;
  parallel_for(p.B * p.H * p.Tq, 1 + numbers_at_once / (p.Tk + 1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const float* lse = statistics.data<float>() + 2 * row;
      kernels.exponentiate(p.q.dtype(), lse[0], lse[1], rows.data<float>() + row * p.Tk, p.Tk);
    }
  });
}

}  // namespace

void weigh_decoded(SummaryProblem& x) {
  const Problem& p = x.forward;
  const Dims all{p.B, p.H, p.Tq, p.Tk};
  const bool whole = x.to.weights.shape() == all;
  Tensor made = whole ? Tensor() : Tensor::uninitialized(all);
  const MutableView logits = whole ? x.to.weights : made.view();
  std::fill_n(logits.data<float>(), logits.count(), -std::numeric_limits<float>::infinity());
  Tensor statistics = Tensor::uninitialized({p.B, p.H, p.Tq, 2});
  sum_rows(p, statistics.view(), logits);
  const bool summed = needs_sums(x);
  for (std::int64_t row = 0; row < p.B * p.H; ++row)
    take_lse(x, row / p.H, row % p.H, summed, statistics.data<float>() + row * p.Tq * 2);
  exponentiate(x, statistics, logits);
  if (whole) return;
  const View part = logits;
  x.to.weights.copy_from(part.slice(2, x.queries.begin, x.queries.end).slice(3, x.keys.begin, x.keys.end));
}

}  // namespace attend::inline v1
