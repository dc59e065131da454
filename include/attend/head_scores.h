// What each head does: a score for each kind of behaviour, its excess over uniform attention, and labels.
// docs/inside.md defines them. w(i,j) are the weights of attention_summary() in summary.h.
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

namespace attend::inline v1 {

// A number for each behaviour of a head (docs/inside.md); absent if unknown.
struct ATTEND_API HeadKinds {
  std::optional<double> sink = {}, self = {}, previous = {}, duplicate = {}, induction = {}, local = {};

  static const std::vector<std::string_view>& names();  // in this order
  // The number with that name. Throws bad_value.
  const std::optional<double>& of(std::string_view name) const;
};

// A head's label and its number: the excess that earned it, or for "broad", "focused" and "other" the effective keys.
struct ATTEND_API HeadLabel {
  std::string_view name;
  double value = 0;

  bool is_excess() const;  // whether value is an excess
};

// What a head does with the weights that its sink leaves: rows scaled by 1 / (1 - w(i, sink_key)).
struct ATTEND_API WithoutSink {
  HeadKinds excess = {};  // without `sink`
  double effective_keys = 0, keys_seen = 0;
  std::int64_t rows_left_out = 0;  // rows that keep less than 0.01 of their weights
  std::vector<HeadLabel> labels = {};
};

// What one head does. Means are over queries that see a key.
struct ATTEND_API HeadScores {
  // The fewest rows for a known excess.
  static constexpr std::int64_t least_rows = 8;

  std::int64_t batch = 0, head = 0;
  // The largest mean weight of a key over the queries that see it, and that key (after Gu et al. 2024). Only keys seen
  // by at least half of the queries that see any count; queries that see a single key don't. -1: none.
  std::optional<double> sink = {};
  std::int64_t sink_key = -1;
  // Mean weight of the level key, and of the key before it (Olsson et al. 2022), over the queries that see it.
  std::optional<double> self = {}, previous = {};
  // Mean weight of earlier keys with the query's own token, and of keys right after those (TransformerLens' head
  // detector). Need tokens.
  std::optional<double> duplicate = {}, induction = {};
  std::optional<double> local = {};     // mean weight within 8 keys of the level one
  double entropy = 0;                   // mean, nats
  double effective_keys = 0;            // exp(entropy)
  std::optional<double> distance = {};  // mean; absent as in AttentionSummary, together with self, previous and local
  std::int64_t rows = 0;                // queries that see a key
  double keys_seen = 0;                 // exp of the mean of ln(keys seen); NaN in recordings of version 1
  // (score - u) / (m - u), with u the score of uniform attention over the same keys and m the highest possible. 0 is
  // uniform attention at every length. `local` excludes the level key and the one before. Absent if fewer than 8
  // queries see a key that counts, or m - u < 0.1.
  HeadKinds excess = {};
  std::optional<WithoutSink> without_sink = {};  // if the label "sink" applies
  // Labels, largest excess first: "self", "previous", "duplicate", "induction" and "sink" above 0.3, "local" above 0.5
  // if neither of the first two applies. Otherwise one of "broad" (effective_keys above half of keys_seen), "focused"
  // (below 3) and "other". Empty: unknown.
  std::vector<HeadLabel> labels = {};
  // Whether it is in labels, or in without_sink's.
  bool has_label(std::string_view name) const;
  // "sink .81; besides: induction .69", "induction .71, sink .35", "broad", "unknown"
  std::string label_text() const;
};

// A number of HeadScores by name.
struct ATTEND_API HeadStatistic {
  std::string_view name, heading;  // heading: above a table's column
  int decimals;                    // decimals in tables; 0: an integer
  std::string_view meaning;        // in one line
  // Absent if unknown.
  std::optional<double> (*of)(const HeadScores& scores);
};
// All of them in display order. Code that shows, sorts or writes heads loops over this list.
ATTEND_API std::span<const HeadStatistic> head_statistics();

// Judge heads by their weights, or by what they carry ("norm").
enum class WeighedBy : std::uint8_t { weight, norm };
// "weight", "norm"
ATTEND_API std::string_view name_of(WeighedBy by);
// Throws bad_value for other names.
ATTEND_API WeighedBy weighed_by(std::string_view name);

// Scores for each batch item and query head. tokens: i64 [Tk] or [B,Tk], ids of the keys; query i's own token is that
// of key i + offset. Same errors as attention_summary(), bad_shape and bad_dtype for tokens, and bad_value for tokens
// without a known offset, and for query_starts.
//
// key_sizes, as in SummaryOptions, gives scores, excesses and labels by norm: a weight is then w(i,j) key_sizes(j) over
// the mean total that a row carries, also for uniform attention. Entropy, distance and what follows from them stay
// those of the weights, and without_sink is absent.
ATTEND_API std::vector<HeadScores> head_scores(const View& q, const View& k, const std::optional<View>& lse,
                                               const AttentionOptions& options = {},
                                               const std::optional<View>& tokens = {},
                                               const std::optional<View>& lse_low = {},
                                               const std::optional<View>& key_sizes = {});

}  // namespace attend::inline v1
