// GPT-NeoX (Black et al. 2022), Pythia's family: a decoder with rotary positions for a part of each head, and an MLP
// that may read what the attention reads.
#pragma once

#include <optional>
#include <vector>

#include "models/backward.h"
#include "models/batch.h"
#include "models/families/decoder.h"
#include "models/families/rotary.h"
#include "models/layer_parts.h"

namespace attend::inline v1::models {

class GptNeox {
 public:
  GptNeox(Loading& loading, const Member& config);

  ModelInfo info() const { return info_; }
  Tensor embed(const Batch& batch) const;  // [N,E], f32: the stream before the first layer
  // The layers from `first` to before `last`, x being the stream before them and then after them.
  void run(const Batch& batch, Tensor& x, std::int64_t first, std::int64_t last) const;
  // Back: dx, the gradient of the stream after the layers, becomes that of the stream before them; and of embed()'s
  // rows.
  void backward(Backward& pass, Tensor& dx, std::int64_t first, std::int64_t last) const;
  static void embed_backward(Backward& pass, Tensor& dx) { pass.at(ModelPlace::embeddings, 0, dx); }
  Tensor finish_backward(const Backward& pass, const Tensor& d) const {
    return pass.normed(*norm_, d, pass.kept().last);
  }
  LayerParts parts(std::size_t n) const;
  const Matrix& words() const { return words_; }
  Tensor finish(const Tensor& x) const { return norm_->forward(x); }  // [N,E], f32

  std::optional<Norm> last_norm() const { return &*norm_; }
  const std::optional<Output>& output() const { return output_; }  // none: a bare model

 private:
  struct Layer {
    LayerNorm attention_norm;
    Linear query_key_value, output;
    LayerNorm norm;
    Linear wide, narrow;
  };
  Layer read_layer(Loading& loading, std::int64_t n, bool attention_bias) const;
  AttentionStep step(std::size_t n) const;
  Tensor attention_backward(Backward& pass, std::size_t n, const Tensor& dx, const RotaryAngles& back) const;
  Tensor attention(const Batch& batch, std::size_t n, const Tensor& x, const RotaryAngles& angles) const;

  ModelInfo info_;
  double eps_ = 0;
  Activation activation_ = Activation::gelu;
  std::optional<RotaryEmbedding> rotary_;  // none: there are no layers
  Matrix words_;
  std::vector<Layer> layers_;
  std::optional<LayerNorm> norm_;
  std::optional<Output> output_;
};

}  // namespace attend::inline v1::models
