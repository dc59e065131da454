// What layers do to rows between their products: norms, activations, rotations, changes of dtype.
#pragma once

#include "kernels/operand.h"

namespace attend::inline v1::kernels {
namespace {

// ---- Pieces ----

// Rows of any dtype pass by in pieces of f32 that stay in registers and the L1 cache.
constexpr std::int64_t piece_floats = 16 * lanes;

// body(at, count) for pieces of a row.
template <class Body>
void for_each_piece(std::int64_t size, Body body) {
  for (std::int64_t i = 0; i < size; i += piece_floats) body(i, min_of(piece_floats, size - i));
}

// A piece of a row as f32; zeros fill up its last vector. Inlined, the conversions of every dtype stood in each of 32
// activations and gradients: 60 KB of the 1,130 of a page's engine.
struct Piece {
  alignas(64) float values[piece_floats];

  __attribute__((noinline)) void load(const void* x, DType dtype, std::int64_t at, std::int64_t count) {
    load_row(values, kernels::at(x, dtype, at), {dtype, 1, count});
    for (std::int64_t i = count; i < round_up(count, lanes); ++i) values[i] = 0;
  }
  __attribute__((noinline)) void store(void* x, DType dtype, std::int64_t at, std::int64_t count) const {
    store_row(values, kernels::at(x, dtype, at), {dtype, 1, count});
  }
};

// x[i] = f(x[i], i) for vectors that hold the first `count`.
template <class Function>
void map_piece(Piece& x, std::int64_t count, Function f) {
  for (std::int64_t i = 0; i < count; i += lanes) Simd::store(x.values + i, f(Simd::load(x.values + i), i));
}

// The first of `count` numbers from x + i on, zeros beyond.
F load_part(const float* x, std::int64_t i, std::int64_t count) {
  return i + lanes <= count ? Simd::load(x + i) : Simd::load_first(x + i, count - i);
}

void convert_row(const void* from, DType from_dtype, void* to, DType to_dtype, std::int64_t count) {
  for_each_piece(count, [&](std::int64_t at, std::int64_t some) {
    Piece piece;
    piece.load(from, from_dtype, at, some);
    piece.store(to, to_dtype, at, some);
  });
}

void add_row(float* to, const void* x, DType dtype, std::int64_t count) {
  for_each_piece(count, [&](std::int64_t at, std::int64_t some) {
    Piece piece;
    piece.load(x, dtype, at, some);
    std::int64_t i = 0;
    for (; i + lanes <= some; i += lanes) {
      Simd::store(to + at + i, Simd::add(Simd::load(to + at + i), Simd::load(piece.values + i)));
    }
    for (; i < some; ++i) to[at + i] += piece.values[i];
  });
}

// ---- Norms ----

// The sum of f(x) over a row.
template <class Function>
float sum_row(const void* x, DType dtype, std::int64_t size, Function f) {
  F sums = Simd::zero();
  float rest = 0;
  for_each_piece(size, [&](std::int64_t at, std::int64_t count) {
    Piece piece;
    piece.load(x, dtype, at, count);
    std::int64_t i = 0;
    for (; i + lanes <= count; i += lanes) sums = Simd::add(sums, f(Simd::load(piece.values + i)));
    if (i == count) return;
    float last[lanes];
    Simd::store(last, f(Simd::load_first(piece.values + i, count - i)));
    for (std::int64_t n = 0; n < count - i; ++n) rest += last[n];
  });
  return sum_of_lanes(sums) + rest;
}

void normalize_rows(const NormOperands& a, std::int64_t first, std::int64_t last) {
  const auto size = static_cast<float>(a.size);
  for (std::int64_t r = first; r < last; ++r) {
    const char* x = at(a.x, a.x_dtype, r * a.x_stride);
    char* y = at(a.y, a.y_dtype, r * a.y_stride);
    const float mean = a.centered ? sum_row(x, a.x_dtype, a.size, [](F v) { return v; }) / size : 0;
    const F center = Simd::set1(mean);
    const float squares = sum_row(x, a.x_dtype, a.size, [center](F v) {
      const F d = Simd::sub(v, center);
      return Simd::mul(d, d);
    });
    const F factor = Simd::set1(1 / __builtin_sqrtf(squares / size + a.eps));
    for_each_piece(a.size, [&](std::int64_t begin, std::int64_t count) {
      Piece piece;
      piece.load(x, a.x_dtype, begin, count);
      map_piece(piece, count, [&](F v, std::int64_t i) {
        const F scaled = Simd::mul(Simd::mul(Simd::sub(v, center), factor), load_part(a.weight, begin + i, a.size));
        return a.bias ? Simd::add(scaled, load_part(a.bias, begin + i, a.size)) : scaled;
      });
      piece.store(y, a.y_dtype, begin, count);
    });
  }
}

// ---- Activations ----

// e^x for x within what is normal in f32.
F exp(F x) {
  return exp2<5>(Simd::mul(x, Simd::set1(static_cast<float>(log2_e))));
}

// x / (1 + e^-y). Beyond +-80 that is x or, but for what is not finite, 0 to f32's precision.
F times_sigmoid(F x, F y) {
  const F z = Simd::max(Simd::set1(-80), Simd::min(Simd::set1(80), Simd::sub(Simd::zero(), y)));  // of NaN NaN
  return Simd::div(x, Simd::add(Simd::set1(1), exp(z)));
}

// The normal distribution's function at x. Its upper tail is e^(-x^2/2) t p(t), t = 1 / (1 + |x| / 4), with p fitted
// for the smallest relative error on [0, 14]: 5e-8; 5e-7 with f32's rounding.
F normal_distribution(F x) {
  static constexpr float c[] = {0.099796385f, 0.09853769f, 0.10358017f,  0.033655755f, 0.19985595f,
                                -0.20273657f, 0.2931961f,  -0.15126501f, 0.025379503f};
  const F a = Simd::min(Simd::set1(13), Simd::abs(x));  // beyond, the tail is below 1e-38; of NaN NaN
  const F t = Simd::div(Simd::set1(1), Simd::fma(a, Simd::set1(0.25f), Simd::set1(1)));
  F p = Simd::set1(c[8]);
#pragma GCC unroll 8
  for (int i = 7; i >= 0; --i) p = Simd::fma(p, t, Simd::set1(c[i]));
  const F tail = Simd::mul(Simd::mul(p, t), exp(Simd::mul(Simd::mul(a, a), Simd::set1(-0.5f))));
  return Simd::select(Simd::greater(x, Simd::zero()), Simd::sub(Simd::set1(1), tail), tail);
}

// Hendrycks and Gimpel 2016.
F gelu(F x) {
  return Simd::mul(x, normal_distribution(x));
}

// x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2, where 1 + tanh(u) = 2 / (1 + e^-2u).
F gelu_tanh(F x) {
  const F cubic = Simd::fma(Simd::mul(x, x), Simd::set1(0.044715f), Simd::set1(1));
  return times_sigmoid(x, Simd::mul(Simd::mul(x, cubic), Simd::set1(1.5957691216f)));
}

F relu(F x) {
  return Simd::max(Simd::zero(), x);
}
F relu6(F x) {
  return Simd::min(Simd::set1(6), relu(x));
}

// x tanh(ln(1 + e^x)) is x n / (n + 2), n = e^x (e^x + 2): nothing cancels. n / (n + 2) is 1 in f32 from 10 on.
F mish(F x) {
  const F e = exp(Simd::max(Simd::set1(-80), Simd::min(Simd::set1(20), x))), two = Simd::set1(2);
  const F n = Simd::mul(e, Simd::add(e, two));
  return Simd::mul(x, Simd::div(n, Simd::add(n, two)));
}

// ln(1 + e^x) = max(x, 0) + ln(1 + y), y = e^-|x|, the latter 2 atanh(s), s = y / (2 + y) <= 1/3, by its series: what
// follows s^16 / 17 is below 2e-9 of it.
F softplus(F x) {
  const F y = exp(Simd::max(Simd::set1(-80), Simd::sub(Simd::zero(), Simd::abs(x))));
  const F s = Simd::div(y, Simd::add(y, Simd::set1(2))), squared = Simd::mul(s, s);
  F p = Simd::set1(1.0f / 17);
#pragma GCC unroll 8
  for (int i = 15; i > 0; i -= 2) p = Simd::fma(p, squared, Simd::set1(1 / static_cast<float>(i)));
  return Simd::add(relu(x), Simd::mul(Simd::mul(s, p), Simd::set1(2)));
}

F sqrt(F x) {
  float each[lanes];
  Simd::store(each, x);
  for (float& one : each) one = __builtin_sqrtf(one);
  return Simd::load(each);
}

template <class Function>
void activate_rows(const ActivationOperands& a, std::int64_t first, std::int64_t last, Function f) {
  for (std::int64_t r = first; r < last; ++r) {
    for_each_piece(a.size, [&](std::int64_t begin, std::int64_t count) {
      const std::int64_t place = r * a.size + begin;
      Piece piece, gate;
      piece.load(a.x, a.dtype, place, count);
      if (a.gate) gate.load(a.gate, a.dtype, place, count);
      map_piece(piece, count,
                [&](F x, std::int64_t i) { return a.gate ? Simd::mul(f(x), Simd::load(gate.values + i)) : f(x); });
      piece.store(a.x, a.dtype, place, count);
    });
  }
}

void activate_rows(const ActivationOperands& a, std::int64_t first, std::int64_t last) {
  const auto each = [&](auto f) { activate_rows(a, first, last, f); };
  switch (a.kind) {
    case ActivationKind::linear:
      return each([](F x) { return x; });
    case ActivationKind::relu:
      return each([](F x) { return relu(x); });
    case ActivationKind::relu6:
      return each([](F x) { return relu6(x); });
    case ActivationKind::relu_squared:
      return each([](F x) { return Simd::mul(relu(x), relu(x)); });
    case ActivationKind::leaky_relu:
      return each([](F x) { return Simd::select(Simd::greater(x, Simd::zero()), x, Simd::mul(x, Simd::set1(0.01f))); });
    case ActivationKind::gelu:
      return each([](F x) { return gelu(x); });
    case ActivationKind::gelu_tanh:
      return each([](F x) { return gelu_tanh(x); });
    case ActivationKind::gelu_quick:
      return each([](F x) { return times_sigmoid(x, Simd::mul(x, Simd::set1(1.702f))); });
    case ActivationKind::gelu_10:
      return each([](F x) { return Simd::min(Simd::set1(10), gelu(x)); });
    case ActivationKind::silu:
      return each([](F x) { return times_sigmoid(x, x); });
    case ActivationKind::hardswish:
      return each(
          [](F x) { return Simd::mul(Simd::mul(x, relu6(Simd::add(x, Simd::set1(3)))), Simd::set1(1.0f / 6)); });
    case ActivationKind::mish:
      return each([](F x) { return mish(x); });
    case ActivationKind::sigmoid:
      return each([](F x) { return times_sigmoid(Simd::set1(1), x); });
    case ActivationKind::tanh:
      return each([](F x) { return tanh(x); });
    case ActivationKind::laplace:
      return each([](F x) {
        return normal_distribution(Simd::mul(Simd::sub(x, Simd::set1(0.707107f)), Simd::set1(1 / 0.282095f)));
      });
    case ActivationKind::sqrt_softplus:
      return each([](F x) { return sqrt(softplus(x)); });
  }
  __builtin_trap();
}

// ---- Rotary positions ----

// One head of one row.
void rotate_head(const RotaryOperands& a, char* x, const float* cos, const float* sin) {
  for_each_piece(a.half, [&](std::int64_t begin, std::int64_t count) {
    Piece low, high;
    low.load(x, a.dtype, begin, count);
    high.load(x, a.dtype, a.half + begin, count);
    for (std::int64_t i = 0; i < count; i += lanes) {
      const F c = load_part(cos, begin + i, a.half), s = load_part(sin, begin + i, a.half);
      const F l = Simd::load(low.values + i), h = Simd::load(high.values + i);
      Simd::store(low.values + i, Simd::sub(Simd::mul(l, c), Simd::mul(h, s)));
      Simd::store(high.values + i, Simd::fma(l, s, Simd::mul(h, c)));
    }
    low.store(x, a.dtype, begin, count);
    high.store(x, a.dtype, a.half + begin, count);
  });
}

void rotate_rows(const RotaryOperands& a, std::int64_t first, std::int64_t last) {
  for (std::int64_t r = first; r < last; ++r) {
    for (std::int64_t h = 0; h < a.heads; ++h) {
      rotate_head(a, at(a.x, a.dtype, r * a.row + h * a.head), a.cos + r * a.half, a.sin + r * a.half);
    }
  }
}

// ---- Products ----

// Sums of every `lanes`-th product of two rows.
F multiply_in_lanes(const float* a, const float* b, std::int64_t size) {
  F sums = Simd::zero(), others = Simd::zero();
  std::int64_t i = 0;
  for (; i + 2 * lanes <= size; i += 2 * lanes) {
    sums = Simd::fma(Simd::load(a + i), Simd::load(b + i), sums);
    others = Simd::fma(Simd::load(a + i + lanes), Simd::load(b + i + lanes), others);
  }
  for (; i < size; i += lanes) sums = Simd::fma(load_part(a, i, size), load_part(b, i, size), sums);
  return Simd::add(sums, others);
}

// `lanes` rows at once: one transposition is less than as many sums of a vector's lanes.
void multiply_rows(const float* row, const float* rows, std::int64_t size, std::int64_t count, float* products) {
  std::int64_t n = 0;
  for (; n + lanes <= count; n += lanes) {
    F parts[lanes];
#pragma GCC unroll 16
    for (int r = 0; r < lanes; ++r) parts[r] = multiply_in_lanes(row, rows + (n + r) * size, size);
    Simd::transpose(parts);
#pragma GCC unroll 16
    for (int r = 1; r < lanes; ++r) parts[0] = Simd::add(parts[0], parts[r]);
    Simd::store(products + n, parts[0]);
  }
  for (; n < count; ++n) products[n] = sum_of_lanes(multiply_in_lanes(row, rows + n * size, size));
}

// ---- Products in double ----

// The compiler makes these of the vectors that a target has.
using Floats8 [[gnu::vector_size(32), gnu::aligned(4), gnu::may_alias]] = float;
using Doubles8 [[gnu::vector_size(64), gnu::aligned(8), gnu::may_alias]] = double;

// Eight sums side by side: the order depends on the size alone. A product of two f32 is exact in double, so that it is
// of no consequence whether a target rounds it before it is added.
template <bool squared>
void dot_row(const double* a, const float* b, std::int64_t size, double* product, double* square) {
  Doubles8 products{}, squares{};
  std::int64_t e = 0;
  for (; e + 8 <= size; e += 8) {
    const auto wide = __builtin_convertvector(*reinterpret_cast<const Floats8*>(b + e), Doubles8);
    products += *reinterpret_cast<const Doubles8*>(a + e) * wide;
    if constexpr (squared) squares += wide * wide;
  }
  for (; e < size; ++e) {
    const auto wide = static_cast<double>(b[e]);
    products[0] += a[e] * wide;
    if constexpr (squared) squares[0] += wide * wide;
  }
  double sum = 0, sum_of_squares = 0;
  for (int lane = 0; lane < 8; ++lane) {
    sum += products[lane];
    sum_of_squares += squares[lane];
  }
  *product = sum;
  if constexpr (squared) *square = sum_of_squares;
}

void dot_rows(const double* a, const float* rows, std::int64_t size, std::int64_t count, double* products,
              double* squares) {
  for (std::int64_t n = 0; n < count; ++n) {
    if (squares) dot_row<true>(a, rows + n * size, size, products + n, squares + n);
    if (!squares) dot_row<false>(a, rows + n * size, size, products + n, nullptr);
  }
}

}  // namespace
}  // namespace attend::inline v1::kernels
