// Activation functions and their gradients. Arguments are floating point and computed in f32. Functions throw bad_shape
// and bad_dtype.
#pragma once

#include <cstdint>

#include "attend/api.h"
#include "attend/tensor.h"

namespace attend::inline v1 {

// Elementwise functions.
enum class ATTEND_API Activation : std::uint8_t {
  linear,        // x
  relu,          // max(x, 0)
  relu6,         // min(max(x, 0), 6)
  relu_squared,  // relu(x)^2 (So et al. 2021)
  leaky_relu,    // x, or x / 100 below 0
  gelu,          // x * Phi(x), Phi the normal distribution function (Hendrycks and Gimpel 2016)
  gelu_tanh,     // gelu approximated by tanh: PyTorch's approximate="tanh", elsewhere "gelu_new"
  gelu_quick,    // x / (1 + e^-1.702x)
  gelu_10,       // min(gelu(x), 10)
  silu,          // x / (1 + e^-x)
  hardswish,     // x relu6(x + 3) / 6 (Howard et al. 2019)
  mish,          // x tanh(ln(1 + e^x)) (Misra 2019)
  sigmoid,       // 1 / (1 + e^-x)
  tanh,
  laplace,        // distribution function of N(0.707107, 0.282095) at x (Ma et al. 2022)
  sqrt_softplus,  // sqrt(ln(1 + e^x))
};

// x = f(x), in place; x row-major, f32, bf16 or f16.
ATTEND_API void activate(Activation f, const MutableView& x);
// x = f(x) * gated, same shape and dtype. With silu this is SwiGLU's product (Shazeer 2020).
ATTEND_API void activate(Activation f, const MutableView& x, const View& gated);

struct ATTEND_API ActivationGradients {
  Tensor dx;      // x's shape, f32
  Tensor dgated;  // likewise; empty without `gated`
};
// dy, the gradient of f(x) or f(x) * gated -> those of x and gated. x and gated are as before activate(). Where a
// derivative jumps it is PyTorch's. Extra memory: f32 copies of arguments in another dtype or order.
ATTEND_API ActivationGradients activation_gradient(Activation f, const View& dy, const View& x,
                                                   const OptionalView& gated = {});

}  // namespace attend::inline v1
