// explain_score() and explain_value() of a pass that others look at, too.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "analysis/row_parts.h"
#include "analysis/texts.h"
#include "attend/score_split.h"
#include "models/layer_parts.h"
#include "models/model.h"

namespace attend::inline v1::analysis {

// A pass over a text, up to and with the last of the pieces' layers. With what a cache, or null, has before them, over
// their rows alone. Throws bad_value for another text's cache, and for one where a model is no decoder alone.
void pass_of(std::string_view function, const Model& model, const Text& text, const ModelCache* cache,
             RowPieces& pieces);

// Throws bad_value for heads by token that are none of the first layers', and for such with a cache.
void check_by_token(std::string_view function, std::span<const Head> by_token, const ModelCache* cache,
                    std::int64_t layers, std::int64_t heads);

class SplittingScore {
 public:
  // Throws as explain_score(), but for a key that the query does not see.
  SplittingScore(const Model& model, const Text& text, Head head, std::int64_t query, std::int64_t key,
                 const ScoreOptions& options);

  std::int64_t layer() const { return head_.first; }
  ReadBy read_by() const;
  bool crosses() const { return options_.attention == AttentionKind::cross; }
  // Those that may be looked at, rising, of the query's text; and of the encoder's, where the keys are of that.
  std::vector<std::int64_t> rows() const;
  std::vector<std::int64_t> memory_rows() const;
  // What the pass goes on from; null: from the beginning.
  const ModelCache* cache() const;
  // Of a pass that has gone through layer(), and of these rows or more. also: called with each part of the query's
  // text, too.
  ScoreSplit split(const RowPieces& queries, const RowPieces* memory = nullptr, const PartBody& also = {}) const;

 private:
  std::vector<std::int64_t> with_keys(std::vector<std::int64_t> rows, std::int64_t count) const;

  const Model::Parts& parts_;
  Text text_;
  const ScoreOptions& options_;
  Head head_;
  std::int64_t tokens_ = 0, keys_ = 0, query_ = 0, key_ = 0, against_ = -1;  // tokens_, keys_: of either's text
};

// What a head reads in a row along a direction of its z, [Dv].
class SplittingValue {
 public:
  // Of a pass that has gone through the head's layer; of one over the memory that it reads, of its cross-attention.
  SplittingValue(const Model::Parts& parts, const RowPieces& pieces, Head head, std::int64_t key, Tensor direction);

  // Each part of for_each_part().
  void add(const AttributionPart& which, const Tensor& part);
  // parts, rest and value alone.
  ValueSplit take();

 private:
  Tensor of_key(const Tensor& rows) const;
  double along(const Tensor& row, bool biases) const;

  models::HeadRows rows_;
  Tensor weight_, direction_;
  std::int64_t first_ = 0, row_ = 0;  // of the projection's rows, and the key's of the pieces'
  std::optional<HeldNorm> reads_by_;
  ValueSplit out_;
};

}  // namespace attend::inline v1::analysis
