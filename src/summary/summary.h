// A pass over the weights, its arguments checked and brought to one form: what is wanted of it, the cut into work
// items, the order of their sums, and the memory that they need.
#pragma once

#include <vector>

#include "attend/summary.h"
#include "attention/key_stretches.h"
#include "attention/problem.h"
#include "kernels/targets.h"

namespace attend::inline v1 {

// The part that is asked for of `size` queries or keys. Throws bad_value for none.
Range check_range(const char* function, const char* name, const std::optional<Range>& range, std::int64_t size);

// Results, of lse's dtype; null memory where one is not wanted. All are row-major, and begin as zeros, top_keys as -1;
// maps begin as anything.
struct SummaryViews {
  MutableView top_keys, top_weights;    // [B,H,Tq,top]
  MutableView entropy, distance;        // [B,H,Tq]
  MutableView sink_weights;             // [B,H,Tq]
  MutableView received, lift, seen_by;  // [B,H,Tk]; seen_by: how many queries see the key
  MutableView uniform;                  // [B,H,Tk]: what uniform attention would give it; with received
  MutableView map, map_max;             // [B or sequences,H,R,C]
  MutableView carried_top_keys, carried_top_weights, carried_received, carried_map, carried_map_max;  // with key_sizes
  MutableView weights;        // [B,H,queries,keys]
  MutableView seen;           // [B,H,Tq]: 1 / the number of keys that the query sees, or 0
  MutableView probe_weights;  // [B,H,Tq,kinds] as kernels::Probes has them, and its keys
  MutableView probe_keys, probe_carried, probe_sizes;
  MutableView statistics;  // [B,H,Tq,2]: the lse that weights are made with, in log2 units, as kernels::BinaryLse
};

struct SummaryProblem {
  const Problem forward;
  std::optional<View> lse, lse_low;      // [B,H,Tq]
  Range queries, keys;                   // the part that is looked at, along the axes of q and k
  std::optional<Tensor> key_sizes = {};  // [B,H,Tk], row-major
  std::int64_t top = 0;                  // of top_keys
  SummaryViews to = {};
  // Where maps are sums that several calls add to: row i is in block (i - first_row) R / rows of them, keys likewise.
  // Not given: the part that is looked at is cut into blocks, which are cleared before, and become means.
  struct Grid {
    std::int64_t first_row = 0, rows = 0, first_key = 0, keys = 0;
  };
  std::optional<Grid> grid = {};
  // Of probes, as kernels::Probes has them: earlier keys with the queries' own tokens, for each item of the batch.
  struct SameTokens {
    std::vector<std::int32_t> keys, begin, end;
  };
  std::int64_t near = 0;
  std::vector<SameTokens> same_tokens = {};
  std::function<void(double)> progress = {};

  // Throws Error. Where part of the queries is looked at, the problem is of these alone, or a few more.
  static SummaryProblem check(const char* function, const View& q, const View& k, const std::optional<View>& lse,
                              const std::optional<View>& lse_low, const AttentionOptions& options,
                              const std::optional<Range>& queries = {}, const std::optional<Range>& keys = {});
  // The same of a problem that is checked, without values. has_offset: one was given.
  static SummaryProblem check(const char* function, const Problem& problem, bool has_offset,
                              const std::optional<View>& lse, const std::optional<View>& lse_low,
                              const std::optional<Range>& queries, const std::optional<Range>& keys);
  // Throws Error for what are no sizes of these keys.
  void take_key_sizes(const char* function, const std::optional<View>& sizes);
  // How many of a row's largest weights are wanted. Throws Error for more, and for more keys, than can be listed.
  void want_top(const char* function, std::int64_t count);
  // Makes the tensors of summary_statistics() for rows and keys, `top` largest weights of each row, and has the pass
  // write to them. What needs an offset, sinks or key_sizes is left out where there are none.
  AttentionSummary want_rows_and_keys();
  DType dtype() const { return statistics_dtype(forward.q.dtype()); }
  // Whether the distance of a query and a key is known: nobody guesses the offset.
  bool has_distance = false;
  // The blocks of a map [..,R,C] of a sequence, without its memory.
  kernels::MapBlocks blocks_of(const Sequence& sequence, const MutableView& map) const;
  // The part that is looked at of a sequence, counted in it.
  Range queries_of(const Sequence& sequence) const;
  Range keys_of(const Sequence& sequence) const;
};

// An item: a query head of one sequence, and one stretch of its keys.
struct SummarySchedule : Stretches {
  Path path = Path::fused;
  const kernels::Target* target = nullptr;
  int workers = 1;
  std::int64_t worker_bytes = 0;   // scratch of one worker's kernels
  std::int64_t sums_bytes = 0;     // of the pass that finds the rows' sums; 0: lse is given
  std::int64_t scratch_bytes = 0;  // of all
};

SummarySchedule make_summary_schedule(const SummaryProblem& problem);
void run_summary(SummaryProblem& problem, const SummarySchedule& schedule);

// Whether the rows' own sums are to be found: lse is not given, or tells weights too coarsely.
bool needs_sums(const SummaryProblem& problem);
// What the weights of a head's rows are made with, to statistics [Tq,2] as kernels::BinaryLse: lse as it is given, or
// the rows' own sums, which are there where they were `summed`.
void take_lse(const SummaryProblem& problem, std::int64_t b, std::int64_t h, bool summed, float* statistics);

// The weights of a problem in blocks whose rows decode takes: the pass that sums rows leaves their logits. The bits are
// those of run_summary() over the same keys in one tensor, but for i8, which decode multiplies as whole numbers.
void weigh_decoded(SummaryProblem& problem);

// NaN for the top weights of rows that see keys and have no largest one: their weights are not numbers.
void mark_nan_rows(const SummaryViews& to);
// Zeros, for one map of each kind that is wanted.
void clear_maps(const SummaryViews& to, std::int64_t n, std::int64_t h);

// The plain path, for f64: a stretch is all keys.
void run_reference(SummaryProblem& problem, const SummarySchedule& schedule);

}  // namespace attend::inline v1
