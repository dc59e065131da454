// What some rows of a text are made of before a layer: the embedding, what each earlier head and MLP wrote, and all
// biases.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "analysis/answers.h"
#include "analysis/held_norm.h"
#include "attend/analysis.h"
#include "models/model.h"

namespace attend::inline v0::analysis {

// Of some rows, rising: what each part before a layer wrote, the norms that it went through, and what the layer makes
// of the stream.
class RowPieces : public models::Watcher {
 public:
  RowPieces(std::vector<std::int64_t> rows, std::int64_t layer) : rows_(std::move(rows)), layer_(layer) {}

  void at(ModelPlace place, std::int64_t layer, const MutableView& values) override {
    const bool before =
        layer < layer_ && (place == ModelPlace::z || place == ModelPlace::cross_z || place == ModelPlace::mlp);
    const bool of_layer =
        layer == layer_ && (place == ModelPlace::residual || place == ModelPlace::z || place == ModelPlace::q ||
                            place == ModelPlace::k || place == ModelPlace::rotated_q || place == ModelPlace::rotated_k);
    if (before || of_layer || (place == ModelPlace::residual && layer == 0))
      kept_.insert_or_assign({place, layer}, gathered(values));
  }
  void attends(const models::AttentionStep& own, const View&, const View&) override {
    if (own.layer == layer_ && !own.cross) step = own;
  }
  void normalises(models::NormPlace place, std::int64_t layer, const models::Norm& norm, const View& x) override {
    if (layer < layer_) norms_.emplace(std::pair(place, layer), HeldNorm(norm, gathered(x)));
  }

  const Tensor* find(ModelPlace place, std::int64_t layer) const {
    const auto found = kept_.find({place, layer});
    return found == kept_.end() ? nullptr : &found->second;
  }
  const Tensor& get(ModelPlace place, std::int64_t layer) const { return kept_.at({place, layer}); }
  const HeldNorm* norm(models::NormPlace place, std::int64_t layer) const {
    const auto found = norms_.find({place, layer});
    return found == norms_.end() ? nullptr : &found->second;
  }
  std::size_t row(std::int64_t of) const {
    return static_cast<std::size_t>(std::ranges::lower_bound(rows_, of) - rows_.begin());
  }
  const std::vector<std::int64_t>& rows() const { return rows_; }
  std::int64_t layer() const { return layer_; }

  models::AttentionStep step = {};

 private:
  Tensor gathered(const View& x) const { return rows_of(x.to(DType::f32), rows_); }

  std::vector<std::int64_t> rows_;  // rising
  std::int64_t layer_;
  std::map<std::pair<ModelPlace, std::int64_t>, Tensor> kept_;
  std::map<std::pair<models::NormPlace, std::int64_t>, HeldNorm> norms_;
};

// Calls body(which, part) with each part [R,E] of the stream before the layer, which norms divide as they do there; the
// biases come last. Together they are the stream.
void for_each_part(const Model::Parts& parts, const RowPieces& pieces,
                   const std::function<void(const AttributionPart& which, Tensor part)>& body);

}  // namespace attend::inline v0::analysis
