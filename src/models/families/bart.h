// BART (Lewis et al. 2020) and Marian's translators (Junczys-Dowmunt et al. 2018): the Transformer of Vaswani et al.
// 2017, an encoder and a decoder that reads what it made of a text, with norms after each sum.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/backward.h"
#include "models/batch.h"
#include "models/config.h"
#include "models/layer_parts.h"
#include "models/loading.h"

namespace attend::inline v1::models {

// The encoder, or the decoder.
class BartStack {
 public:
  // words [vocabulary,E]
  BartStack(Loading& loading, const Member& config, const Matrix& words, bool decodes);

  std::int64_t layers() const { return std::ssize(layers_); }
  std::int64_t heads() const { return heads_; }
  std::int64_t head_size() const { return E_ / heads_; }
  std::int64_t mlp_size() const { return wide_size_; }

  Tensor embed(const Batch& batch) const;  // [N,E], f32: what the first layer is given
  // The layers from `first` to before `last`, x being what they are given and then what they make of it.
  void run(const Batch& batch, Tensor& x, std::int64_t first, std::int64_t last) const;
  // Back: dx, the gradient of the stream after the layers, becomes that of the stream before them; and of embed()'s
  // rows.
  void backward(Backward& pass, Tensor& dx, std::int64_t first, std::int64_t last) const;
  void embed_backward(Backward& pass, Tensor& dx) const;
  static Tensor finish_backward(const Backward&, const Tensor& d) { return d.clone(); }
  LayerParts parts(std::size_t n) const;
  const Matrix& words() const { return words_; }
  static Tensor finish(Tensor x) { return x; }

 private:
  struct Attention {
    Linear query, key, value, output;
    LayerNorm norm;
  };
  struct Layer {
    Attention self;
    std::optional<Attention> cross;
    Linear wide, narrow;
    LayerNorm norm;
  };
  Attention read_attention(Loading& loading, const std::string& at) const;
  Layer read_layer(Loading& loading, const std::string& at, bool decodes) const;
  AttentionStep step(std::size_t layer, bool cross, const Linear& output) const;

  bool causal_;
  std::int64_t E_, heads_, wide_size_, position_offset_;
  float word_scale_ = 1;
  Activation activation_;
  Matrix words_;
  View positions_;
  std::optional<LayerNorm> embedding_norm_;
  std::vector<Layer> layers_;
};

class Bart {
 public:
  Bart(Loading& loading, const Member& config);

  ModelInfo info() const { return info_; }
  const BartStack& encoder() const { return *encoder_; }
  const BartStack& decoder() const { return *decoder_; }
  static std::optional<Norm> last_norm() { return std::nullopt; }
  const std::optional<Output>& output() const { return output_; }  // none: a bare model
  const Matrix& words() const { return encoder_->words(); }

 private:
  ModelInfo info_;
  std::optional<BartStack> encoder_, decoder_;
  std::optional<Output> output_;
};

}  // namespace attend::inline v1::models
