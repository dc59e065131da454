// GPT-2 (Radford et al. 2019): a decoder with learned positions, norms before each part.
#pragma once

#include <optional>
#include <vector>

#include "models/backward.h"
#include "models/batch.h"
#include "models/config.h"
#include "models/layer_parts.h"
#include "models/loading.h"

namespace attend::inline v1::models {

class Gpt2 {
 public:
  Gpt2(Loading& loading, const Member& config);

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
  Layer read_layer(Loading& loading, std::int64_t n) const;
  AttentionStep step(std::int64_t layer) const;

  ModelInfo info_;
  double eps_ = 0;
  bool scaled_ = true, scaled_by_layer_ = false;
  Activation activation_ = Activation::gelu_tanh;
  Matrix words_;
  View positions_;
  std::vector<Layer> layers_;
  std::optional<LayerNorm> norm_;
  std::optional<Output> output_;
};

}  // namespace attend::inline v1::models
