#include "attention/schedule.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "attention/decode_schedule.h"
#include "attention/scheduled_sequences.h"
#include "core/divide_up.h"
#include "core/message.h"
#include "core/parallel.h"

namespace attend::inline v1 {

namespace {

// A worker's packed queries and sums stay within half of a 1 MiB L2 cache.
constexpr std::int64_t panel_bytes = 512 * 1024;
// Query rows that a work item has at most: every tile of keys that is fetched meets them all. More gains nothing, and
// leaves fewer items to share out.
constexpr std::int64_t most_rows = 192;
// A queue this long for each thread ends evenly: the last item is 1/32 of a thread's time at most.
constexpr std::int64_t items_per_worker = 16;

// The plain path's multiplications that are worth waking another thread for.
constexpr double multiplications_per_item = 1 << 16;

// 4 * pairs * D, were every pair visible.
double all_flops(const Problem& p) {
  return 2.0 * static_cast<double>(p.B * p.H) * static_cast<double>(p.Tq) * static_cast<double>(p.Tk) *
         static_cast<double>(p.D + p.Dv);
}

// Whether there is more to do than before another thread has begun. Few rows that read keys take four to six times as
// long for a multiplication as tiles do.
bool is_large(const Problem& p, Path path) {
  const bool less_is_enough = path == Path::decode && threads_are_warm();
  return all_flops(p) >= (less_is_enough ? parallel_flops / 5 : parallel_flops);
}

// The sequences of this schedule's path. Without query_starts they are all alike: an empty list stands for all of them.
std::vector<std::int64_t> members(const Problem& p, Path path) {
  std::vector<std::int64_t> list;
  for (std::int64_t n = 0; !p.alike() && n < p.sequences(); ++n) {
    if (takes_decode(p, p.sequence(n)) == (path == Path::decode)) list.push_back(n);
  }
  return list;
}

std::int64_t count_items(const Problem& p, const Schedule& s, std::int64_t queries) {
  if (p.alike()) return p.B * p.Hkv * divide_up(p.Tq, queries);
  std::int64_t items = 0;
  for_each_member(p, s, [&](const Sequence& sequence) { items += p.Hkv * divide_up(sequence.Tq, queries); });
  return items;
}

// The queries of each head in a work item, so that the group's rows fill whole panels.
std::int64_t queries_per_item(const Problem& p, const kernels::Target& target, std::int64_t rows) {
  const std::int64_t panel = target.panel_rows;
  const std::int64_t G = p.G();
  const std::int64_t queries = std::max<std::int64_t>(1, std::max(panel, rows / panel * panel) / G);
  return queries < panel || G == 1 ? queries : queries / target.lanes * target.lanes;
}

void cut_fused(const Problem& p, Schedule& s) {
  const kernels::Target& target = *s.target;
  const double row = static_cast<double>(p.D) + static_cast<double>(p.Dv);
  check_scratch(p, row * static_cast<double>(std::max(p.G(), most_rows)));
  std::int64_t rows = std::clamp<std::int64_t>(panel_bytes / 4 / (p.D + p.Dv), target.panel_rows, most_rows);
  s.queries = queries_per_item(p, target, rows);
  const auto too_few = [&](std::int64_t queries) {
    return s.workers > 1 && count_items(p, s, queries) < items_per_worker * s.workers;
  };
  while (rows > target.panel_rows && too_few(s.queries)) {
    rows -= target.panel_rows;
    s.queries = queries_per_item(p, target, rows);
  }
  const std::int64_t longest = std::max<std::int64_t>(1, longest_sequence(p, s)), beyond = longest - s.queries;
  // Few rows beyond the first item join it: in one of their own they would fetch all keys and values again.
  const bool joins = beyond * p.G() <= target.lanes && !too_few(longest);
  if (beyond <= 0 || joins) s.queries = longest;
  s.items = count_items(p, s, s.queries);
  s.workers = static_cast<int>(std::clamp<std::int64_t>(s.items, 1, s.workers));
  const kernels::Sizes sizes = p.sizes();
  s.worker_bytes = static_cast<std::int64_t>(target.forward.bytes(sizes, p.features(), sizes.G * s.queries));
}

// The sequences, the ones with the most work first: the last items are then small ones.
std::vector<std::int64_t> longest_first(const Problem& p, const Schedule& s) {
  std::vector<std::int64_t> order = s.members;
  if (p.alike() && p.key_lengths.empty()) return order;
  for (std::int64_t n = 0; p.alike() && n < p.B; ++n) order.push_back(n);
  const auto work = [&](std::int64_t n) {
    const Sequence sequence = p.sequence(n);
    return static_cast<double>(sequence.Tq) * static_cast<double>(sequence.key_length);
  };
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) { return work(a) > work(b); });
  return order;
}

// Items count through the heads of a sequence, and in each through its blocks of queries: from the last one on, which
// sees most keys where later ones are hidden.
void run_fused(const Problem& p, const Schedule& s, const ResultViews& to, char* scratch) {
  const std::vector<std::int64_t> order = longest_first(p, s);
  std::vector<std::int64_t> first_item;  // of each sequence in that order, where they differ
  if (!p.alike()) {
    std::int64_t items = 0;
    for (const std::int64_t n : order) {
      first_item.push_back(items);
      items += p.Hkv * divide_up(p.sequence(n).Tq, s.queries);
    }
  }
  const std::int64_t each = p.Hkv * divide_up(p.Tq, s.queries);
  const bool large = is_large(p, Path::fused);
  const auto item_of = [&](std::int64_t item) {
    std::int64_t at = item / std::max<std::int64_t>(1, each);
    if (!first_item.empty()) at = std::upper_bound(first_item.begin(), first_item.end(), item) - first_item.begin() - 1;
    const std::int64_t within = item - (first_item.empty() ? at * each : first_item[static_cast<std::size_t>(at)]);
    const Sequence sequence = p.sequence(order.empty() ? at : order[static_cast<std::size_t>(at)]);
    const std::int64_t blocks = divide_up(sequence.Tq, s.queries);
    const std::int64_t block = p.common.window_right >= 0 ? blocks - 1 - within % blocks : within % blocks;
    const std::int64_t first = block * s.queries;
    const std::int64_t head = within / blocks;
    return kernels::ForwardItem{p.group(sequence, head), p.results(sequence, head, to), first,
                                std::min(first + s.queries, sequence.Tq)};
  };
  parallel_items(s.items, s.workers, [&](int worker, std::int64_t item) {
    // Where all items take as long, this worker's next one.
    const std::int64_t likely = item + s.workers;
    std::optional<kernels::ForwardItem> next;
    if (large && likely < s.items) next = item_of(likely);
    s.target->forward.run(item_of(item), next ? &*next : nullptr, scratch + worker * s.worker_bytes);
  });
}

Schedule schedule_of(const Problem& p, Path path) {
  Schedule s;
  s.target = &kernels::target();
  s.path = path;
  s.reason = p.common.dropout.p > 0 ? "dropout: weights are drawn in tiles of scores, which stay in registers and cache"
             : path == Path::decode
                 ? "at most 8 query rows share a key head: time goes into reading keys and values"
                 : "more than 8 query rows share a key head: tiles of scores stay in registers and cache";
  if (p.B == 0 || p.H == 0 || p.Tq == 0) {
    s.reason = "no rows";
    return s;
  }
  s.workers = is_large(p, path) ? num_threads() : 1;
  s.members = members(p, path);
  return s;
}

}  // namespace

Schedule reference_schedule(const Problem& p, const char* reason) {
  Schedule s;
  s.reason = reason;
  // In double: strides of 0 make shapes whose sizes multiply beyond 64 bits.
  const double keys = static_cast<double>(p.Tk), row = static_cast<double>(p.D) + static_cast<double>(p.Dv);
  s.queries = static_cast<std::int64_t>(multiplications_per_item / (keys * row + 1)) + 1;
  s.items = divide_up(element_count({p.B, p.H, p.Tq}), s.queries);
  s.workers = static_cast<int>(std::clamp<std::int64_t>(s.items, 1, num_threads()));
  constexpr std::int64_t copies = kernels::keys_together;
  check_scratch(p, 4 * keys + row + copies * static_cast<double>(std::max(p.D, p.Dv)));
  s.worker_bytes = s.items == 0 ? 0 : 8 * (4 * p.Tk + p.D + p.Dv + copies * std::max(p.D, p.Dv));
  return s;
}

Schedule make_schedule(const Problem& p) {
  if (p.q.dtype() == DType::f64) {
    return reference_schedule(p, "f64 is computed by the plain path, in double precision");
  }
  const bool all_alike = p.alike();
  const bool no_rows = p.B == 0 || p.H == 0 || p.Tq == 0;
  if (all_alike && !no_rows && takes_decode(p, p.sequence(0))) {
    Schedule s = schedule_of(p, Path::decode);
    cut_decode(p, s);
    return s;
  }
  Schedule s = schedule_of(p, Path::fused);
  if (no_rows) return s;
  if (all_alike) {
    cut_fused(p, s);
    return s;
  }
  Schedule few = schedule_of(p, Path::decode);
  if (s.members.empty()) {
    cut_decode(p, few);
    return few;
  }
  cut_fused(p, s);
  if (few.members.empty()) return s;
  cut_decode(p, few);
  s.reason = "sequences with more than 8 query rows for each key head; the others take the decode path";
  s.also = std::make_shared<Schedule>(std::move(few));
  return s;
}

void run_schedule(const Problem& p, const Schedule& s, const ResultViews& to, void* scratch) {
  if (p.B == 0 || p.H == 0 || p.Tq == 0) return;
  if (s.path == Path::decode)
    run_decode(p, s, to, static_cast<char*>(scratch));
  else
    run_fused(p, s, to, static_cast<char*>(scratch));
  if (s.also) run_schedule(p, *s.also, to, scratch);
}

}  // namespace attend::inline v1
