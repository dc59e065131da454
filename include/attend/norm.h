// Layer norms with the gradient of their input (not of their weights). Arguments are floating point and computed in f32
// along the last axis. Functions throw bad_shape and bad_dtype.
#pragma once

#include <optional>

#include "attend/api.h"
#include "attend/tensor.h"

namespace attend::inline v1 {

// (x - mean) / sqrt(variance + eps) * weight + bias, as torch.nn.LayerNorm (Ba et al. 2016).
class ATTEND_API LayerNorm {
 public:
  // weight [E], bias [E] or none. Throws bad_value for eps below 0 or not finite.
  explicit LayerNorm(const View& weight, const std::optional<View>& bias = std::nullopt, double eps = 1e-5);
  // x [...,E] -> the same shape in y_dtype: f32, bf16 or f16.
  Tensor forward(const View& x, DType y_dtype = DType::f32) const;
  // dy [...,E], the gradient of forward(x), and x [...,E] -> x's gradient, f32.
  Tensor input_gradient(const View& dy, const View& x) const;

  const Tensor& weight() const { return weight_; }             // [E], f32
  const std::optional<Tensor>& bias() const { return bias_; }  // [E], f32
  double eps() const { return eps_; }

 private:
  Tensor weight_;
  std::optional<Tensor> bias_;
  double eps_;
};

// x / sqrt(mean(x^2) + eps) * weight, as torch.nn.RMSNorm (Zhang and Sennrich 2019). Functions as in LayerNorm.
class ATTEND_API RmsNorm {
 public:
  explicit RmsNorm(const View& weight, double eps = 1e-6);
  Tensor forward(const View& x, DType y_dtype = DType::f32) const;
  Tensor input_gradient(const View& dy, const View& x) const;

  const Tensor& weight() const { return weight_; }  // [E], f32
  double eps() const { return eps_; }

 private:
  Tensor weight_;
  double eps_;
};

}  // namespace attend::inline v1
