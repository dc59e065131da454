#include "attention/compute.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "attention/operands.h"
#include "attention/schedule.h"
#include "core/divide_up.h"
#include "core/parallel.h"

namespace attend::inline v1 {

void ReferenceRow::store(const MutableView& x, std::span<const double> values, bool by_key) const {
  const auto to = operand_at(x, sequence.b, h, sequence.query_start + i, by_key ? sequence.key_start : 0);
  store_elements(to.dtype, to.data, to.column, std::ssize(values), values.data());
}

void for_each_row(const Problem& p, const Schedule& schedule, const std::function<void(const ReferenceRow&)>& body) {
  std::vector<kernels::Row> workers(static_cast<std::size_t>(schedule.workers));
  for (kernels::Row& steps : workers) steps.resize(p.Tk, p.D, p.Dv);
  for (std::int64_t n = 0; n < p.sequences(); n += p.query_starts.empty() ? p.B : 1) {
    // Without query_starts all sequences are alike, and one loop takes them all.
    const std::int64_t length = p.sequence(n).Tq;
    const std::int64_t alike = p.query_starts.empty() ? p.B : 1;
    const std::int64_t rows = element_count({alike, p.H, length});
    const auto take = [&](int worker, std::int64_t item) {
      kernels::Row& steps = workers[static_cast<std::size_t>(worker)];
      const std::int64_t end = std::min(rows, (item + 1) * schedule.queries);
      for (std::int64_t row = item * schedule.queries; row < end; ++row) {
        const Sequence sequence = p.sequence(n + row / length / p.H);
        const std::int64_t h = row / length % p.H;
        kernels::reference_row(p.head(sequence, h), row % length, steps);
        body(ReferenceRow{sequence, h, row % length, steps});
      }
    };
    parallel_items(divide_up(rows, schedule.queries), schedule.workers, std::ref(take));
  }
}

void compute_into(const Problem& p, const ResultViews& to) {
  const Schedule schedule = make_schedule(p);
  if (schedule.path == Path::reference) {
    return for_each_row(p, schedule, [&](const ReferenceRow& row) {
      row.store(to.out, row.steps.context);
      if (to.lse.raw()) row.store(to.lse, {&row.steps.lse, 1});
      if (to.lse_low) row.store(*to.lse_low, {&row.steps.lse_low, 1});
    });
  }
  Tensor scratch = Tensor::uninitialized({schedule.scratch_bytes()}, DType::u8);
  run_schedule(p, schedule, to, scratch.raw());
}

AttentionResult compute(const Problem& p, const ForwardOptions& wanted) {
  const Dims out{p.B, p.H, p.Tq, p.Dv}, rows{p.B, p.H, p.Tq};
  const auto row_numbers = [&] { return Tensor::uninitialized(p.trim(rows), statistics_dtype(p.q.dtype())); };
  AttentionResult result{Tensor::uninitialized(p.trim(out), p.q.dtype()), row_numbers()};
  ResultViews to{result.out.view().reshape(out), result.lse.view().reshape(rows)};
  if (wanted.lse_low) to.lse_low = result.lse_low.emplace(row_numbers()).view().reshape(rows);
  compute_into(p, to);
  return result;
}

}  // namespace attend::inline v1
