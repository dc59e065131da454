// Llama (Touvron et al. 2023) and those like it: decoders with rotary positions, RMSNorm, SwiGLU and grouped heads.
// Mistral, Qwen 2 and 3, SmolLM3, Phi-3, OLMo 2, Gemma 2 and 3 differ by switches. Of EmbeddingGemma, whose tokens see
// both sides, they are an encoder's.
#pragma once

#include <optional>
#include <vector>

#include "models/backward.h"
#include "models/batch.h"
#include "models/families/decoder.h"
#include "models/families/rotary.h"
#include "models/layer_parts.h"

namespace attend::inline v1::models {

struct LlamaType;

class Llama {
 public:
  Llama(Loading& loading, const Member& config);

  ModelInfo info() const { return info_; }
  Tensor embed(const Batch& batch) const;  // [N,E], f32: the stream before the first layer
  // The layers from `first` to before `last`, x being the stream before them and then after them.
  void run(const Batch& batch, Tensor& x, std::int64_t first, std::int64_t last) const;
  // Back: dx, the gradient of the stream after the layers, becomes that of the stream before them; of embed()'s rows.
  void backward(Backward& pass, Tensor& dx, std::int64_t first, std::int64_t last) const;
  void embed_backward(Backward& pass, Tensor& dx) const;
  Tensor finish_backward(const Backward& pass, const Tensor& d) const {
    return pass.normed(*norm_, d, pass.kept().last);
  }
  LayerParts parts(std::size_t n) const;
  const Matrix& words() const { return words_; }
  Tensor finish(const Tensor& x) const { return norm_->forward(x); }  // [N,E], f32

  // Phi-3: longer texts have other frequencies, and Transformers' generate() turns the earlier keys again.
  std::int64_t computed_again_after() const { return computed_again_after_; }
  std::optional<Norm> last_norm() const { return &*norm_; }
  const std::optional<Output>& output() const { return output_; }  // none: a bare model, or an encoder

 private:
  struct Layer {
    Linear query, key, value, output, gate, up, down;
    std::optional<RmsNorm> attention_norm = {}, norm = {};                    // of what attention and MLP read
    std::optional<RmsNorm> attention_output_norm = {}, mlp_output_norm = {};  // of what they write
    std::optional<RmsNorm> query_norm = {}, key_norm = {};
    std::optional<std::size_t> rotary = {};  // which of rotary_; none: it does not see positions
  };
  Layer read_layer(Loading& loading, std::int64_t n, const LlamaType& type, const Member& config) const;
  void read_norms(Loading& loading, const std::string& at, const LlamaType& type, Layer& layer) const;
  void read_scales(const Member& config);
  void read_positions(const Loading& loading, const LlamaType& type, const Member& config);
  AttentionStep step(std::size_t n) const;
  void attend_layer_backward(Backward& pass, std::size_t n, Tensor& dx, const std::vector<RotaryAngles>& back) const;
  void attend_layer(const Batch& batch, std::size_t n, Tensor& x, const std::vector<RotaryAngles>& angles) const;

  ModelInfo info_;
  double eps_ = 0;
  Activation activation_ = Activation::silu;
  bool causal_ = true;
  bool heads_apart_ = true;      // norms of queries and keys are each head's own
  std::optional<double> scale_;  // of the scores; none: as everywhere
  double softcap_ = 0;           // of the scores; 0: none
  float words_scale_ = 1;
  std::vector<std::int64_t> windows_;    // of each layer; 0: none
  std::vector<RotaryEmbedding> rotary_;  // none: there are no layers
  std::int64_t computed_again_after_ = 0;
  Matrix words_;
  std::vector<Layer> layers_;
  std::optional<RmsNorm> norm_;
  std::optional<Output> output_;
};

}  // namespace attend::inline v1::models
