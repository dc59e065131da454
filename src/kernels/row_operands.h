// What layers do to rows between their products, over plain memory.
#pragma once

#include <cstdint>

#include "attend/dtype.h"

namespace attend::inline v1::kernels {

// y = (x - mean) / sqrt(variance + eps) * weight + bias (Ba et al. 2016), or, not centred, x / sqrt(mean of x^2 + eps)
// * weight (Zhang and Sennrich 2019).
struct NormOperands {
  const void* x = nullptr;  // [rows,size]
  void* y = nullptr;        // [rows,size]; may be x
  DType x_dtype = DType::f32, y_dtype = DType::f32;
  std::int64_t size = 0;
  std::int64_t x_stride = 0, y_stride = 0;  // elements from one row to the next
  const float* weight = nullptr;            // [size]
  const float* bias = nullptr;              // [size], or null: none
  bool centered = true;
  float eps = 0;
};

// As Activation has them, in its order.
enum class ActivationKind : std::uint8_t {
  linear,
  relu,
  relu6,
  relu_squared,
  leaky_relu,
  gelu,
  gelu_tanh,
  gelu_quick,
  gelu_10,
  silu,
  hardswish,
  mish,
  sigmoid,
  tanh,
  laplace,
  sqrt_softplus
};

// x = f(x), or f(x) * gate.
struct ActivationOperands {
  ActivationKind kind = ActivationKind::gelu;
  void* x = nullptr;           // [rows,size]
  const void* gate = nullptr;  // [rows,size], or null: none
  DType dtype = DType::f32;    // of both
  std::int64_t size = 0;
};

// The gradient of a norm's x, given that of its y. Rows in one piece.
struct NormGradientOperands {
  const void* x = nullptr;    // [rows,size], as the norm had it
  const float* dy = nullptr;  // [rows,size]
  float* dx = nullptr;        // [rows,size]
  DType x_dtype = DType::f32;
  std::int64_t size = 0;
  const float* weight = nullptr;  // [size]
  bool centered = true;
  float eps = 0;
};

// Those of f(x), or of f(x) * gate.
struct ActivationGradientOperands {
  ActivationKind kind = ActivationKind::gelu;
  const void* x = nullptr;     // [rows,size], before f
  const void* gate = nullptr;  // [rows,size], or null: none
  DType dtype = DType::f32;    // of both
  const float* dy = nullptr;   // [rows,size]
  float* dx = nullptr;
  float* dgate = nullptr;  // where there is a gate
  std::int64_t size = 0;
};

// In place, each head's first half of numbers and its second as the coordinates of points in a plane, which are turned:
// (a cos - b sin, b cos + a sin) (Su et al. 2021, in the order of the halves that Llama has).
struct RotaryOperands {
  void* x = nullptr;  // [rows][heads][2 * half]
  DType dtype = DType::f32;
  std::int64_t row = 0, head = 0;  // elements from one to the next
  std::int64_t heads = 0, half = 0;
  const float* cos = nullptr;  // [rows,half]
  const float* sin = nullptr;
};

}  // namespace attend::inline v1::kernels
