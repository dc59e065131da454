#include <algorithm>

#include "attend/attention.h"
#include "attention/schedule.h"

namespace attend {

namespace {

// The sum over i < Tq of how many of the sequence's keys lie below i + shift.
double keys_below(const Sequence& s, std::int64_t shift) {
  // From query `some` on it is one key more for each, from `all` on all of them.
  const std::int64_t some = std::clamp<std::int64_t>(-shift, 0, s.Tq);
  const std::int64_t all = std::clamp(s.key_length - shift, some, s.Tq);
  const double first = static_cast<double>(some + shift), last = static_cast<double>(all - 1 + shift);
  const double rising = all > some ? (first + last) / 2 * static_cast<double>(all - some) : 0;
  return rising + static_cast<double>(s.Tq - all) * static_cast<double>(s.key_length);
}

// Pairs that causal, window and lengths leave, of one head of one sequence.
double visible_pairs(const Problem& p, const Sequence& s) {
  double pairs = static_cast<double>(s.Tq) * static_cast<double>(s.key_length);
  const std::int64_t right = p.causal ? 0 : p.window.right;
  if (right >= 0) pairs = keys_below(s, s.offset + right + 1);
  if (p.window.left >= 0) pairs -= keys_below(s, s.offset - p.window.left);
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
  plan.tile_queries = s.path == Path::reference ? 1 : s.queries * (p.Hkv == 0 ? 0 : p.H / p.Hkv);
  plan.tile_keys = s.path == Path::reference ? p.Tk : kernels::tile_keys;
  plan.work_items = s.path == Path::reference ? element_count({p.B, p.H, p.Tq}) : s.items;
  if (s.path == Path::decode) plan.key_ranges = s.ranges;
  if (s.also) plan.work_items += s.also->items;
  plan.threads = s.also ? std::max(s.workers, s.also->workers) : s.workers;
  plan.scratch_bytes = s.scratch_bytes();
  plan.reason = s.reason;
  const bool alike = p.key_lengths.empty() && p.query_starts.empty();
  const std::int64_t different = alike ? std::min<std::int64_t>(1, p.B) : p.sequences();
  for (std::int64_t n = 0; n < different; ++n) plan.flops += visible_pairs(p, p.sequence(n));
  if (alike) plan.flops *= static_cast<double>(p.B);
  plan.flops *= 2.0 * static_cast<double>(p.H) * static_cast<double>(p.D + p.Dv);
  return plan;
}

}  // namespace attend
