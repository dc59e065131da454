// What each head does: a number for each thing that it may do, its excess beyond uniform attention, and its labels
// (docs/inside.md defines them). w(i,j) are the weights of attention_summary() in summary.h.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attend/api.h"
#include "attend/attention.h"
#include "attend/tensor.h"

namespace attend::inline v0 {

// A number for each thing that a head may do (docs/inside.md defines them); absent where it is not known.
struct ATTEND_API HeadKinds {
  std::optional<double> sink = {}, self = {}, previous = {}, duplicate = {}, induction = {}, local = {};

  static const std::vector<std::string_view>& names();  // in that order
  // Of that name. Throws bad_value.
  const std::optional<double>& of(std::string_view name) const;
};

// What a head is called, and by how much: the excess that made it one; of "broad", "focused" and "other" the effective
// keys.
struct ATTEND_API HeadLabel {
  std::string_view name;
  double value = 0;

  bool is_excess() const;  // the value
};

// What a head does with the weights that its sink leaves: rows scaled by 1 / (1 - w(i, sink_key)).
struct ATTEND_API WithoutSink {
  HeadKinds excess = {};  // without sink
  double effective_keys = 0, keys_seen = 0;
  std::int64_t rows_left_out = 0;  // that keep less than 0.01 of their weights
  std::vector<HeadLabel> labels = {};
};

// What one head does. Means are over the queries that see a key.
struct ATTEND_API HeadScores {
  // An excess of fewer rows is not known.
  static constexpr std::int64_t least_rows = 8;

  std::int64_t batch = 0, head = 0;
  // The largest mean weight that a key has among the queries that see it, and that key (after Gu et al. 2024), of the
  // keys that at least half as many queries see as see any. Queries that see one key alone are not counted; -1: none.
  std::optional<double> sink = {};
  std::int64_t sink_key = -1;
  // Mean weights of the level key and of the one before it (Olsson et al. 2022), over the queries that see it.
  std::optional<double> self = {}, previous = {};
  // Means of the weights of earlier keys with the query's own token, and of those that come right after such a key
  // (TransformerLens' head detector); where tokens are given.
  std::optional<double> duplicate = {}, induction = {};
  std::optional<double> local = {};     // mean of the weights within 8 keys of the level one
  double entropy = 0;                   // mean, nats
  double effective_keys = 0;            // exp(entropy)
  std::optional<double> distance = {};  // mean; absent as in AttentionSummary, as then self, previous and local are
  std::int64_t rows = 0;                // queries that see a key
  double keys_seen = 0;                 // exp of their mean ln(keys that they see); NaN in recordings of version 1
  // (score - u) / (m - u): u what uniform attention over the same keys would score, m the most that could be; 0 is
  // uniform attention at every length. Of local without the level key and the one before it. Absent where fewer than 8
  // queries see a key that counts, or m - u < 0.1.
  HeadKinds excess = {};
  std::optional<WithoutSink> without_sink = {};  // where the label "sink" holds
  // The largest excess first: those of "self" > 0.3, "previous" > 0.3, "duplicate" > 0.3, "induction" > 0.3, "sink" >
  // 0.3, and, where neither of the first two holds, "local" > 0.5. Else one of "broad" (effective_keys above half of
  // keys_seen), "focused" (below 3) and "other". Empty: not known.
  std::vector<HeadLabel> labels = {};
  // Whether it is among them, or among those without the sink.
  bool has_label(std::string_view name) const;
  // "sink .81; besides: induction .69", "induction .71, sink .35", "broad", "unknown".
  std::string label_text() const;
};

// A number of HeadScores, by its name there.
struct ATTEND_API HeadStatistic {
  std::string_view name, heading;  // heading: above a table's column
  int decimals;                    // that a table shows; 0: a whole number
  std::string_view meaning;        // in one line
  // Absent where it is not known.
  std::optional<double> (*of)(const HeadScores& scores);
};
// All of them, in the order in which they are shown. What shows, sorts and writes heads goes through this list.
ATTEND_API std::span<const HeadStatistic> head_statistics();

// What heads are told by: how much of their weight goes somewhere, or how much of what they carry ("norm").
enum class WeighedBy : std::uint8_t { weight, norm };
// "weight", "norm".
ATTEND_API std::string_view name_of(WeighedBy by);
// Throws bad_value for another name.
ATTEND_API WeighedBy weighed_by(std::string_view name);

// For each item of the batch and each query head. tokens: i64 [Tk] or [B,Tk], the id of each key's token; query i's own
// is that of key i + offset. Throws as attention_summary(), bad_shape and bad_dtype for tokens, bad_value where tokens
// are given and no offset can be known, and for query_starts.
// key_sizes: as SummaryOptions has them. Scores, excesses and labels are by norm then: a weight is w(i,j) key_sizes(j)
// over the mean that a row carries in all, uniform attention's likewise. Entropy, distance and what follows from them
// stay those of the weights, and without_sink is not given.
ATTEND_API std::vector<HeadScores> head_scores(const View& q, const View& k, const std::optional<View>& lse,
                                               const AttentionOptions& options = {},
                                               const std::optional<View>& tokens = {},
                                               const std::optional<View>& lse_low = {},
                                               const std::optional<View>& key_sizes = {});

}  // namespace attend::inline v0
