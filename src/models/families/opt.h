// OPT (Zhang et al. 2022): a decoder with learned positions, norms before each part, or after each sum (350m).
#pragma once

#include <optional>
#include <vector>

#include "models/backward.h"
#include "models/batch.h"
#include "models/families/decoder.h"
#include "models/layer_parts.h"

namespace attend::inline v1::models {

class Opt {
 public:
  Opt(Loading& loading, const Member& config);

  ModelInfo info() const { return info_; }
  Tensor embed(const Batch& batch) const;  // [N,E], f32: the stream before the first layer
  // The layers from `first` to before `last`, x being the stream before them and then after them.
  void run(const Batch& batch, Tensor& x, std::int64_t first, std::int64_t last) const;
  // Back: dx, the gradient of the stream after the layers, becomes that of the stream before them; and of embed()'s
  // rows.
  void backward(Backward& pass, Tensor& dx, std::int64_t first, std::int64_t last) const;
  void embed_backward(Backward& pass, Tensor& dx) const;
  Tensor finish_backward(const Backward& pass, const Tensor& d) const;
  LayerParts parts(std::size_t n) const;
  const Matrix& words() const { return words_; }
  Tensor finish(Tensor x) const;  // [N,E], f32; where words have another size than the stream, [N,that size]

  std::int64_t hidden_size() const { return info_.input_size; }
  std::optional<Norm> last_norm() const { return norm_ ? std::optional<Norm>(&*norm_) : std::nullopt; }
  const Linear* last_projection() const { return project_out_ ? &*project_out_ : nullptr; }  // after the last norm
  const std::optional<Output>& output() const { return output_; }                            // none: a bare model

 private:
  struct Layer {
    LayerNorm attention_norm;
    Linear query, key, value, output;
    LayerNorm norm;
    Linear wide, narrow;
  };
  Layer read_layer(Loading& loading, std::int64_t n, bool bias) const;
  AttentionStep step(std::size_t n) const;
  LayerNorm read_norm(Loading& loading, const std::string& name) const;

  ModelInfo info_;
  bool norms_before_ = true, affine_ = true;
  Activation activation_ = Activation::relu;
  Matrix words_;
  View positions_;
  std::optional<Linear> project_in_, project_out_;  // where words have another size than the stream
  std::vector<Layer> layers_;
  std::optional<LayerNorm> norm_;
  std::optional<Output> output_;
};

}  // namespace attend::inline v1::models
