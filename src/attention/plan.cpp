#include <algorithm>

#include "attend/attention.h"
#include "attention/schedule.h"

namespace attend {

namespace {

// Pairs that causal, window and lengths leave, of one head of one sequence.
double visible_pairs(const Problem& p, const Sequence& s) {
  double pairs = 0;
  for (std::int64_t i = 0; i < s.Tq; ++i) {
    const std::int64_t level = i + s.offset;
    std::int64_t first = 0, last = s.key_length;
    if (p.window.left >= 0) first = std::max(first, level - p.window.left);
    if (p.window.right >= 0) last = std::min(last, level + p.window.right + 1);
    if (p.causal) last = std::min(last, level + 1);
    pairs += static_cast<double>(std::max<std::int64_t>(0, last - first));
  }
  return pairs;
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
  const Problem p =
      Problem::check("plan", View(nullptr, dtype, q), View(nullptr, dtype, k), View(nullptr, dtype, v), options);
  const Schedule s = make_schedule(p);
  AttentionPlan plan;
  plan.path = s.path;
  plan.target = s.target ? s.target->name : "";
  plan.tile_queries = s.path == Path::reference ? 1 : s.queries * (p.H == 0 ? 0 : p.H / p.Hkv);
  plan.tile_keys = s.path == Path::reference ? p.Tk : kernels::tile_keys;
  plan.work_items = s.path == Path::reference ? p.B * p.H * p.Tq : s.items;
  if (s.path == Path::decode) plan.key_ranges = s.ranges;
  plan.threads = s.workers;
  plan.scratch_bytes = s.scratch_bytes();
  plan.reason = s.reason;
  for (std::int64_t n = 0; n < p.sequences(); ++n) plan.flops += visible_pairs(p, p.sequence(n));
  plan.flops *= 2.0 * static_cast<double>(p.H) * static_cast<double>(p.D + p.Dv);
  return plan;
}

}  // namespace attend
