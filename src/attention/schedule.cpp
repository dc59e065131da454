#include "attention/schedule.h"

#include <algorithm>

#include "core/divide_up.h"
#include "core/parallel.h"

namespace attend {

namespace {

// A worker's packed queries and sums stay within half of a 1 MiB L2 cache.
constexpr std::int64_t panel_bytes = 512 * 1024;
// Query rows that a work item has at most: every tile of keys that is fetched meets them all. More gains nothing, and
// leaves fewer items to share out.
constexpr std::int64_t most_rows = 192;
// Below this, waking a second thread (3 to 8 us) costs more than it saves.
constexpr double parallel_flops = 2e6;
// A queue this long for each thread ends evenly: the last item is 1/32 of a thread's time at most.
constexpr std::int64_t items_per_worker = 16;

// 4 * pairs * D, were every pair visible.
double all_flops(const Problem& p) {
  return 2.0 * static_cast<double>(p.B * p.H) * static_cast<double>(p.Tq) * static_cast<double>(p.Tk) *
         static_cast<double>(p.D + p.Dv);
}

std::int64_t longest_sequence(const Problem& p) {
  if (p.query_starts.empty()) return p.Tq;
  std::int64_t longest = 0;
  for (std::int64_t n = 0; n < p.sequences(); ++n) longest = std::max(longest, p.sequence(n).Tq);
  return longest;
}

std::int64_t count_items(const Problem& p, std::int64_t queries) {
  if (p.query_starts.empty()) return p.B * p.Hkv * divide_up(p.Tq, queries);
  std::int64_t items = 0;
  for (std::int64_t n = 0; n < p.sequences(); ++n) items += p.Hkv * divide_up(p.sequence(n).Tq, queries);
  return items;
}

// The queries of each head in a work item, so that the group's rows fill whole panels.
std::int64_t queries_per_item(const Problem& p, const kernels::Target& target, std::int64_t rows) {
  const std::int64_t panel = target.panel_rows;
  const std::int64_t G = p.H / p.Hkv;
  const std::int64_t queries = std::max<std::int64_t>(1, std::max(panel, rows / panel * panel) / G);
  return queries < panel || G == 1 ? queries : queries / target.lanes * target.lanes;
}

Schedule fused(const Problem& p, const kernels::Target& target, const char* reason) {
  Schedule s;
  s.path = Path::fused;
  s.target = &target;
  s.reason = reason;
  if (p.B == 0 || p.H == 0 || p.Tq == 0) return s;  // no rows, no items
  s.workers = all_flops(p) < parallel_flops ? 1 : available_threads();
  std::int64_t rows = std::clamp<std::int64_t>(panel_bytes / 4 / (p.D + p.Dv), target.panel_rows, most_rows);
  s.queries = queries_per_item(p, target, rows);
  while (rows > target.panel_rows && s.workers > 1 && count_items(p, s.queries) < items_per_worker * s.workers) {
    rows -= target.panel_rows;
    s.queries = queries_per_item(p, target, rows);
  }
  s.queries = std::max<std::int64_t>(1, std::min(s.queries, longest_sequence(p)));
  s.items = count_items(p, s.queries);
  s.workers = static_cast<int>(std::clamp<std::int64_t>(s.items, 1, s.workers));
  kernels::Group group;
  group.G = p.H / p.Hkv, group.D = p.D, group.Dv = p.Dv;
  group.q.dtype = p.q.dtype();
  if (p.bias) group.bias.data = &p;  // only whether there is one
  if (!p.alibi_slopes.empty()) group.alibi_slopes = p.alibi_slopes.data();
  s.worker_bytes = static_cast<std::int64_t>(target.scratch_bytes(group, group.G * s.queries));
  return s;
}

// The sequences, the ones with the most work first: the last items are then small ones.
std::vector<std::int64_t> longest_first(const Problem& p) {
  std::vector<std::int64_t> order;
  if (p.query_starts.empty() && p.key_lengths.empty()) return order;
  for (std::int64_t n = 0; n < p.sequences(); ++n) order.push_back(n);
  const auto work = [&](std::int64_t n) {
    const Sequence s = p.sequence(n);
    return static_cast<double>(s.Tq) * static_cast<double>(s.key_length);
  };
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) { return work(a) > work(b); });
  return order;
}

// Items count through the heads of a sequence, and in each through its blocks of queries: from the last one on, which
// sees most keys where the problem is causal.
void run_fused(const Problem& p, const Schedule& s, const MutableView& out, const MutableView& lse, char* scratch) {
  const std::vector<std::int64_t> order = longest_first(p);
  std::vector<std::int64_t> first_item;  // of each sequence in that order, where they differ
  if (!p.query_starts.empty()) {
    std::int64_t items = 0;
    for (const std::int64_t n : order) {
      first_item.push_back(items);
      items += p.Hkv * divide_up(p.sequence(n).Tq, s.queries);
    }
  }
  const std::int64_t each = p.Hkv * divide_up(p.Tq, s.queries);
  parallel_items(s.items, s.workers, [&](int worker, std::int64_t item) {
    std::int64_t at = item / std::max<std::int64_t>(1, each);
    if (!first_item.empty()) at = std::upper_bound(first_item.begin(), first_item.end(), item) - first_item.begin() - 1;
    const std::int64_t within = item - (first_item.empty() ? at * each : first_item[static_cast<std::size_t>(at)]);
    const Sequence sequence = p.sequence(order.empty() ? at : order[static_cast<std::size_t>(at)]);
    const std::int64_t blocks = divide_up(sequence.Tq, s.queries);
    const std::int64_t block = p.causal ? blocks - 1 - within % blocks : within % blocks;
    const std::int64_t first = block * s.queries;
    s.target->forward(p.group(sequence, within / blocks, out, lse), first, std::min(first + s.queries, sequence.Tq),
                      scratch + worker * s.worker_bytes);
  });
}

}  // namespace

Schedule make_schedule(const Problem& p) {
  if (p.q.dtype() == DType::f64) {
    Schedule s;
    s.reason = "f64 is computed by the plain path, in double precision";
    return s;
  }
  return fused(p, kernels::target(), "the fused path takes every option");
}

void run_schedule(const Problem& p, const Schedule& s, const MutableView& out, const MutableView& lse, void* scratch) {
  if (s.items > 0) run_fused(p, s, out, lse, static_cast<char*>(scratch));
}

}  // namespace attend
