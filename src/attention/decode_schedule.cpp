#include "attention/decode_schedule.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "attention/operands.h"
#include "attention/scheduled_sequences.h"
#include "core/divide_up.h"
#include "core/parallel.h"
#include "kernels/rules.h"

namespace attend::inline v1 {

namespace {

// Up to so many rows of a group, reading keys and values once is most of the work: with D = 128, a decode kernel takes
// some 85 cycles a key for each four rows, the fused one 256 for any number up to 16.
constexpr std::int64_t decode_rows = 8;
// The keys of a sequence are cut into at most so many work items, none shorter than 512 keys: their sums are kept until
// all are there.
constexpr std::int64_t most_ranges = 16;
constexpr std::int64_t fewest_keys = 512;
// Rows of sequences that share keys, in one item: their numbers fill an L1 cache by then (64 rows of D = 64 in f32: 48
// KiB of queries, scores and sums).
constexpr std::int64_t most_shared_rows = 64;
// What a small L2 cache holds.
constexpr double cached_bytes = 1 << 20;

// The keys that some query of the sequence sees, in ranges of `size`, which depends on the sequence alone: not on the
// batch around it, nor on the threads.
struct KeyCut {
  std::int64_t begin = 0, end = 0, size = 1, count = 0;

  kernels::KeyRange range(std::int64_t n) const { return {begin + n * size, std::min(begin + (n + 1) * size, end)}; }
};

KeyCut cut_keys(const Problem& p, const Sequence& s) {
  const auto [lo, hi] = kernels::visible_keys(p.rules(s, 0), 0, s.Tq);
  KeyCut cut{.begin = lo / kernels::tile_keys * kernels::tile_keys, .end = hi};
  const std::int64_t keys = cut.end - cut.begin;
  cut.size = std::max(fewest_keys, divide_up(divide_up(keys, most_ranges), kernels::tile_keys) * kernels::tile_keys);
  cut.count = divide_up(keys, cut.size);
  return cut;
}

// Whether every query of the sequence sees all of them, but for a mask or a bias.
bool all_see(const Problem& p, const Sequence& s, kernels::KeyRange keys) {
  const kernels::Rules rules = p.rules(s, 0);
  return kernels::visible_keys(rules, s.Tq - 1).lo <= keys.lo && kernels::visible_keys(rules, 0).hi >= keys.hi;
}

// The ranges of sequences with caches of their own: one for all of those that have their keys there in the same blocks,
// as forks do, as long as their rows fit the L1 cache beside a tile.
std::vector<SharedRange> share_ranges(const Problem& p) {
  std::vector<SharedRange> list;
  std::map<std::tuple<std::int64_t, const void*, std::int64_t>, std::size_t> open;  // range, its last block, its end
  const std::int64_t rows = p.G() * p.Tq;
  for (std::int64_t n = 0; n < p.B; ++n) {
    const Sequence sequence = p.sequence(n);
    const KeyCut cut = cut_keys(p, sequence);
    const KeyBlocks blocks = p.blocks_of(sequence);
    for (std::int64_t range = 0; range < std::max<std::int64_t>(1, cut.count); ++range) {
      const kernels::KeyRange keys = cut.range(range);
      if (cut.count > 0 && all_see(p, sequence, keys)) {
        // Who has a block has the blocks before it too.
        const auto [at, is_new] =
            open.try_emplace({range, blocks.k[(keys.hi - 1) / blocks.rows], keys.hi}, list.size());
        if (!is_new && (std::ssize(list[at->second].sequences) + 1) * rows <= most_shared_rows) {
          list[at->second].sequences.push_back(n);
          continue;
        }
        at->second = list.size();
      }
      list.push_back({range, {n}});
    }
  }
  return list;
}

}  // namespace

// Training does not decode, so the fused path alone draws dropout. Sums that are carried on are the fused path's.
bool takes_decode(const Problem& p, const Sequence& s) {
  return p.common.dropout.p == 0 && p.parts.empty() && p.G() * s.Tq <= decode_rows;
}

bool decodes_some(const Problem& p) {
  for (std::int64_t n = 0; n < p.sequences(); n += p.alike() ? p.B : 1) {
    if (takes_decode(p, p.sequence(n))) return true;
  }
  return false;
}

void cut_decode(const Problem& p, Schedule& s) {
  s.queries = longest_sequence(p, s);
  std::int64_t ranges = 1, keys = 0;  // one without keys too: it writes the rows that see nothing
  for_each_member(p, s, [&](const Sequence& sequence) {
    const KeyCut cut = cut_keys(p, sequence);
    ranges = std::max(ranges, cut.count);
    s.keys = std::max(s.keys, cut.size);
    keys = std::max(keys, cut.end - cut.begin);
  });
  s.ranges = ranges;
  const std::int64_t sequences = count_members(p, s);
  const double heads = static_cast<double>(sequences) * static_cast<double>(p.Hkv);
  const double columns = static_cast<double>(p.D) + static_cast<double>(p.Dv);
  s.cached = heads * static_cast<double>(keys) * columns * static_cast<double>(size_of(p.k.dtype())) <= cached_bytes;
  const double row = 2.0 * static_cast<double>(kernels::tile_keys) * (columns + 2.0 * decode_rows);
  check_scratch(p, row * (heads * static_cast<double>(ranges) + s.workers));
  std::int64_t together = 1;
  if (p.blocks.size() > 1) s.shared = share_ranges(p);
  for (const SharedRange& shared : s.shared) together = std::max<std::int64_t>(together, std::ssize(shared.sequences));
  s.items = p.Hkv * (s.shared.empty() ? sequences * ranges : std::ssize(s.shared));
  s.workers = static_cast<int>(std::clamp<std::int64_t>(s.items, 1, s.workers));
  const kernels::Sizes sizes = p.sizes();
  const std::int64_t rows = sizes.G * s.queries;
  s.worker_bytes = static_cast<std::int64_t>(s.target->decode.bytes(sizes, p.features(), together * rows));
  s.partial_bytes = divide_up(rows * (2 + p.Dv) * 4, 64) * 64;
  s.shared_bytes = sequences * p.Hkv * ranges * s.partial_bytes;
}

namespace {

// What decode items leave: of each range of each key head of each sequence.
class Decoding {
 public:
  Decoding(const Problem& p, const Schedule& s, const ResultViews& to, char* scratch)
      : p_(p), s_(s), to_(to), scratch_(scratch) {}

  // Items count through the key ranges of a head, then the heads, then the sequences; shared ones through the heads of
  // a range.
  void run(int worker, std::int64_t item) const {
    char* scratch = scratch_ + worker * s_.worker_bytes;
    if (!s_.shared.empty())
      return run_shared(s_.shared[static_cast<std::size_t>(item / p_.Hkv)], item % p_.Hkv, scratch);
    const std::int64_t range = item % s_.ranges, head = item / s_.ranges % p_.Hkv, n = item / s_.ranges / p_.Hkv;
    const Sequence sequence = member(p_, s_, n);
    const KeyCut cut = cut_keys(p_, sequence);
    if (range >= std::max<std::int64_t>(cut.count, 1)) return;
    const kernels::Group group = p_.group(sequence, head);
    kernels::DecodeGroup alone{group, partial(n, head, range), s_.cached};
    if (to_.logits) alone.logits = operand_at(*to_.logits, sequence.b, head * p_.G(), sequence.query_start);
    if (cut.count > 0 && sequence.Tq > 0) decode(&alone, 1, sequence, cut.range(range), scratch);
    if (cut.count <= 1) combine(group, sequence, n, head, cut.count);
  }

  // Once all items have run, for a head of a sequence.
  void combine(std::int64_t n, std::int64_t head) const {
    const Sequence sequence = member(p_, s_, n);
    const std::int64_t ranges = cut_keys(p_, sequence).count;
    if (ranges > 1) combine(p_.group(sequence, head), sequence, n, head, ranges);
  }

 private:
  float* partial(std::int64_t n, std::int64_t head, std::int64_t range) const {
    char* partials = scratch_ + s_.workers * s_.worker_bytes;
    return reinterpret_cast<float*>(partials + ((n * p_.Hkv + head) * s_.ranges + range) * s_.partial_bytes);
  }

  void decode(const kernels::DecodeGroup* groups, std::int64_t count, const Sequence& sequence, kernels::KeyRange keys,
              char* scratch) const {
    s_.target->decode.run(groups, count, 0, sequence.Tq, keys.lo, keys.hi, scratch);
  }

  void combine(const kernels::Group& group, const Sequence& sequence, std::int64_t n, std::int64_t head,
               std::int64_t ranges) const {
    s_.target->decode.combine(group, p_.results(sequence, head, to_), 0, sequence.Tq, partial(n, head, 0),
                              s_.partial_bytes / 4, ranges);
  }

  void run_shared(const SharedRange& shared, std::int64_t head, char* scratch) const {
    const Sequence first = p_.sequence(shared.sequences[0]);
    const KeyCut cut = cut_keys(p_, first);
    std::vector<kernels::Group> groups;
    groups.reserve(shared.sequences.size());
    for (const std::int64_t n : shared.sequences) groups.push_back(p_.group(p_.sequence(n), head));
    std::vector<kernels::DecodeGroup> rows;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      rows.push_back({groups[i], partial(shared.sequences[i], head, shared.range), s_.cached});
    }
    if (cut.count > 0) decode(rows.data(), std::ssize(rows), first, cut.range(shared.range), scratch);
    for (std::size_t i = 0; i < groups.size(); ++i) {
      const std::int64_t n = shared.sequences[i], ranges = cut_keys(p_, p_.sequence(n)).count;
      if (ranges <= 1) combine(groups[i], p_.sequence(n), n, head, ranges);
    }
  }

  const Problem& p_;
  const Schedule& s_;
  const ResultViews& to_;
  char* scratch_;
};

}  // namespace

void run_decode(const Problem& p, const Schedule& s, const ResultViews& to, char* scratch) {
  const Decoding decoding(p, s, to, scratch);
  parallel_items(s.items, s.workers, [&](int worker, std::int64_t item) { decoding.run(worker, item); });
  if (s.ranges <= 1) return;
  const std::int64_t heads = count_members(p, s) * p.Hkv;
  const std::int64_t grain = 1 + (1 << 16) / (1 + s.ranges * s.partial_bytes);
  parallel_for(heads, s.workers == 1 ? heads : grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t head = begin; head < end; ++head) decoding.combine(head / p.Hkv, head % p.Hkv);
  });
}

}  // namespace attend::inline v1
