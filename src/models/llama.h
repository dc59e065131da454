// Llama (Touvron et al. 2023) and those like it: decoders with rotary positions, RMSNorm, SwiGLU and grouped heads.
#pragma once

#include <optional>
#include <vector>

#include "models/batch.h"
#include "models/config.h"
#include "models/loading.h"

namespace attend::models {

struct LlamaType;

class Llama {
 public:
  Llama(Loading& loading, const Member& config);

  ModelInfo info() const { return info_; }
  Tensor embed(const Batch& batch) const;  // [N,E], f32: the stream before the first layer
  // The layers from `first` to before `last`, x being the stream before them and then after them.
  void run(const Batch& batch, Tensor& x, std::int64_t first, std::int64_t last) const;
  Tensor finish(const Tensor& x) const { return norm_->forward(x); }  // [N,E], f32

  std::optional<Norm> last_norm() const { return &*norm_; }
  const std::optional<Output>& output() const { return output_; }  // none: a bare model

 private:
  struct Layer {
    RmsNorm attention_norm;
    Linear query, key, value, output;
    std::optional<RmsNorm> query_norm, key_norm;
    RmsNorm norm;
    Linear gate, up, down;
  };
  Layer read_layer(Loading& loading, std::int64_t n, const LlamaType& type, const Member& config) const;
  void read_windows(const LlamaType& type, const Member& config);
  void attend_layer(const Batch& batch, std::size_t n, Tensor& x, const RotaryAngles& angles) const;

  ModelInfo info_;
  double eps_ = 0;
  std::int64_t wide_size_ = 0;
  Activation activation_ = Activation::silu;
  std::vector<std::int64_t> windows_;      // of each layer; 0: none
  std::optional<RotaryEmbedding> rotary_;  // none: there are no layers
  View words_;
  std::vector<Layer> layers_;
  std::optional<RmsNorm> norm_;
  std::optional<Output> output_;
};

}  // namespace attend::models
