// A recording as it is looked at: its heads as a table, in words, as JSON and CSV, and as pictures. A layer is given by
// its place in the recording, a head by the model's own number.
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

namespace attend::inline v0 {

// ---- Heads ----

// What is looked at by norm is what each key adds to a query's output, as a share of what the head's queries take in
// the mean: 1 is a row's all, as it is of weights. It throws bad_value for a recording that has no key_sizes.

// One head and what it does; scores has the item and the model's own number.
struct ATTEND_API RecordedHead {
  std::int64_t layer = 0;
  HeadScores scores = {};
  WeighedBy by = WeighedBy::weight;
};
// In the layers' order; of one layer, or one head of it, alone.
ATTEND_API std::vector<RecordedHead> heads_of(const Recording& recording, std::int64_t item = 0,
                                              std::optional<std::int64_t> layer = {},
                                              std::optional<std::int64_t> head = {}, WeighedBy by = WeighedBy::weight);
// "18.6"
ATTEND_API std::string name_of(const Recording& recording, const RecordedHead& head);

// The largest value of the score (HeadStatistic) first, heads that have none last. Throws bad_value for another name,
// and where it is known of no head: with the reason.
ATTEND_API void sort_heads(const Recording& recording, std::vector<RecordedHead>& heads, std::string_view score);
// Leaves those with the label, also beside a sink. Throws bad_value where it is not known whether a head has it.
ATTEND_API void keep_label(const Recording& recording, std::vector<RecordedHead>& heads, std::string_view label);
// Why these heads have no labels; empty where one has.
ATTEND_API std::string why_no_labels(const std::vector<RecordedHead>& heads);
// What a head is called first of all: a sink only where it does nothing else by which it could be called. None where
// nothing is known.
ATTEND_API std::optional<HeadLabel> first_label(const HeadScores& scores);

// ---- Words ----

// A query's largest weights, falling; token: where it is known.
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

// From a query to the key that it gives most to, among words: not what the tokenizer added ("[CLS]", "<s>"), not marks,
// not the head's sink or a decoder's first token, and within a text 2 or more apart.
struct ATTEND_API Link {
  std::int64_t query = 0, key = 0;
  double weight = 0;
};
struct ATTEND_API TellingHead {
  RecordedHead head;
  std::vector<Link> links;  // falling, a query once
};
// Heads by the mean weight of their strongest links, falling, at most so many: three links, of a long text a quarter of
// them. Heads without a link are left out: all, where tokens are not known.
ATTEND_API std::vector<TellingHead> telling_heads(const Recording& recording, const std::vector<RecordedHead>& heads,
                                                  std::size_t most);
// Of each query of a text, also of one that is no word, the strongest links of these heads, falling, at most so many.
// The heads of cross-attention have none here.
struct ATTEND_API HeadLink {
  std::int64_t layer = 0, head = 0;
  Link link;
};
ATTEND_API std::vector<std::vector<HeadLink>> query_links(const Recording& recording,
                                                          const std::vector<RecordedHead>& heads, std::size_t most);
// Whether a tokenizer added it to the text: "[CLS]", "<s>", "<|endoftext|>".
ATTEND_API bool is_added(std::string_view token);

// ---- Files ----

// Model, tokens, layers and these heads, with the query where one is given: docs/json.md.
ATTEND_API std::string heads_json(const Recording& recording, std::int64_t item, const std::vector<RecordedHead>& heads,
                                  const std::optional<QueryRow>& query = {});
// A line for each head: its layer, number, name, labels, scores and excesses. What is not known is empty.
ATTEND_API std::string heads_csv(const Recording& recording, const std::vector<RecordedHead>& heads);

// ---- Pictures ----

struct ATTEND_API LookOptions {
  std::int64_t item = 0;                    // of the batch
  WeighedBy by = WeighedBy::weight;         // captions say which
  PictureScale scale = PictureScale::sqrt;  // small weights are seen beside a sink's
  std::optional<std::string> title = {};    // not given: the model, the head and its labels
  // A part of the weights, each pair by itself: throws as Recording::weights() where only blocks were kept.
  std::optional<Range> queries = {}, keys = {};
  // Maps in at most so many rows and columns: blocks are merged, whose keys are added up and whose queries averaged.
  std::optional<MapSize> most = {};
};

// Each that follows throws bad_value for a layer, head, item or range that is not there, and pictures throw as their
// own functions do.

// The numbers that maps are drawn of.
struct ATTEND_API WeightMaps {
  Tensor values;               // [H,rows,columns], f32; a cell that holds hidden pairs alone has NaN
  Range queries, keys;         // index begin + i is in row, or column, floor(i rows / (end - begin))
  std::string reduction = {};  // how pairs became a block's value; empty: each cell is a pair
};
// Of all heads of a layer, or of one. Up to 64 queries and keys, and parts, are pairs where q and k were kept.
ATTEND_API WeightMaps weight_maps(const Recording& recording, std::int64_t layer, std::optional<std::int64_t> head = {},
                                  const LookOptions& options = {});

// What a head gives to each key, or of a long text to each block of them. Pairs that causality and windows hide are
// hatched, and of a map of blocks those that hold such pairs alone. Up to 64 queries and keys are drawn one by one
// where q and k were kept.
ATTEND_API Picture head_picture(const Recording& recording, std::int64_t layer, std::int64_t head,
                                const LookOptions& options = {});
// The same of all heads of a layer, side by side.
ATTEND_API Picture layer_picture(const Recording& recording, std::int64_t layer, const LookOptions& options = {});
// All maps at a glance, layers x heads; no layers: all. Throws bad_value where they have different heads.
ATTEND_API Picture recording_picture(const Recording& recording, std::span<const std::int64_t> layers = {},
                                     const LookOptions& options = {});
// The tokens on the colour of what each received, of its lift or of its row's entropy: `values` is that name. Indices
// stand for tokens that are not known. By norm there is `received` alone: lift would be the same.
ATTEND_API Picture head_strip(const Recording& recording, std::int64_t layer, std::int64_t head,
                              std::string_view values, const LookOptions& options = {});
// Lines from each query, of the range `queries`, to its top keys, but for the sink of a head that is one: it would hide
// all
ATTEND_API Picture head_links(const Recording& recording, std::int64_t layer, std::int64_t head,
                              const LookOptions& options = {});

}  // namespace attend::inline v0
