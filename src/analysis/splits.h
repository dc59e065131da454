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

namespace attend::inline v0::analysis {

// A pass over a text, up to and with the last of the pieces' layers. With what a cache, or null, has before them, over
// their rows alone. Throws bad_value for another text's cache, and for one where a model is no decoder alone.
void pass_of(std::string_view function, const Model& model, const Text& text, const ModelCache* cache,
             RowPieces& pieces);

class SplittingScore {
 public:
  // Throws as explain_score(), but for a key that the query does not see.
  SplittingScore(const Model& model, const Text& text, Head head, std::int64_t query, std::int64_t key,
                 const ScoreOptions& options);

  std::int64_t layer() const { return layer_; }
  bool of_encoder() const { return options_.attention == AttentionKind::encoder; }
  // Those that may be looked at, rising.
  std::vector<std::int64_t> rows() const;
  // Of a pass that has gone through layer(), and of these rows or more. also: called with each part, too.
  ScoreSplit split(const RowPieces& pieces, const PartBody& also = {}) const;

 private:
  const Model::Parts& parts_;
  const ScoreOptions& options_;
  std::int64_t tokens_ = 0, layer_ = 0, head_ = 0, query_ = 0, key_ = 0, against_ = -1;
};

// What a head reads in a row along a direction of its z, [Dv].
class SplittingValue {
 public:
  // Of a pass that has gone through the head's layer.
  SplittingValue(const Model::Parts& parts, const RowPieces& pieces, Head head, std::int64_t key, Tensor direction);

  // Each part of for_each_part().
  void add(const AttributionPart& which, const Tensor& part);
  // parts, rest and value alone.
  ValueSplit take();

 private:
  Tensor of_key(const Tensor& rows) const;
  double along(const Tensor& row, bool biases) const;

  const models::HeadRows rows_;
  Tensor weight_, direction_;
  std::int64_t first_ = 0, row_ = 0;  // of the projection's rows, and the key's of the pieces'
  std::optional<HeldNorm> reads_by_;
  ValueSplit out_;
};

}  // namespace attend::inline v0::analysis
