// The arguments of attention(), checked and brought to one form.
#pragma once

#include <cstdint>
#include <vector>

#include "attend/attention.h"
#include "core/axes.h"
#include "kernels/reference.h"
#include "kernels/target.h"

namespace attend::inline v1 {

// One sequence of a batch: its place in q and k, and what is visible in it. Without query_starts: one batch item.
struct Sequence {
  std::int64_t b = 0;            // index along the batch axis
  std::int64_t query_start = 0;  // its first query and key there
  std::int64_t key_start = 0;
  std::int64_t Tq = 0;
  std::int64_t Tk = 0;          // its keys in memory
  std::int64_t key_length = 0;  // of them existing
  std::int64_t offset = 0;      // query i of the sequence is level with its key i + offset
  // Where its first query and key stand in the tensors that the call is of, by which dropout draws.
  std::int64_t query_place = 0, key_place = 0;
};

// Where k and v are not in one piece: the blocks of a KvCache, [B,Hkv,rows,D or Dv] each.
// i8 ones have a scale for each row, [B,Hkv,rows].
struct KeyBlocks {
  const void* const* k = nullptr;
  const void* const* v = nullptr;
  std::int64_t rows = 0;
  const float* const* k_scales = nullptr;
  const float* const* v_scales = nullptr;
};

// Where results go: out [B,H,Tq,Dv], lse and lse_low [B,H,Tq]; lse without memory where it is not wanted.
struct ResultViews {
  MutableView out, lse;
  std::optional<MutableView> lse_low = {};
  bool log2 = false;                     // as in kernels::Results
  std::optional<MutableView> sums = {};  // [B,H,Tq,Dv + carried_numbers], likewise
  // [B,H,Tq,Tk] f32 as kernels::DecodeGroup has them, of a problem that decode takes, whose batch items have one cache.
  std::optional<MutableView> logits = {};
};

struct Problem {
  int rank = 4;  // of the arguments; results have as many axes
  std::int64_t B = 1, H = 1, Hkv = 1, Tq = 0, Tk = 0, D = 0, Dv = 0;
  View q, k, v;                                        // 4 axes each
  const double* key_panels = nullptr;                  // [B,Hkv] of kernels::Head's, or null
  std::optional<View> mask, bias;                      // [B,H,Tq,Tk], broadcast
  std::optional<View> distance_bias;                   // [B,H,Tq,2R+1], broadcast
  std::vector<double> alibi_slopes;                    // [H] or empty
  std::vector<double> sinks;                           // [H] or empty
  std::vector<std::int64_t> key_lengths;               // [B] or empty: Tk
  std::vector<std::int64_t> query_starts, key_starts;  // [sequences + 1] or empty: one sequence a batch item
  std::vector<Sequence> parts;                         // empty; or, in place of these, parts of sequences (carried.h)
  std::vector<KeyBlocks> blocks;                       // empty; or of all batch items; or [B], of each one its own
  Offset offset = Offset::top_left();
  std::int64_t rows_before = 0, rows_after = 0;  // queries that slice_rows() left out
  kernels::Rules common;  // of all pairs; rules() adds what differs from sequence to sequence and from head to head

  // Throws Error; `function` is the name that its messages begin with. `v` may be k itself: there are no values.
  static Problem check(const char* function, const View& q, const View& k, const View& v,
                       const AttentionOptions& options);

  // A problem is complete once it is checked. What differs in a part is another problem:
  // The queries [begin, end) alone, where they stand. Not with query_starts.
  Problem slice_rows(std::int64_t begin, std::int64_t end) const;
  // Without values, Dv = 0: what it gives is lse.
  Problem without_values() const;
  // Keys and values in double, which the plain path makes again for each query otherwise.
  Problem with_doubles(const double* key_panels, const View& v) const;
  // Keys and values that lie in blocks, of whose dtype and strides the views are; `rank` axes in the arguments.
  Problem in_blocks(int rank, const View& k, const View& v, std::vector<KeyBlocks> blocks) const;

  // Whether batch items are the sequences, which differ in their keys' number at most.
  bool alike() const { return query_starts.empty() && parts.empty(); }
  std::int64_t sequences() const {
    if (!parts.empty()) return static_cast<std::int64_t>(parts.size());
    return query_starts.empty() ? B : static_cast<std::int64_t>(query_starts.size()) - 1;
  }
  Sequence sequence(std::int64_t n) const;
  // The query heads that share a key head.
  std::int64_t G() const { return Hkv == 0 ? 0 : H / Hkv; }
  // Where its keys lie.
  KeyBlocks blocks_of(const Sequence& sequence) const;
  // The result's shape without the leading axes that the arguments do not have.
  Dims trim(const Dims& shape) const;
  // How far from its own place distance_bias tells a query's keys apart: R of [H,2R+1].
  std::int64_t reach() const { return distance_bias->size(3) / 2; }
  // What decides on the pairs of a sequence, from query head h on.
  kernels::Rules rules(const Sequence& sequence, std::int64_t h) const;
  // What the kernels' scratch depends on: the query heads that share a key head, and what takes part.
  kernels::Sizes sizes() const;
  kernels::Features features() const;
  // What the plain path needs to know of one query head of one sequence.
  kernels::Head head(const Sequence& sequence, std::int64_t h) const;
  // What the fused kernels need to know of the query heads that share key head h.
  kernels::Group group(const Sequence& sequence, std::int64_t h) const;
  // Where they write.
  kernels::Results results(const Sequence& sequence, std::int64_t h, const ResultViews& to) const;
};

}  // namespace attend::inline v1
