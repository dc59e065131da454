// Where attention goes, without the weight matrix: each query's top keys and entropy, what each key receives, block
// maps, and any part of the weights exactly. Memory is that of the results.
//
//     const attend::AttentionSummary summary = attend::attention_summary(q, k, result.lse.view(), options, {.top = 3});
//
// The weights are w(i,j) = exp(s(i,j) - lse(i)), with s the input of the softmax (scaled, softcapped, biased, masked)
// and lse from attention(). All numbers are for each query head, and before dropout. A row that sees nothing gives 0
// and counts in no mean. Values in masked keys reach no number.
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

namespace attend::inline v1 {

// The size of a map of R x C blocks: query i is in row floor(i R / Tq), R at most Tq; likewise for keys.
struct ATTEND_API MapSize {
  std::int64_t rows = 0, columns = 0;
};

struct ATTEND_API SummaryOptions {
  // [B,H,Tq], lse's dtype, from the same forward as lse. Without it, rows with |lse| of 64 or more are summed again,
  // because f32 then holds lse to 2e-6 at best.
  OptionalView lse_low = {};
  std::int64_t top = 8;             // how many of a row's largest weights, at most 2^31 - 1; 0: none
  std::optional<MapSize> map = {};  // default: none
  // [B,H,Tk], lse's dtype, 0 or more: the size of what a key carries, such as abs(W_O^h v_j) from key_sizes() in
  // linear.h. Also gives the "carried" results, with w(i,j) key_sizes(j) for w(i,j): the length of what key j adds to
  // query i's output (Kobayashi et al. 2020). The length of a sum is not the sum of the lengths.
  OptionalView key_sizes = {};
  // Called with the share done, 0 to 1, on the calling thread. If it throws, the call ends.
  std::function<void(double)> progress = {};
};

// f32 (f64 for f64 inputs), keys i64. Keys are numbered along k's axis, also with query_starts.
struct ATTEND_API AttentionSummary {
  // [B,H,Tq,top]: a row's largest weights, descending (ties: lower key first), and their keys (i64); 0 and -1 if fewer
  // are visible. Ordered by the weights of attention_weights().
  Tensor top_keys, top_weights;
  // [B,H,Tq]: sum over keys of w (lse - s), nats (Clark et al. 2019, section 3.3); its exp is how many keys are
  // attended to. Excludes a sink's share.
  Tensor entropy;
  // [B,H,Tq]: sum of w |i + offset - j| (Vig and Belinkov 2019). Absent if Tq != Tk and no offset is given.
  std::optional<Tensor> distance = {};
  std::optional<Tensor> sink_weights = {};  // [B,H,Tq]: the sinks' share of a row; only with sinks
  Tensor received;                          // [B,H,Tk]: the sum of a key's weights over all rows
  // [B,H,Tk]: received, divided by what uniform attention would give the key: the sum over the queries i that see it of
  // 1 / (number of keys that i sees). 1 for uniform attention, less the sinks' share; 0 for a key that nobody sees.
  Tensor lift;
  // [B,H,R,C] (with query_starts [sequences,H,R,C], shorter sequences in the first rows and columns). map: weights
  // summed over a block's keys, averaged over its queries that see a key; its rows sum to 1, less the sinks' share.
  // map_max: the block's largest weight.
  std::optional<Tensor> map = {}, map_max = {};
  // With key_sizes: the same for what is carried.
  std::optional<Tensor> carried_top_keys = {}, carried_top_weights = {}, carried_received = {}, carried_map = {},
                        carried_map_max = {};
};

// A result of AttentionSummary: its name everywhere, and its member there.
struct ATTEND_API SummaryStatistic {
  enum class Shape : std::uint8_t { top, rows, keys, map };
  enum class Needs : std::uint8_t { nothing, offset, sinks, key_sizes };  // what it requires

  std::string_view name;
  Shape shape;
  std::string_view meaning;                   // in one line
  Tensor AttentionSummary::*value = nullptr;  // or `optional`
  std::optional<Tensor> AttentionSummary::*optional = nullptr;
  Needs needs = Needs::nothing;

  bool is_index() const;  // i64: keys
  // Null if absent.
  const Tensor* in(const AttentionSummary& summary) const;
};
// "[B,H,Tq,top]", "[B,H,Tq]", "[B,H,Tk]", "[B,H,R,C]"
ATTEND_API std::string_view name_of(SummaryStatistic::Shape shape);
// All results in the order of AttentionSummary. Code that makes, records, writes or shows them loops over this list.
ATTEND_API std::span<const SummaryStatistic> summary_statistics();

// q [B,H,Tq,D], k [B,Hkv,Tk,D], lse [B,H,Tq] from attention() with the same options; null: computed first, without
// values. Axes, dtypes, options and errors as in attention(); also bad_shape and bad_dtype for lse and lse_low,
// bad_value for top < 0 and map sizes < 1. A row of NaN gives NaN and no top keys. Bits: the same for any number of
// threads and any batch.
ATTEND_API AttentionSummary attention_summary(const View& q, const View& k, const std::optional<View>& lse,
                                              const AttentionOptions& options = {}, const SummaryOptions& summary = {});

// The plan of attention_summary(): scratch_bytes exclude the results. has_lse: lse is given. Rows with large |lse| that
// are summed again take extra memory.
ATTEND_API AttentionPlan plan_summary(const Dims& q, const Dims& k, DType dtype = DType::f32,
                                      const AttentionOptions& options = {}, const SummaryOptions& summary = {},
                                      bool has_lse = true);

// Which part of the weights; default: all queries and keys.
struct ATTEND_API WeightsOptions {
  OptionalView lse_low = {};
  std::optional<Range> queries = {}, keys = {};
  OptionalView key_sizes = {};  // as in SummaryOptions, for all keys: gives what is carried instead of weights
};

// w(i,j) for these queries and keys, [B,H,queries,keys]; 0 for hidden pairs. Arguments and errors as in
// attention_summary(); bad_value for a range outside [0,Tq] or [0,Tk].
ATTEND_API Tensor attention_weights(const View& q, const View& k, const std::optional<View>& lse,
                                    const AttentionOptions& options = {}, const WeightsOptions& part = {});

// The same for q [B,H,Tq,D] over a cache's keys, without copying them; options, errors and lse as in attention() over
// it. Bits: those of the same keys in one tensor; for i8 those of attention()'s logits.
ATTEND_API Tensor attention_weights(const View& q, const KvCache& cache, const std::optional<View>& lse,
                                    const AttentionOptions& options = {}, const WeightsOptions& part = {});

// The same for single pairs, i64 [P,2] of query and key: [B,H,P].
ATTEND_API Tensor attention_weights_of(const View& pairs, const View& q, const View& k, const std::optional<View>& lse,
                                       const AttentionOptions& options = {}, const std::optional<View>& lse_low = {},
                                       const std::optional<View>& key_sizes = {});

// The map of a part, with blocks counted from its first query and key. Rows sum to what the queries give to these keys.
// Throws bad_value with query_starts.
struct ATTEND_API AttentionMap {
  Tensor map, map_max;  // [B,H,R,C], as in AttentionSummary
};
ATTEND_API AttentionMap attention_map(MapSize blocks, const View& q, const View& k, const std::optional<View>& lse,
                                      const AttentionOptions& options = {}, const WeightsOptions& part = {});

}  // namespace attend::inline v1
