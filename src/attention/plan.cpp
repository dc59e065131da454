#include <algorithm>

#include "attend/attention.h"
#include "attention/backward_schedule.h"
#include "attention/compute.h"
#include "attention/piecewise.h"
#include "attention/schedule.h"

namespace attend::inline v1 {

namespace {

AttentionPlan forward_plan(const Problem& p) {
  const Schedule s = make_schedule(p);
  AttentionPlan plan;
  plan.path = s.path;
  plan.target = s.target ? s.target->name : "";
  plan.tile_queries = s.path == Path::reference ? 1 : s.queries * p.G();
  plan.tile_keys = s.path == Path::reference ? p.Tk : kernels::tile_keys;
  plan.work_items = s.path == Path::reference ? element_count({p.B, p.H, p.Tq}) : s.items;
  if (s.path == Path::decode) plan.key_ranges = s.ranges;
  if (s.also) plan.work_items += s.also->items;
  plan.threads = s.also ? std::max(s.workers, s.also->workers) : s.workers;
  plan.scratch_bytes = s.scratch_bytes();
  plan.reason = s.reason;
  const bool alike = p.key_lengths.empty() && p.query_starts.empty();
  const std::int64_t different = alike ? std::min<std::int64_t>(1, p.B) : p.sequences();
  for (std::int64_t n = 0; n < different; ++n) {
    const Sequence sequence = p.sequence(n);
    if (sequence.Tq > 0) plan.flops += visible_pairs(p.rules(sequence, 0), 0, sequence.Tq);
  }
  if (alike) plan.flops *= static_cast<double>(p.B);
  plan.flops *= 2.0 * static_cast<double>(p.H) * static_cast<double>(p.D + p.Dv);
  return plan;
}

AttentionPlan backward_plan(const Dims& q, const Dims& k, const Dims& v, DType dtype, const AttentionOptions& options,
                            const BackwardOptions& backward) {
  const auto shaped = [](const Dims& shape, DType type) { return MutableView(nullptr, type, shape); };
  const MutableView Q = shaped(q, dtype), K = shaped(k, dtype), V = shaped(v, dtype);
  Dims results = q, rows = q;
  if (q.rank() > 0 && v.rank() > 0) {
    results[q.rank() - 1] = v[v.rank() - 1];
    rows = Dims(std::span(q.begin(), q.end() - 1));
  }
  const View out = shaped(results, dtype), lse = shaped(rows, statistics_dtype(Q.dtype()));
  BackwardProblem x = BackwardProblem::check("plan_backward", out, Q, K, V, out, lse, options, backward);
  x.dq = with_axes(Q, 4);
  if (backward.dbias) x.sum_bias_in(shaped(options.bias->shape(), lse.dtype()));
  const BackwardSchedule s = make_backward_schedule(x);
  AttentionPlan plan = forward_plan(x.forward);
  plan.flops *= 2.5;
  plan.work_items = std::ssize(s.items);
  plan.threads = s.workers;
  plan.scratch_bytes = s.scratch_bytes;
  if (backward.dbias && options.bias->dtype() != lse.dtype()) {
    plan.scratch_bytes += options.bias->count() * size_of(lse.dtype());
  }
  if (s.path == Path::reference) return plan;
  plan.path = s.path;
  plan.target = s.target->name;
  plan.tile_queries = kernels::backward_tile_rows;
  plan.tile_keys = kernels::backward_tile_keys;
  plan.key_ranges = s.items.empty() ? 1 : s.items.back().stretch + 1;
  plan.reason = "weights are computed again from lse, in tiles: nothing of Tq * Tk is stored";
  return plan;
}

}  // namespace

std::string_view name_of(Path path) {
  switch (path) {
    case Path::reference:
      return "reference";
    case Path::fused:
      return "fused";
    case Path::decode:
      return "decode";
  }
  return "";
}

AttentionPlan plan(const Dims& q, const Dims& k, const Dims& v, DType dtype, const AttentionOptions& options) {
  const View Q(nullptr, dtype, q), K(nullptr, dtype, k), V(nullptr, dtype, v);
  return with_memory("plan", Q, K, [&] { return forward_plan(Problem::check("plan", Q, K, V, options)); });
}

AttentionPlan plan_backward(const Dims& q, const Dims& k, const Dims& v, DType dtype, const AttentionOptions& options,
                            const BackwardOptions& backward) {
  const View Q(nullptr, dtype, q), K(nullptr, dtype, k);
  return with_memory("plan_backward", Q, K, [&] { return backward_plan(q, k, v, dtype, options, backward); });
}

}  // namespace attend::inline v1
