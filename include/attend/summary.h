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
#include <string>
#include <string_view>
#include <vector>

#include "attend/attention.h"
#include "attend/tensor.h"

#pragma GCC visibility push(default)

namespace attend {

// A map of R x C blocks: query i is in row floor(i R / Tq) of it, R being at most Tq, and keys likewise.
struct MapSize {
  std::int64_t rows = 0, columns = 0;
};

struct SummaryOptions {
  // [B,H,Tq], lse's dtype, as the forward gave it beside lse. Without it, a row whose |lse| is 64 or more is summed
  // again, since f32 then holds lse to 2e-6 at best.
  std::optional<View> lse_low = {};
  std::int64_t top = 8;             // how many of a row's largest weights, at most 2^31 - 1; 0: none
  std::optional<MapSize> map = {};  // not given: none
  // Told the share that is done, from 0 to 1, now and then, on the calling thread. It may throw: the call ends.
  std::function<void(double)> progress = {};
};

// f32 (f64 for f64 inputs) but for top_keys. Keys are numbered along k's axis, also where query_starts cut it.
struct AttentionSummary {
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
};

// q [B,H,Tq,D], k [B,Hkv,Tk,D], lse [B,H,Tq] as attention() gave it for the same options; null: computed first, without
// touching values. Axes, dtypes and options as in attention(), and its errors; bad_shape and bad_dtype for lse and
// lse_low, bad_value for top < 0 and map sizes < 1. Bits: the same for any number of threads and any batch.
// A row of NaN has NaN, and no top keys.
AttentionSummary attention_summary(const View& q, const View& k, const std::optional<View>& lse,
                                   const AttentionOptions& options = {}, const SummaryOptions& summary = {});

// What attention_summary() does with arguments of these shapes: path, items of work, threads, scratch_bytes besides the
// results, flops. has_lse: lse is given. Where some |lse| asks for its rows' sums again, that takes memory of its own.
AttentionPlan plan_summary(const Dims& q, const Dims& k, DType dtype = DType::f32, const AttentionOptions& options = {},
                           const SummaryOptions& summary = {}, bool has_lse = true);

// Which part of the weights. Not given: all queries, all keys.
struct WeightsOptions {
  std::optional<View> lse_low = {};
  std::optional<Range> queries = {}, keys = {};
};

// w(i,j) for the queries and keys in those ranges, [B,H,queries,keys]; 0 for pairs that are not visible. Arguments and
// errors as of attention_summary(); bad_value for a range that is not within [0,Tq] or [0,Tk].
Tensor attention_weights(const View& q, const View& k, const std::optional<View>& lse,
                         const AttentionOptions& options = {}, const WeightsOptions& part = {});

// The same of single pairs, i64 [P,2] of a query and a key each: [B,H,P].
Tensor attention_weights_of(const View& pairs, const View& q, const View& k, const std::optional<View>& lse,
                            const AttentionOptions& options = {}, const std::optional<View>& lse_low = {});

// The map of a part alone, in blocks that are counted from its first query and key, as AttentionSummary has them. Its
// rows sum to what the queries give to the part's keys. Throws bad_value where query_starts are given.
struct AttentionMap {
  Tensor map, map_max;  // [B,H,R,C]
};
AttentionMap attention_map(MapSize blocks, const View& q, const View& k, const std::optional<View>& lse,
                           const AttentionOptions& options = {}, const WeightsOptions& part = {});

// What one head does. Means are over the queries that see a key.
struct HeadScores {
  std::int64_t batch = 0, head = 0;
  // The largest mean weight that a key has among the queries that see it, and that key (after Gu et al. 2024), of the
  // keys that at least half as many queries see as see any. Queries that see one key alone are not counted.
  double sink = 0;
  std::int64_t sink_key = -1;
  double previous = 0;  // mean weight of the key before the level one (Olsson et al. 2022)
  // Mean of the weights of earlier keys with the query's own token, and of those that come right after such a key
  // (TransformerLens' head detector); where tokens are given.
  std::optional<double> duplicate = {}, induction = {};
  double local = 0;                     // mean of the weights within 8 keys of the level one
  double entropy = 0;                   // mean, nats
  double effective_keys = 0;            // exp(entropy)
  std::optional<double> distance = {};  // mean; absent as in AttentionSummary, and then previous and local are 0
  // The first that holds of: "sink" > 0.3, "previous" > 0.4, "induction" > 0.3, "local" > 0.8; else "broad".
  std::string_view kind = "broad";
};

// For each item of the batch and each query head. tokens: i64 [Tk] or [B,Tk], the id of each key's token; query i's own
// is that of key i + offset. Throws as attention_summary(), bad_shape and bad_dtype for tokens, bad_value where tokens
// are given and no offset can be known, and for query_starts.
std::vector<HeadScores> head_scores(const View& q, const View& k, const std::optional<View>& lse,
                                    const AttentionOptions& options = {}, const std::optional<View>& tokens = {},
                                    const std::optional<View>& lse_low = {});

}  // namespace attend

#pragma GCC visibility pop
