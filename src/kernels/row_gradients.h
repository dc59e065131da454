// The gradients of what layers do to rows: norms and activations. Gradients are f32.
#pragma once

#include "kernels/rows.h"

namespace attend::inline v1::kernels {
namespace {

// ---- Norms ----

// A norm's row as its gradient needs it: x-hat = (x - mean) * factor.
struct NormRow {
  F center, factor;

  NormRow(const NormGradientOperands& a, const char* x) {
    const auto size = static_cast<float>(a.size);
    center = Simd::set1(a.centered ? sum_row(x, a.x_dtype, a.size, [](F v) { return v; }) / size : 0);
    const float squares = sum_row(x, a.x_dtype, a.size, [this](F v) {
      const F d = Simd::sub(v, center);
      return Simd::mul(d, d);
    });
    factor = Simd::set1(1 / __builtin_sqrtf(squares / size + a.eps));
  }
  F hat(F x) const { return Simd::mul(Simd::sub(x, center), factor); }
};

// body(g, x-hat, at, left) for each vector of a row, g = dy * weight; zeros beyond the row, and its end `left` away.
template <class Body>
void for_each_of_norm(const NormGradientOperands& a, const NormRow& row, const char* x, const float* dy, Body body) {
  for_each_piece(a.size, [&](std::int64_t begin, std::int64_t count) {
    Piece piece;
    piece.load(x, a.x_dtype, begin, count);
    for (std::int64_t i = 0; i < count; i += lanes) {
      const F g = Simd::mul(load_part(dy, begin + i, a.size), load_part(a.weight, begin + i, a.size));
      body(g, row.hat(Simd::load(piece.values + i)), begin + i, count - i);
    }
  });
}

// With g = dy * weight: dx = factor * (g - mean of g - x-hat * mean of (g * x-hat)); not centred, without the mean of
// g.
void normalize_gradient_rows(const NormGradientOperands& a, std::int64_t first, std::int64_t last) {
  const F share = Simd::set1(1 / static_cast<float>(a.size));
  for (std::int64_t r = first; r < last; ++r) {
    const char* x = at(a.x, a.x_dtype, r * a.size);
    const float* dy = a.dy + r * a.size;
    float* dx = a.dx + r * a.size;
    const NormRow row(a, x);
    F sums = Simd::zero(), products = Simd::zero();  // beyond the row g is 0
    for_each_of_norm(a, row, x, dy, [&](F g, F hat, std::int64_t, std::int64_t) {
      sums = Simd::add(sums, g);
      products = Simd::fma(g, hat, products);
    });
    const F mean = a.centered ? Simd::mul(Simd::set1(sum_of_lanes(sums)), share) : Simd::zero();
    const F along = Simd::mul(Simd::set1(sum_of_lanes(products)), share);
    for_each_of_norm(a, row, x, dy, [&](F g, F hat, std::int64_t i, std::int64_t left) {
      const F across = Simd::sub(Simd::sub(g, mean), Simd::mul(hat, along)), d = Simd::mul(row.factor, across);
      if (left >= lanes) return Simd::store(dx + i, d);
      float last_ones[lanes];
      Simd::store(last_ones, d);
      for (std::int64_t n = 0; n < left; ++n) dx[i + n] = last_ones[n];
    });
  }
}

// ---- Activations ----

// f(x) and its derivative.
struct Slope {
  F y, slope;
};

F sigmoid(F x) {
  return times_sigmoid(Simd::set1(1), x);
}

// s (1 - s), s = sigmoid(x), as a product of two tails: nothing cancels.
F sigmoid_slope(F x) {
  return times_sigmoid(sigmoid(x), Simd::sub(Simd::zero(), x));
}

F where(Mask mask, F x) {
  return Simd::select(mask, x, Simd::zero());
}

// e^(-x^2 / 2) / sqrt(2 pi)
F normal_density(F x) {
  const F a = Simd::min(Simd::set1(13), Simd::abs(x));
  return Simd::mul(exp(Simd::mul(Simd::mul(a, a), Simd::set1(-0.5f))), Simd::set1(0.39894228f));
}

Slope gelu_slope(F x) {
  const F below = normal_distribution(x);
  return {Simd::mul(x, below), Simd::fma(x, normal_density(x), below)};
}

// x sigmoid(u), u = x times a number (or, with cubic, that of gelu_tanh): sigmoid(u) + x u' sigmoid(u) (1 -
// sigmoid(u)).
Slope gated_slope(F x, F u, F du) {
  return {times_sigmoid(x, u), Simd::fma(Simd::mul(x, du), sigmoid_slope(u), sigmoid(u))};
}

Slope gelu_tanh_slope(F x) {
  const F square = Simd::mul(Simd::mul(x, x), Simd::set1(0.044715f)), scale = Simd::set1(1.5957691216f);
  const F u = Simd::mul(Simd::mul(x, Simd::add(square, Simd::set1(1))), scale);
  return gated_slope(x, u, Simd::mul(Simd::fma(square, Simd::set1(3), Simd::set1(1)), scale));
}

// With t = tanh(ln(1 + e^x)) = n / (n + 2), n = e^x (e^x + 2): t + x (1 - t^2) sigmoid(x), and 1 - t^2 = 4 (n + 1) / (n
// + 2)^2.
Slope mish_slope(F x) {
  const F e = exp(Simd::max(Simd::set1(-80), Simd::min(Simd::set1(20), x))), two = Simd::set1(2);
  const F n = Simd::mul(e, Simd::add(e, two)), t = Simd::div(n, Simd::add(n, two));
  const F rest =
      Simd::div(Simd::mul(Simd::set1(4), Simd::add(n, Simd::set1(1))), Simd::mul(Simd::add(n, two), Simd::add(n, two)));
  return {Simd::mul(x, t), Simd::fma(Simd::mul(x, rest), sigmoid(x), t)};
}

Slope hardswish_slope(F x) {
  const F three = Simd::set1(3), sixth = Simd::set1(1.0f / 6);
  const F between = Simd::mul(Simd::fma(x, Simd::set1(2), three), sixth);
  const F rising = Simd::select(Simd::greater(three, x), between, Simd::set1(1));
  return {Simd::mul(Simd::mul(x, relu6(Simd::add(x, three))), sixth), where(Simd::greater(x, Simd::set1(-3)), rising)};
}

template <class Function>
void activate_gradient_rows(const ActivationGradientOperands& a, std::int64_t first, std::int64_t last, Function f) {
  for (std::int64_t r = first; r < last; ++r) {
    for_each_piece(a.size, [&](std::int64_t begin, std::int64_t count) {
      const std::int64_t place = r * a.size + begin;
      Piece x, gate, dy;
      x.load(a.x, a.dtype, place, count);
      if (a.gate) gate.load(a.gate, a.dtype, place, count);
      dy.load(a.dy, DType::f32, place, count);
      for (std::int64_t i = 0; i < count; i += lanes) {
        const Slope at = f(Simd::load(x.values + i));
        const F d = Simd::load(dy.values + i), dx = Simd::mul(d, at.slope);
        Simd::store(x.values + i, a.gate ? Simd::mul(dx, Simd::load(gate.values + i)) : dx);
        Simd::store(dy.values + i, Simd::mul(d, at.y));
      }
      x.store(a.dx, DType::f32, place, count);
      if (a.gate) dy.store(a.dgate, DType::f32, place, count);
    });
  }
}

// Where a slope jumps, the one that PyTorch has there.
void activate_gradient_rows(const ActivationGradientOperands& a, std::int64_t first, std::int64_t last) {
  const F zero = Simd::zero(), one = Simd::set1(1);
  const auto each = [&](auto f) { activate_gradient_rows(a, first, last, f); };
  switch (a.kind) {
    case ActivationKind::linear:
      return each([=](F x) { return Slope{x, one}; });
    case ActivationKind::relu:
      return each([=](F x) { return Slope{relu(x), where(Simd::greater(x, zero), one)}; });
    case ActivationKind::relu6:
      return each([=](F x) {
        const F below = where(Simd::greater(Simd::set1(6), x), one);
        return Slope{relu6(x), where(Simd::greater(x, zero), below)};
      });
    case ActivationKind::relu_squared:
      return each([](F x) { return Slope{Simd::mul(relu(x), relu(x)), Simd::add(relu(x), relu(x))}; });
    case ActivationKind::leaky_relu:
      return each([=](F x) {
        const F slope = Simd::select(Simd::greater(x, zero), one, Simd::set1(0.01f));
        return Slope{Simd::mul(x, slope), slope};
      });
    case ActivationKind::gelu:
      return each([](F x) { return gelu_slope(x); });
    case ActivationKind::gelu_tanh:
      return each([](F x) { return gelu_tanh_slope(x); });
    case ActivationKind::gelu_quick:
      return each([](F x) { return gated_slope(x, Simd::mul(x, Simd::set1(1.702f)), Simd::set1(1.702f)); });
    case ActivationKind::gelu_10:
      return each([=](F x) {
        const Slope of = gelu_slope(x);
        const F most = Simd::set1(10);
        return Slope{Simd::min(most, of.y), where(Simd::greater(most, of.y), of.slope)};
      });
    case ActivationKind::silu:
      return each([=](F x) { return gated_slope(x, x, one); });
    case ActivationKind::hardswish:
      return each([](F x) { return hardswish_slope(x); });
    case ActivationKind::mish:
      return each([](F x) { return mish_slope(x); });
    case ActivationKind::sigmoid:
      return each([](F x) { return Slope{sigmoid(x), sigmoid_slope(x)}; });
    case ActivationKind::tanh:
      return each([=](F x) {
        const F t = tanh(x);
        return Slope{t, Simd::sub(one, Simd::mul(t, t))};
      });
    case ActivationKind::laplace:
      return each([](F x) {
        const F scale = Simd::set1(1 / 0.282095f), z = Simd::mul(Simd::sub(x, Simd::set1(0.707107f)), scale);
        return Slope{normal_distribution(z), Simd::mul(normal_density(z), scale)};
      });
    case ActivationKind::sqrt_softplus:
      return each([](F x) {
        const F y = sqrt(softplus(x));
        return Slope{y, Simd::div(sigmoid(x), Simd::add(y, y))};
      });
  }
  __builtin_trap();
}

}  // namespace
}  // namespace attend::inline v1::kernels
