// T5 (Raffel et al. 2020) and Flan-T5: an encoder and a decoder that reads what it made of a text. Positions are a bias
// of the scores by distance, the same in all layers; RMSNorm; the scores are not scaled.
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
class T5Stack {
 public:
  // words [vocabulary,E]
  T5Stack(Loading& loading, const Member& config, const Matrix& words, bool decodes);

  std::int64_t layers() const { return std::ssize(layers_); }
  std::int64_t heads() const { return heads_; }
  std::int64_t head_size() const { return D_; }
  std::int64_t mlp_size() const { return wide_size_; }

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
  const RmsNorm& last_norm() const { return *norm_; }

 private:
  struct Attention {
    RmsNorm norm;
    Linear query, key, value, output;
  };
  struct Layer {
    Attention self;
    std::optional<Attention> cross;
    RmsNorm norm;
    std::optional<Linear> gate;
    Linear wide, narrow;
  };
  void read_activation_of(const Member& config);
  Attention read_attention(Loading& loading, const std::string& at, const char* name) const;
  Layer read_layer(Loading& loading, const std::string& at, bool decodes) const;
  AttentionStep step(std::size_t layer, bool cross, const Linear& output) const;

  bool causal_;
  DType dtype_;
  std::int64_t E_, D_, heads_, wide_size_;
  double eps_;
  bool gated_ = false;
  Activation activation_ = Activation::relu;
  Matrix words_;
  std::optional<Tensor> distance_bias_;  // [H,2R+1]; none: there are no layers
  std::vector<Layer> layers_;
  std::optional<RmsNorm> norm_;
};

class T5 {
 public:
  T5(Loading& loading, const Member& config);

  ModelInfo info() const { return info_; }
  const T5Stack& encoder() const { return *encoder_; }
  const T5Stack& decoder() const { return *decoder_; }
  std::optional<Norm> last_norm() const { return &decoder_->last_norm(); }
  const std::optional<Output>& output() const { return output_; }
  const Matrix& words() const { return encoder_->words(); }

 private:
  ModelInfo info_;
  std::optional<T5Stack> encoder_, decoder_;
  std::optional<Output> output_;
};

// Its encoder alone, as sentence-T5 has it.
class T5Encoder {
 public:
  T5Encoder(Loading& loading, const Member& config);

  ModelInfo info() const { return info_; }
  Tensor embed(const Batch& batch) const { return stack_->embed(batch); }
  void run(const Batch& batch, Tensor& x, std::int64_t first, std::int64_t last) const {
    stack_->run(batch, x, first, last);
  }
  void backward(Backward& pass, Tensor& dx, std::int64_t first, std::int64_t last) const {
    stack_->backward(pass, dx, first, last);
  }
  static void embed_backward(Backward& pass, Tensor& dx) { T5Stack::embed_backward(pass, dx); }
  Tensor finish(const Tensor& x) const { return stack_->finish(x); }
  Tensor finish_backward(const Backward& pass, const Tensor& d) const { return stack_->finish_backward(pass, d); }
  LayerParts parts(std::size_t n) const { return stack_->parts(n); }
  const Matrix& words() const { return stack_->words(); }

 private:
  ModelInfo info_;
  std::optional<T5Stack> stack_;
};

// Which of the two config.json speaks of.
bool is_t5_encoder(const Member& config);

}  // namespace attend::inline v1::models
