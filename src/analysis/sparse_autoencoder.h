// What a sparse autoencoder is made of, once its file has been read.
#pragma once

#include <optional>
#include <string>

#include "attend/features.h"
#include "attend/layers.h"

namespace attend::inline v1 {

struct SparseAutoencoder::State {
  enum class Kind : std::uint8_t { relu, jumprelu, topk, gated };
  // What is done to a row before it is encoded, and undone to what an autoencoder makes of it.
  enum class Normalised : std::uint8_t { none, length, layer_norm };

  std::string config, architecture;
  TensorMap weights;  // W_enc [in,size], W_dec [size,out], b_dec [out], ...: the layers below borrow them
  Kind kind = Kind::relu;
  Normalised normalised = Normalised::none;
  bool transcoder = false, subtracts_bias = false;  // x - b_dec is encoded
  bool centred_stream = false;                      // SparseAutoencoderOptions::centred
  std::int64_t k = 0;                               // of topk
  std::optional<Tensor> norms;  // [size]: of the decoder's rows, where values count as if these were 1
  std::optional<LayerPlace> reads = {}, writes = {};
  bool before_weight = false;
  std::optional<Linear> encoder = {}, skip = {};

  const float* numbers(const char* name) const { return weights.find(name)->second.data<float>(); }
  std::int64_t size(const char* name, int axis) const { return weights.find(name)->second.size(axis); }
  // What an autoencoder's reconstruction is multiplied by, and what is added to it, so that it is as x was.
  bool restores() const { return !transcoder && normalised != Normalised::none; }
};

struct SparseAutoencoderAccess {
  static SparseAutoencoder make(std::shared_ptr<const SparseAutoencoder::State> state) {
    return SparseAutoencoder(std::move(state));
  }
  static const SparseAutoencoder::State& state(const SparseAutoencoder& of) { return *of.state_; }
};

namespace analysis {

// One of x, f32, that is NaN or infinite; none: there is none.
std::optional<float> not_finite(const Tensor& x);

// Rows as they were before they were normalised: row n is scales[n] * x + shifts[n].
struct RowSizes {
  Tensor scales, shifts;  // [N]
};
// What the rows x [N,in] become before they are encoded, and their sizes.
RowSizes normalise(const SparseAutoencoder::State& of, Tensor& x);

// What there is in an answer besides the features: the decoder's bias, and what is passed by. [N,out]
Tensor without_features(const SparseAutoencoder::State& of, const View& x);

}  // namespace analysis
}  // namespace attend::inline v1
