// Gradients by differences, in double: what a layer's backward is held against where PyTorch has no such layer.
#pragma once

#include <functional>
#include <string>

#include "tests/expect.h"

namespace attend::test {

// Central differences of step 1e-5 in f64 are exact to some 1e-9; what is compared with them computes in f32, some ten
// roundings behind each other, and sums that cancel grow them.
constexpr double of_differences = 5e-6;

// Tensors by name, in f32 and in f64.
struct Numbers {
  TensorMap single, wide;

  void add(const std::string& name, const View& tensor) {
    single[name] = tensor.to(DType::f32);
    wide[name] = single[name].view().to(DType::f64);
  }
  // Of loss(wide), each in its tensor's shape.
  TensorMap gradients(const std::function<double(const TensorMap&)>& loss) {
    constexpr double step = 1e-5;
    TensorMap out;
    for (auto& [name, tensor] : wide) {
      Tensor& gradient = out[name] = Tensor(tensor.shape(), DType::f64);
      for (std::int64_t i = 0; i < tensor.count(); ++i) {
        double& x = tensor.data<double>()[i];
        const double before = x;
        x = before + step;
        const double above = loss(wide);
        x = before - step;
        gradient.data<double>()[i] = (above - loss(wide)) / (2 * step);
        x = before;
      }
    }
    return out;
  }
};

// x [...,in], weight [out,in], bias [out] or none -> [...,out], in double.
inline Tensor linear(const View& x, const View& weight, const std::optional<View>& bias) {
  Dims shape = x.shape();
  const std::int64_t in = weight.size(1), out = weight.size(0);
  shape[shape.rank() - 1] = out;
  Tensor y(shape, DType::f64);
  const Tensor rows = x.clone();
  for (std::int64_t i = 0; i < y.count(); ++i) {
    double sum = bias ? bias->item({i % out}) : 0;
    for (std::int64_t n = 0; n < in; ++n) sum += rows.data<double>()[i / out * in + n] * weight.item({i % out, n});
    y.data<double>()[i] = sum;
  }
  return y;
}

// [B,T,D] -> [B,1,T,D]
inline Tensor insert_head(const View& x) {
  return x.reshape({x.size(0), 1, x.size(1), x.size(2)}).clone();
}

// The sum of a's and b's products, element by element in row-major order.
inline double dot(const View& a, const View& b) {
  const Tensor x = a.to(DType::f64), y = b.to(DType::f64);
  double sum = 0;
  for (std::int64_t i = 0; i < x.count(); ++i) sum += x.data<double>()[i] * y.data<double>()[i];
  return sum;
}

}  // namespace attend::test
