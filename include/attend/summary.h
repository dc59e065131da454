// Where attention goes, without the matrix of weights: what each query attends to most, how widely, what each key
// receives, maps of blocks, and any part of the weights exactly. Memory is that of the results.
//
// w(i,j) = exp(s(i,j) - lse(i)), s the logit that the softmax sees (scaled, softcapped, biased, masked), lse as
// attention() gives it. All numbers are of a query head (never averaged over a group), and before dropout. A row that
// sees nothing gives 0, and counts in no mean. What a masked key holds reaches no number.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attend/api.h"
#include "attend/attention.h"
#include "attend/head_scores.h"
#include "attend/kv_cache.h"
#include "attend/tensor.h"

namespace attend::inline v0 {

// A map of R x C blocks: query i is in row floor(i R / Tq) of it, R being at most Tq, and keys likewise.
struct ATTEND_API MapSize {
  std::int64_t rows = 0, columns = 0;
};

struct ATTEND_API SummaryOptions {
  // [B,H,Tq], lse's dtype, as the forward gave it beside lse. Without it, a row whose |lse| is 64 or more is summed
  // again, since f32 then holds lse to 2e-6 at best.
  OptionalView lse_low = {};
  std::int64_t top = 8;             // how many of a row's largest weights, at most 2^31 - 1; 0: none
  std::optional<MapSize> map = {};  // not given: none
  // [B,H,Tk], lse's dtype, 0 or more: the size of what a key carries, such as abs(W_O^h v_j) of key_sizes() in
  // layers.h. What is "carried" is wanted too then: w(i,j) key_sizes(j) in place of w(i,j), the length of what key j
  // adds to query i's output (Kobayashi et al. 2020). The length of a sum is not the sum of lengths.
  OptionalView key_sizes = {};
  // Told the share that is done, from 0 to 1, now and then, on the calling thread. It may throw: the call ends.
  std::function<void(double)> progress = {};
};

// f32 (f64 for f64 inputs) but for keys, i64. Keys are numbered along k's axis, also where query_starts cut it.
struct ATTEND_API AttentionSummary {
  // [B,H,Tq,top]: the largest weights of a row, falling, of equal ones the lower key first, and their keys (i64);
  // 0 and -1 where fewer keys are visible. Ordered by the weights that attention_weights() gives.
  Tensor top_keys, top_weights;
  // [B,H,Tq]: sum over the keys of w (lse - s), nats (Clark et al. 2019, section 3.3); exp of it is how many keys are
  // attended to. A sink's share is left out.
  Tensor entropy;
  // [B,H,Tq]: sum of w |i + offset - j| (Vig and Belinkov 2019). Not given where Tq != Tk and nobody said
  // the offset: it is not guessed.
  std::optional<Tensor> distance = {};
  std::optional<Tensor> sink_weights = {};  // [B,H,Tq] what the sinks take of a row: 1 less the weights; with sinks
  Tensor received;                          // [B,H,Tk]: the sum of the weights that a key has in all rows
  // [B,H,Tk]: received over what uniform attention would give the key, the sum of 1 / (the number of keys that i sees)
  // over the queries i that see it: 1 for uniform attention, less the sinks' share. 0 for a key that nobody sees.
  Tensor lift;
  // [B,H,R,C] (with query_starts [sequences,H,R,C], a shorter sequence in the first rows and columns). map: the sum of
  // a block's weights over its keys, their mean over its queries that see a key: where a query there looks. Its rows
  // sum to 1, less the sinks' share. map_max: the largest weight of the block.
  std::optional<Tensor> map = {}, map_max = {};
  // With key_sizes, the same of what is carried.
  std::optional<Tensor> carried_top_keys = {}, carried_top_weights = {}, carried_received = {}, carried_map = {},
                        carried_map_max = {};
};

// One of them: how it is called, here, in recordings, files and Python, and where AttentionSummary has it.
struct ATTEND_API SummaryStatistic {
  enum class Shape : std::uint8_t { top, rows, keys, map };
  enum class Needs : std::uint8_t { nothing, offset, sinks, key_sizes };  // without which it is not given

  std::string_view name;
  Shape shape;
  std::string_view meaning;                   // in one line
  Tensor AttentionSummary::*value = nullptr;  // or `optional`
  std::optional<Tensor> AttentionSummary::*optional = nullptr;
  Needs needs = Needs::nothing;

  bool is_index() const;  // i64: keys
  // Null where it is not given.
  const Tensor* in(const AttentionSummary& summary) const;
};
// "[B,H,Tq,top]", "[B,H,Tq]", "[B,H,Tk]", "[B,H,R,C]".
ATTEND_API std::string_view name_of(SummaryStatistic::Shape shape);
// All of them, in the order in which AttentionSummary has them. What makes, records, writes and shows them goes through
// this list.
ATTEND_API std::span<const SummaryStatistic> summary_statistics();

// q [B,H,Tq,D], k [B,Hkv,Tk,D], lse [B,H,Tq] as attention() gave it for the same options; null: computed first, without
// touching values. Axes, dtypes and options as in attention(), and its errors; bad_shape and bad_dtype for lse and
// lse_low, bad_value for top < 0 and map sizes < 1. Bits: the same for any number of threads and any batch.
// A row of NaN has NaN, and no top keys.
ATTEND_API AttentionSummary attention_summary(const View& q, const View& k, const std::optional<View>& lse,
                                              const AttentionOptions& options = {}, const SummaryOptions& summary = {});

// What attention_summary() does with arguments of these shapes: path, items of work, threads, scratch_bytes besides the
// results, flops. has_lse: lse is given. Where some |lse| asks for its rows' sums again, that takes memory of its own.
ATTEND_API AttentionPlan plan_summary(const Dims& q, const Dims& k, DType dtype = DType::f32,
                                      const AttentionOptions& options = {}, const SummaryOptions& summary = {},
                                      bool has_lse = true);

// Which part of the weights. Not given: all queries, all keys.
struct ATTEND_API WeightsOptions {
  OptionalView lse_low = {};
  std::optional<Range> queries = {}, keys = {};
  OptionalView key_sizes = {};  // as SummaryOptions has them, of all keys: what is carried in place of weights
};

// w(i,j) for the queries and keys in those ranges, [B,H,queries,keys]; 0 for pairs that are not visible. Arguments and
// errors as of attention_summary(); bad_value for a range that is not within [0,Tq] or [0,Tk].
ATTEND_API Tensor attention_weights(const View& q, const View& k, const std::optional<View>& lse,
                                    const AttentionOptions& options = {}, const WeightsOptions& part = {});

// The same of q [B,H,Tq,D] over the cache's keys, where they lie; options and errors as of attention() over it, which
// gives its lse. The bits are those over the same keys in one tensor, but for i8, whose logits are attention()'s.
ATTEND_API Tensor attention_weights(const View& q, const KvCache& cache, const std::optional<View>& lse,
                                    const AttentionOptions& options = {}, const WeightsOptions& part = {});

// The same of single pairs, i64 [P,2] of a query and a key each: [B,H,P].
ATTEND_API Tensor attention_weights_of(const View& pairs, const View& q, const View& k, const std::optional<View>& lse,
                                       const AttentionOptions& options = {}, const std::optional<View>& lse_low = {},
                                       const std::optional<View>& key_sizes = {});

// The map of a part alone, in blocks that are counted from its first query and key, as AttentionSummary has them. Its
// rows sum to what the queries give to the part's keys. Throws bad_value where query_starts are given.
struct ATTEND_API AttentionMap {
  Tensor map, map_max;  // [B,H,R,C]
};
ATTEND_API AttentionMap attention_map(MapSize blocks, const View& q, const View& k, const std::optional<View>& lse,
                                      const AttentionOptions& options = {}, const WeightsOptions& part = {});

}  // namespace attend::inline v0
