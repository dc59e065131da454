// What makes an answer of hidden states.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "attend/layers.h"

namespace attend::inline v1::models {

// Logits [...,vocabulary] of hidden states [...,E], f32: softcap(scale * (W hidden + b)).
struct Output {
  Linear layer;
  double scale = 1;    // T5's, of what its output layer is given
  double softcap = 0;  // c > 0: a logit becomes c * tanh(logit / c) (Gemma 2)

  Tensor uncapped(const View& hidden) const;
  Tensor logits(const View& hidden) const;
  // The gradient of hidden [E] for that of its logits [vocabulary]: dense, or of a few tokens alone.
  Tensor input_gradient(const Tensor& dlogits, const Tensor& logits) const;
  Tensor input_gradient(std::span<const std::pair<std::int64_t, double>> dlogits, const Tensor& logits) const;
};

}  // namespace attend::inline v1::models
