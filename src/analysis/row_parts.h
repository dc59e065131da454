// What some rows of a text are made of before a layer: the embedding, what each earlier head and MLP wrote, and all
// biases.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "analysis/answers.h"
#include "analysis/held_norm.h"
#include "attend/analysis.h"
#include "models/model.h"

namespace attend::inline v0::analysis {

// Of some rows, rising: what each part before the last of some layers wrote, the norms that it went through, and what
// these layers make of the stream.
class RowPieces : public models::Watcher {
 public:
  // of_encoder: of an encoder-decoder, its encoder's.
  RowPieces(std::vector<std::int64_t> rows, std::span<const std::int64_t> layers, bool of_encoder = false)
      : rows_(std::move(rows)), of_encoder_(of_encoder) {
    for (const std::int64_t layer : layers) steps_[layer] = {};
  }

  void at(ModelPlace place, std::int64_t layer, const MutableView& values) override {
    const bool before =
        layer < last() && (place == ModelPlace::z || place == ModelPlace::cross_z || place == ModelPlace::mlp);
    const bool of_layer = steps_.contains(layer) &&
                          (place == ModelPlace::residual || place == ModelPlace::z || place == ModelPlace::q ||
                           place == ModelPlace::k || place == ModelPlace::rotated_q || place == ModelPlace::rotated_k);
    if (before || of_layer || (place == ModelPlace::residual && layer == 0))
      kept_.insert_or_assign({place, layer}, gathered(values));
  }
  void attends(const models::AttentionStep& own, const View&, const View&) override {
    const auto found = steps_.find(own.layer);
    if (found != steps_.end() && !own.cross) found->second = own;
  }
  void normalises(models::NormPlace place, std::int64_t layer, const models::Norm& norm, const View& x) override {
    if (layer < last()) norms_.emplace(std::pair(place, layer), HeldNorm(norm, gathered(x)));
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
  // Which of the pass's rows they are, where it has not all of the text.
  void stand_at(std::vector<std::int64_t> rows) { at_ = std::move(rows); }
  bool of_encoder() const { return of_encoder_; }
  std::int64_t last() const { return steps_.rbegin()->first; }  // of the layers
  const models::AttentionStep& step(std::int64_t layer) const { return steps_.at(layer); }

 private:
  Tensor gathered(const View& x) const { return rows_of(x.to(DType::f32), at_.empty() ? rows_ : at_); }

  std::vector<std::int64_t> rows_, at_;  // rising
  bool of_encoder_;
  std::map<std::int64_t, models::AttentionStep> steps_;
  std::map<std::pair<ModelPlace, std::int64_t>, Tensor> kept_;
  std::map<std::pair<models::NormPlace, std::int64_t>, HeldNorm> norms_;
};

using PartBody = std::function<void(const AttributionPart& which, const Tensor& part)>;
// Calls body with each part [R,E] of the stream before one of the layers, which norms divide as they do
// there; the biases come last. Together they are the stream.
void for_each_part(const Model::Parts& parts, const RowPieces& pieces, std::int64_t layer, const PartBody& body);

}  // namespace attend::inline v0::analysis
