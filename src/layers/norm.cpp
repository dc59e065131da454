#include <cmath>

#include "attend/layers.h"
#include "core/message.h"
#include "core/parallel.h"
#include "kernels/targets.h"
#include "layers/gradients.h"
#include "layers/rows.h"

namespace attend::inline v1 {

namespace {

// Fewer elements are done before another thread has woken up.
constexpr std::int64_t normalized_at_once = 1 << 15;

Tensor vector_of(const char* layer, const char* name, const View& x, const Dims& shape) {
  if (x.rank() != 1 || x.shape() != shape || x.size(0) < 1)
    fail(ErrorCode::bad_shape, layer, "{} has shape {}, expected [E]", name, x.shape());
  if (!is_floating(x.dtype())) fail(ErrorCode::bad_dtype, layer, "{} is {}, expected floating point", name, x.dtype());
  return x.to(DType::f32);
}

double checked_eps(const char* layer, double eps) {
  if (!(eps >= 0) || !std::isfinite(eps)) fail(ErrorCode::bad_value, layer, "eps is {}, expected a number from 0", eps);
  return eps;
}

Tensor normalize(const char* layer, const View& x, DType y_dtype, kernels::NormOperands operands) {
  if (x.rank() == 0 || x.size(-1) != operands.size)
    fail(ErrorCode::bad_shape, layer, "x has shape {}, expected [...,{}]", x.shape(), operands.size);
  if (!is_floating(x.dtype())) fail(ErrorCode::bad_dtype, layer, "x is {}, expected floating point", x.dtype());
  if (!is_floating(y_dtype) || y_dtype == DType::f64)
    fail(ErrorCode::bad_dtype, layer, "y_dtype is {}, expected f32, bf16 or f16", y_dtype);
  Tensor made, y = Tensor::uninitialized(x.shape(), y_dtype);
  const View rows = in_row_major(x, made);
  operands.x = rows.raw(), operands.x_dtype = rows.dtype();
  operands.y = y.raw(), operands.y_dtype = y_dtype;
  operands.x_stride = operands.y_stride = operands.size;
  parallel_for(x.count() / operands.size, normalized_at_once / operands.size + 1,
               [&](std::int64_t begin, std::int64_t end) { kernels::target().rows.normalize(operands, begin, end); });
  return y;
}

Tensor input_gradient(const char* layer, const View& dy, const View& x, const Tensor& weight, double eps,
                      bool centered) {
  kernels::NormGradientOperands operands;
  operands.size = weight.size(0), operands.weight = weight.data<float>();
  operands.centered = centered, operands.eps = static_cast<float>(eps);
  if (x.rank() == 0 || x.size(-1) != operands.size)
    fail(ErrorCode::bad_shape, layer, "x has shape {}, expected [...,{}]", x.shape(), operands.size);
  check_given(layer, "x", x, x.shape());
  check_given(layer, "dy", dy, x.shape());
  Tensor made_x, made_dy, wide, dx = Tensor::uninitialized(x.shape());
  const View rows = in_row_major(x, made_x);
  operands.x = rows.raw(), operands.x_dtype = rows.dtype();
  operands.dy = in_row_major(in_dtype(dy, DType::f32, wide), made_dy).data<float>();
  operands.dx = dx.data<float>();
  const auto gradient = kernels::target().rows.normalize_gradient;
  parallel_for(x.count() / operands.size, normalized_at_once / operands.size + 1,
               [&](std::int64_t begin, std::int64_t end) { gradient(operands, begin, end); });
  return dx;
}

}  // namespace

LayerNorm::LayerNorm(const View& weight, const std::optional<View>& bias, double eps)
    : weight_(vector_of("LayerNorm", "weight", weight, weight.shape())), eps_(checked_eps("LayerNorm", eps)) {
  if (bias) bias_ = vector_of("LayerNorm", "bias", *bias, weight.shape());
}

Tensor LayerNorm::forward(const View& x, DType y_dtype) const {
  kernels::NormOperands operands;
  operands.size = weight_.size(0);
  operands.weight = weight_.data<float>();
  operands.bias = bias_ ? bias_->data<float>() : nullptr;
  operands.eps = static_cast<float>(eps_);
  return normalize("LayerNorm", x, y_dtype, operands);
}

Tensor LayerNorm::input_gradient(const View& dy, const View& x) const {
  return attend::input_gradient("LayerNorm", dy, x, weight_, eps_, true);
}

RmsNorm::RmsNorm(const View& weight, double eps)
    : weight_(vector_of("RmsNorm", "weight", weight, weight.shape())), eps_(checked_eps("RmsNorm", eps)) {}

Tensor RmsNorm::forward(const View& x, DType y_dtype) const {
  kernels::NormOperands operands;
  operands.size = weight_.size(0);
  operands.weight = weight_.data<float>();
  operands.centered = false;
  operands.eps = static_cast<float>(eps_);
  return normalize("RmsNorm", x, y_dtype, operands);
}

Tensor RmsNorm::input_gradient(const View& dy, const View& x) const {
  return attend::input_gradient("RmsNorm", dy, x, weight_, eps_, false);
}

}  // namespace attend::inline v1
