// ModernBERT (Warner et al. 2024): an encoder with rotary positions and gated MLPs, norms before each part, and windows
// in most layers.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "models/backward.h"
#include "models/batch.h"
#include "models/config.h"
#include "models/families/rotary.h"
#include "models/layer_parts.h"
#include "models/loading.h"

namespace attend::inline v1::models {

// Of each layer whether it sees a window alone, and the rotary positions of these or of the others.
std::vector<bool> read_local_layers(const Member& config, std::int64_t layers);
Rotary read_modernbert_rotary(const Member& config, bool local, const ModelInfo& info);

class ModernBert {
 public:
  ModernBert(Loading& loading, const Member& config);

  ModelInfo info() const { return info_; }
  Tensor embed(const Batch& batch) const;  // [N,E], f32: the stream before the first layer
  // The layers from `first` to before `last`, x being the stream before them and then after them.
  void run(const Batch& batch, Tensor& x, std::int64_t first, std::int64_t last) const;
  // Back: dx, the gradient of the stream after the layers, becomes that of the stream before them; and of embed()'s
  // rows.
  void backward(Backward& pass, Tensor& dx, std::int64_t first, std::int64_t last) const;
  void embed_backward(Backward& pass, Tensor& dx) const;
  Tensor finish_backward(const Backward& pass, const Tensor& d) const {
    return pass.normed(*norm_, d, pass.kept().last);
  }
  LayerParts parts(std::size_t n) const;
  const Matrix& words() const { return words_; }
  std::optional<Norm> last_norm() const { return &*norm_; }
  Tensor finish(const Tensor& x) const { return norm_->forward(x); }  // [N,E], f32

 private:
  struct Layer {
    bool local;                               // sees a window, and has angles of its own
    std::optional<LayerNorm> attention_norm;  // none: the first layer's, before which the embeddings are normalised
    Linear query, key, value, output;
    LayerNorm norm;
    Linear wide, gate, narrow;
  };
  Layer read_layer(Loading& loading, std::int64_t n, const Member& config, bool local) const;
  AttentionStep step(std::size_t n) const;
  void attend_layer_backward(Backward& pass, std::size_t n, Tensor& dx, const RotaryAngles& back) const;
  void attend_layer(const Batch& batch, std::size_t n, Tensor& x, const RotaryAngles& angles) const;

  ModelInfo info_;
  double eps_ = 0;
  bool norm_bias_ = false;
  std::int64_t window_ = 0;
  Activation activation_ = Activation::gelu;
  std::array<std::optional<RotaryEmbedding>, 2> rotary_;  // of all layers but the local ones, and of these
  Matrix words_;
  std::optional<LayerNorm> embedding_norm_;
  std::vector<Layer> layers_;
  std::optional<LayerNorm> norm_;
};

}  // namespace attend::inline v1::models
