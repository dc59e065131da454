// What a Transformer needs besides its layers, forward and backward side by side. Rows are tokens: x [T,E].
#pragma once

#include <cstdint>
#include <span>

#include "attend/tensor.h"

namespace translate {

using attend::Tensor;
using attend::View;

// y += x
void add(Tensor& y, const View& x);
// y *= factor
void scale(Tensor& y, double factor);

// What layer_norm keeps for its backward.
struct LayerNormState {
  Tensor normalized;  // [T,E], before weight and bias
  Tensor inverse;     // [T], 1 / standard deviation
};
struct LayerNormGradients {
  Tensor dx, dweight, dbias;
};
// (x - mean) / sqrt(variance + 1e-5) * weight + bias for each row: torch.nn.LayerNorm (Ba, Kiros and Hinton 2016).
Tensor layer_norm(const View& x, const View& weight, const View& bias, LayerNormState& state);
LayerNormGradients layer_norm_backward(const View& dy, const View& weight, const LayerNormState& state);

// max(x, 0), in place.
void relu(Tensor& x);
// dy becomes dx: 0 where y, which relu gave, is 0.
void relu_backward(Tensor& dy, const View& y);

// Each element becomes 0 with probability p, else x / (1 - p), in place. Which ones depends on the seed and the
// element's place alone: applied to the gradient, it is its own backward.
void dropout(Tensor& x, double p, std::uint64_t seed);

struct CrossEntropy {
  double sum = 0;  // over the rows of -log softmax(logits)[target], natural logarithm
  Tensor dlogits;  // [T,V], the gradient of the mean over the rows
};
// logits [T,V], whose memory the gradient takes; a target in [0,V) for each row.
CrossEntropy cross_entropy(Tensor logits, std::span<const std::int64_t> targets);

// [length,E]: sin(t / 10000^(2i/E)) and cos of the same beside each other (Vaswani et al. 2017, section 3.5). E is
// even.
Tensor positions(std::int64_t length, std::int64_t embedding_size);

}  // namespace translate
