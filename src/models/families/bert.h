// BERT (Devlin et al. 2019), RoBERTa (Liu et al. 2019), DistilBERT (Sanh et al. 2019), MPNet (Song et al. 2020),
// ALBERT (Lan et al. 2020), ELECTRA (Clark et al. 2020), NomicBERT (Nussbaum et al. 2024), GTE (Zhang et al. 2024) and
// Jina's second (Guenther et al. 2023): encoders with norms after each sum. The last three have gated MLPs, two of them
// rotary positions, and Jina's ALiBi of both sides.
#pragma once

#include <optional>
#include <vector>

#include "models/backward.h"
#include "models/batch.h"
#include "models/config.h"
#include "models/families/bert_types.h"
#include "models/layer_parts.h"
#include "models/loading.h"

namespace attend::inline v1::models {

class Bert {
 public:
  Bert(Loading& loading, const Member& config);

  ModelInfo info() const { return info_; }
  Tensor embed(const Batch& batch) const;  // [N,E], f32: what the first layer is given
  // The layers from `first` to before `last`, x being what they are given and then what they make of it.
  void run(const Batch& batch, Tensor& x, std::int64_t first, std::int64_t last) const;
  // Back: dx, the gradient of the stream after the layers, becomes that of the stream before them; and of embed()'s
  // rows.
  void backward(Backward& pass, Tensor& dx, std::int64_t first, std::int64_t last) const;
  void embed_backward(Backward& pass, Tensor& dx) const;
  static Tensor finish_backward(const Backward&, const Tensor& d) { return d.clone(); }
  LayerParts parts(std::size_t n) const;
  // Whether a pass may go on with first rows alone: where they are, no position turns or weighs anything.
  bool takes_first_rows() const { return !rotary_ && !distance_bias_ && info_.layers > 0; }
  const Matrix& words() const { return words_; }
  static Tensor finish(Tensor x) { return x; }

 private:
  struct Layer {
    Linear query, key, value, output;
    LayerNorm attention_norm;
    std::optional<Linear> gate;  // of gated MLPs
    Linear wide, narrow;
    LayerNorm norm;
  };
  void read_embeddings(Loading& loading, const BertType& type, const BertType::Names& names, const Member& config,
                       std::int64_t rows);
  void read_layers(Loading& loading, const BertType& type, const BertType::Names& names, const Member& config);
  void read_rotary_positions(const Loading& loading, const BertType& type, const Member& config);
  AttentionStep step(std::size_t n) const;
  // The heads' outputs of all rows, or with Batch::first_rows of those that x then has.
  Tensor attended(const Batch& batch, std::size_t n, const Tensor& x, const RotaryAngles& angles) const;
  Tensor attended_first(const Batch& batch, std::size_t n, Tensor& x) const;
  Layer read_layer(Loading& loading, const std::string& at, const BertType& type, const BertType::Names& names) const;
  std::vector<std::int64_t> positions(const Batch& batch) const;

  ModelInfo info_;
  double eps_ = 0;
  std::int64_t types_ = 0;
  std::optional<std::int64_t> padding_;  // RoBERTa: positions begin after this id, and padding has none of its own
  Activation activation_ = Activation::gelu;
  Matrix words_;
  std::optional<View> positions_;  // none: positions are not embedded
  View type_embeddings_;
  std::optional<LayerNorm> embedding_norm_;
  std::optional<Linear> widened_;        // ALBERT and ELECTRA: to the layers' size
  std::optional<Tensor> distance_bias_;  // MPNet and Jina v2: [H,2R+1]
  std::optional<RotaryEmbedding> rotary_;
  std::vector<Layer> layers_;
  std::vector<std::size_t> which_;  // of layers_, for each layer: ALBERT's share them
};

}  // namespace attend::inline v1::models
