// A recording as tables, words, JSON, CSV and pictures. Layers are given by index, heads by the model's number.
#pragma once

#ifdef ATTEND_WITHOUT_PICTURES
#error "attend was built with ATTEND_PICTURES=OFF: it has no look.h"
#endif

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attend/api.h"
#include "attend/picture.h"
#include "attend/recording.h"

namespace attend::inline v1 {

// A head and its scores, which have the item and the model's number.
//
// By norm, a number is what each key adds to a query's output, as a share of what the head's queries take on average: 1
// is all that a row takes, as for weights. Functions throw bad_value for norm if the recording has no key_sizes.
struct ATTEND_API RecordedHead {
  std::int64_t layer = 0;
  HeadScores scores = {};
  WeighedBy by = WeighedBy::weight;
};
// All heads in layer order, or those of one layer, or one head.
ATTEND_API std::vector<RecordedHead> heads_of(const Recording& recording, std::int64_t item = 0,
                                              std::optional<std::int64_t> layer = {},
                                              std::optional<std::int64_t> head = {}, WeighedBy by = WeighedBy::weight);
// "18.6"
ATTEND_API std::string name_of(const Recording& recording, const RecordedHead& head);

// Largest score (HeadStatistic) first, unknown ones last. Throws bad_value for other names, and with the reason if no
// head's is known.
ATTEND_API void sort_heads(const Recording& recording, std::vector<RecordedHead>& heads, std::string_view score);
// Keeps heads with the label, also next to a sink. Throws bad_value if it is unknown whether a head has it.
ATTEND_API void keep_label(const Recording& recording, std::vector<RecordedHead>& heads, std::string_view label);
// Why these heads have no labels; empty if one has.
ATTEND_API std::string why_no_labels(const std::vector<RecordedHead>& heads);
// A head's main label: "sink" only if no other describes it. None if nothing is known.
ATTEND_API std::optional<HeadLabel> first_label(const HeadScores& scores);

// A query's largest weights, descending; token: if known.
struct ATTEND_API QueryRow {
  struct Key {
    std::int64_t key = 0;
    std::optional<std::string> token = {};
    double weight = 0;
  };
  std::int64_t query = 0;
  std::optional<std::string> token = {};
  double entropy = 0;
  std::optional<double> distance = {}, sink_weight = {};
  std::vector<Key> top = {};
};
ATTEND_API QueryRow query_row(const Recording& recording, std::int64_t layer, std::int64_t head, std::int64_t query,
                              std::int64_t item = 0, WeighedBy by = WeighedBy::weight);

// A link from a query to the key with its largest weight, between words only. Excluded are added tokens ("[CLS]"),
// punctuation, the head's sink, a decoder's first token, and within one text keys less than 2 away.
struct ATTEND_API Link {
  std::int64_t query = 0, key = 0;
  double weight = 0;
};
struct ATTEND_API TellingHead {
  RecordedHead head;
  std::vector<Link> links;  // descending, one for each query
};
// Heads by the mean weight of their strongest links (three, or for a long text a quarter), descending, at most `most`.
// Heads without links are left out: all of them if tokens are unknown.
ATTEND_API std::vector<TellingHead> telling_heads(const Recording& recording, const std::vector<RecordedHead>& heads,
                                                  std::size_t most);
// The strongest links of these heads from each query, word or not, descending, at most `most`. Cross-attention heads
// have none.
struct ATTEND_API HeadLink {
  std::int64_t layer = 0, head = 0;
  Link link;
};
ATTEND_API std::vector<std::vector<HeadLink>> query_links(const Recording& recording,
                                                          const std::vector<RecordedHead>& heads, std::size_t most);
// Whether a tokenizer added it: "[CLS]" or "<|endoftext|>".
ATTEND_API bool is_added(std::string_view token);

// Model, tokens, layers and these heads, and the query if given (docs/json.md).
ATTEND_API std::string heads_json(const Recording& recording, std::int64_t item, const std::vector<RecordedHead>& heads,
                                  const std::optional<QueryRow>& query = {});
// A line for each head: layer, number, name, labels, scores, excesses. Unknown values are empty.
ATTEND_API std::string heads_csv(const Recording& recording, const std::vector<RecordedHead>& heads);

struct ATTEND_API LookOptions {
  std::int64_t item = 0;                    // of the batch
  WeighedBy by = WeighedBy::weight;         // named in captions
  PictureScale scale = PictureScale::sqrt;  // shows small weights beside a sink's
  std::optional<std::string> title = {};    // default: model, head and labels
  // A part of the weights, pair by pair. If only blocks were kept, it throws what Recording::weights() throws.
  std::optional<Range> queries = {}, keys = {};
  // Maps with at most this many rows and columns: blocks are merged, summed over keys and averaged over queries.
  std::optional<MapSize> most = {};
};

// The numbers behind maps. This and the following functions throw bad_value for a layer, head, item or range that does
// not exist.
struct ATTEND_API WeightMaps {
  Tensor values;               // [H,rows,columns], f32; NaN: only hidden pairs
  Range queries, keys;         // index begin + i is in row or column floor(i rows / (end - begin))
  std::string reduction = {};  // how pairs became a block's value; empty: each cell is a pair
};
// For all heads of a layer, or one. If q and k were kept, parts and up to 64 queries and keys are single pairs.
ATTEND_API WeightMaps weight_maps(const Recording& recording, std::int64_t layer, std::optional<std::int64_t> head = {},
                                  const LookOptions& options = {});

// What a head gives to each key, or in a long text to each block of keys. Pairs hidden by causality and windows are
// hatched, and so are blocks of only such pairs. If q and k were kept, up to 64 queries and keys are drawn singly.
ATTEND_API Picture head_picture(const Recording& recording, std::int64_t layer, std::int64_t head,
                                const LookOptions& options = {});
// The same for all heads of a layer, side by side.
ATTEND_API Picture layer_picture(const Recording& recording, std::int64_t layer, const LookOptions& options = {});
// All maps at once, layers x heads; no layers given: all. Throws bad_value if they have different heads.
ATTEND_API Picture recording_picture(const Recording& recording, std::span<const std::int64_t> layers = {},
                                     const LookOptions& options = {});
// Tokens coloured by what each received, its lift or its row's entropy: `values` is "received", "lift" or "entropy".
// Unknown tokens are shown as indices. By norm only "received", as lift would be the same.
ATTEND_API Picture head_strip(const Recording& recording, std::int64_t layer, std::int64_t head,
                              std::string_view values, const LookOptions& options = {});
// Lines from each query in `queries` to its top keys, without a sink head's sink, which would hide all others.
ATTEND_API Picture head_links(const Recording& recording, std::int64_t layer, std::int64_t head,
                              const LookOptions& options = {});

}  // namespace attend::inline v1
