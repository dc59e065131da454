#include "attend/random.h"

#include <cmath>
#include <limits>
#include <numbers>
#include <string_view>
#include <utility>

#include "core/bit_cast.h"
#include "core/message.h"

namespace attend::inline v1 {
namespace {

// PyTorch's kernels are compiled with FMA and with GCC's default contraction, so some of their multiplies and adds are
// one rounding and others are two. Each std::fma below stands where PyTorch has one; docs/numerics.md has the evidence.

constexpr int mt_size = 624;
constexpr int mt_middle = 397;
// From here on PyTorch draws normal values in blocks of 16.
constexpr std::int64_t normal_block = 16;

// Uniform in [0, 1) from as many low bits as the mantissa holds.
float unit_value(std::uint32_t bits) {
  return static_cast<float>(bits & 0xffffffU) * 0x1p-24F;
}
double unit_value(std::uint64_t bits) {
  return static_cast<double>(bits & ((1ULL << 53) - 1)) * 0x1p-53;
}

template <std::size_t N>
float horner(const std::array<float, N>& coefficients, float x) {
  float y = coefficients[0];
  for (std::size_t i = 1; i < N; ++i) y = std::fma(y, x, coefficients[i]);
  return y;
}

// Natural logarithm, for normal x in (0, 1]: the single-precision Cephes polynomial as avx_mathfun.h orders it. A
// libm's logf differs in the last bit.
float cephes_log(float x) {
  static constexpr std::array polynomial = {7.0376836292e-2F,  -1.1514610310e-1F, 1.1676998740e-1F,
                                            -1.2420140846e-1F, 1.4249322787e-1F,  -1.6668057665e-1F,
                                            2.0000714765e-1F,  -2.4999993993e-1F, 3.3333331174e-1F};
  constexpr float ln2_low = -2.12194440e-4F;
  constexpr float ln2_high = 0.693359375F;

  const auto bits = bit_cast<std::uint32_t>(x);
  float exponent = static_cast<float>(static_cast<std::int32_t>(bits >> 23) - 126);
  const float mantissa = bit_cast<float>((bits & 0x007fffffU) | 0x3f000000U);  // [0.5, 1)
  float t = mantissa - 1.0F;
  if (mantissa < std::numbers::sqrt2_v<float> / 2) {
    exponent -= 1.0F;
    t += mantissa;
  }
  const float square = t * t;
  float y = horner(polynomial, t) * t;
  y = std::fma(y, square, exponent * ln2_low);
  y = std::fma(-0.5F, square, y);
  return std::fma(exponent, ln2_high, t + y);
}

struct SinCos {
  float sin;
  float cos;
};

// For x in [0, 8192]; of the same origin as cephes_log.
SinCos cephes_sincos(float x) {
  static constexpr std::array sin_polynomial = {-1.9515295891e-4F, 8.3321608736e-3F, -1.6666654611e-1F};
  static constexpr std::array cos_polynomial = {2.443315711809948e-5F, -1.388731625493765e-3F, 4.166664568298827e-2F};

  const std::int32_t octant = (static_cast<std::int32_t>(x * 1.27323954473516F) + 1) & ~1;  // 4 / pi
  const float turns = static_cast<float>(octant);
  float r = std::fma(turns, -0.78515625F, x);  // pi / 4 in three parts
  r = std::fma(turns, -2.4187564849853515625e-4F, r);
  r = std::fma(turns, -3.77489497744594108e-8F, r);

  const float square = r * r;
  const float cos_of_r = std::fma(horner(cos_polynomial, square) * square, square, -0.5F * square) + 1.0F;
  const float sin_of_r = std::fma(horner(sin_polynomial, square) * square, r, r);
  const bool swapped = (octant & 2) != 0;
  const float sin = swapped ? cos_of_r : sin_of_r;
  const float cos = swapped ? sin_of_r : cos_of_r;
  return {(octant & 4) != 0 ? -sin : sin, ((octant - 2) & 4) == 0 ? -cos : cos};
}

// Box-Muller: two normal values from the uniform values u1 in (0, 1] and u2.
std::pair<float, float> normal_pair(float u1, float u2) {
  const float radius = std::sqrt(-2.0F * cephes_log(u1));
  const auto [sin, cos] = cephes_sincos(static_cast<float>(2 * std::numbers::pi) * u2);
  return {radius * cos, radius * sin};
}
std::pair<double, double> normal_pair(double u1, double u2) {
  const double radius = std::sqrt(-2.0 * std::log(u1));
  const double theta = 2 * std::numbers::pi * u2;
  return {radius * std::cos(theta), radius * std::sin(theta)};
}

// Turns 16 uniform values into normal ones: value j makes a pair with value j + 8.
template <class T>
void normal_from_uniform(T* values, T mean, T std) {
  for (int j = 0; j < 8; ++j) {
    const auto [first, second] = normal_pair(T{1} - values[j], values[j + 8]);
    values[j] = std::fma(first, std, mean);
    values[j + 8] = std::fma(second, std, mean);
  }
}

// At least 16 values. All uniform values are drawn before the first block is transformed, and a last block that is not
// full is drawn again as the last 16 values of all: so it goes in PyTorch.
template <class T, class Draw>
void normal_blocks(T* values, std::int64_t count, T mean, T std, Draw draw_unit) {
  for (std::int64_t i = 0; i < count; ++i) values[i] = draw_unit();
  for (std::int64_t i = 0; i + normal_block <= count; i += normal_block) normal_from_uniform(values + i, mean, std);
  if (count % normal_block == 0) return;
  T* last = values + count - normal_block;
  for (std::int64_t i = 0; i < normal_block; ++i) last[i] = draw_unit();
  normal_from_uniform(last, mean, std);
}

template <class T, class Draw>
void fill(Tensor& tensor, Draw draw) {
  T* values = tensor.data<T>();
  const std::int64_t count = tensor.count();
  for (std::int64_t i = 0; i < count; ++i) values[i] = static_cast<T>(draw());
}

void require_dtype(std::string_view function, DType dtype) {
  if (dtype != DType::f32 && dtype != DType::f64)
    fail(ErrorCode::bad_dtype, fmt::format("Generator::{}", function), "dtype expected f32 or f64, got {}", dtype);
}

// False for NaN too.
bool is_finite_as(DType dtype, double value) {
  const double largest =
      dtype == DType::f32 ? double{std::numeric_limits<float>::max()} : std::numeric_limits<double>::max();
  return std::abs(value) <= largest;
}

struct Fans {
  double in = 0;
  double out = 0;
};

Fans fans_of(std::string_view function, const Dims& shape) {
  if (shape.rank() < 2)
    fail(ErrorCode::bad_shape, fmt::format("Generator::{}", function),
         "shape expected [out,in] or [out,in,...], got {}", shape);
  double each = 1;
  for (int axis = 2; axis < shape.rank(); ++axis) each *= static_cast<double>(shape[axis]);
  return {static_cast<double>(shape[1]) * each, static_cast<double>(shape[0]) * each};
}

}  // namespace

void Generator::seed(std::uint64_t seed) {
  state_[0] = static_cast<std::uint32_t>(seed);  // PyTorch ignores the upper half
  for (std::uint32_t i = 1; i < mt_size; ++i) state_[i] = 1812433253U * (state_[i - 1] ^ (state_[i - 1] >> 30)) + i;
  position_ = mt_size;
  kept_normal_.reset();
}

std::uint32_t Generator::next32() {
  if (position_ == mt_size) {
    for (std::size_t i = 0; i < mt_size; ++i) {
      const std::uint32_t next = state_[(i + 1) % mt_size];
      const std::uint32_t mixed = (state_[i] & 0x80000000U) | (next & 0x7fffffffU);
      state_[i] = state_[(i + mt_middle) % mt_size] ^ (mixed >> 1) ^ ((next & 1U) != 0 ? 0x9908b0dfU : 0U);
    }
    position_ = 0;
  }
  std::uint32_t bits = state_[static_cast<std::size_t>(position_++)];
  bits ^= bits >> 11;
  bits ^= (bits << 7) & 0x9d2c5680U;
  bits ^= (bits << 15) & 0xefc60000U;
  return bits ^ (bits >> 18);
}

std::uint64_t Generator::next64() {
  const std::uint64_t high = next32();
  return (high << 32) | next32();
}

double Generator::next_normal() {
  if (kept_normal_) return *std::exchange(kept_normal_, std::nullopt);
  const double u1 = unit_value(next64());
  const double u2 = unit_value(next64());
  const double radius = std::sqrt(-2.0 * std::log1p(-u2));
  const double theta = 2 * std::numbers::pi * u1;
  kept_normal_ = radius * std::sin(theta);
  return radius * std::cos(theta);
}

Tensor Generator::rand(const Dims& shape, DType dtype) {
  require_dtype("rand", dtype);
  return uniform(shape, 0, 1, dtype);
}

Tensor Generator::randn(const Dims& shape, DType dtype) {
  require_dtype("randn", dtype);
  return normal(shape, 0, 1, dtype);
}

Tensor Generator::uniform(const Dims& shape, double low, double high, DType dtype) {
  require_dtype("uniform", dtype);
  if (!(is_finite_as(dtype, low) && is_finite_as(dtype, high) && low <= high && is_finite_as(dtype, high - low)))
    fail(ErrorCode::bad_value, "Generator::uniform", "low and high expected low <= high, finite in {}, got {} and {}",
         dtype, low, high);
  Tensor values = Tensor::uninitialized(shape, dtype);
  if (dtype == DType::f32) {
    const auto start = static_cast<float>(low);
    const float width = static_cast<float>(high) - start;
    fill<float>(values, [&] { return std::fma(unit_value(next32()), width, start); });
  } else {
    fill<double>(values, [&] { return std::fma(unit_value(next64()), high - low, low); });
  }
  return values;
}

Tensor Generator::normal(const Dims& shape, double mean, double std, DType dtype) {
  require_dtype("normal", dtype);
  if (!is_finite_as(dtype, mean))
    fail(ErrorCode::bad_value, "Generator::normal", "mean expected finite in {}, got {}", dtype, mean);
  if (!(std >= 0 && is_finite_as(dtype, std)))
    fail(ErrorCode::bad_value, "Generator::normal", "std expected 0 or more and finite in {}, got {}", dtype, std);
  Tensor values = Tensor::uninitialized(shape, dtype);
  const std::int64_t count = values.count();
  const auto draw = [&] { return std::fma(next_normal(), std, mean); };
  if (dtype == DType::f32) {
    if (count < normal_block) {
      fill<float>(values, draw);
    } else {
      normal_blocks(values.data<float>(), count, static_cast<float>(mean), static_cast<float>(std),
                    [&] { return unit_value(next32()); });
    }
  } else if (count < normal_block) {
    fill<double>(values, draw);
  } else {
    normal_blocks(values.data<double>(), count, mean, std, [&] { return unit_value(next64()); });
  }
  return values;
}

// The initialisers follow torch.nn.init step by step in double, so that a bound rounds to the same float. Like there,
// a tensor without elements draws nothing: its fans may be 0.

Tensor Generator::kaiming_uniform(const Dims& shape) {
  const Fans fans = fans_of("kaiming_uniform", shape);
  if (element_count(shape) == 0) return Tensor(shape);
  const double slope = std::sqrt(5.0);
  const double std = std::sqrt(2.0 / (1.0 + slope * slope)) / std::sqrt(fans.in);
  const double bound = std::sqrt(3.0) * std;
  return uniform(shape, -bound, bound);
}

Tensor Generator::xavier_uniform(const Dims& shape) {
  const Fans fans = fans_of("xavier_uniform", shape);
  if (element_count(shape) == 0) return Tensor(shape);
  const double bound = std::sqrt(3.0) * std::sqrt(2.0 / (fans.in + fans.out));
  return uniform(shape, -bound, bound);
}

Tensor Generator::xavier_normal(const Dims& shape) {
  const Fans fans = fans_of("xavier_normal", shape);
  if (element_count(shape) == 0) return Tensor(shape);
  return normal(shape, 0, std::sqrt(2.0 / (fans.in + fans.out)));
}

}  // namespace attend::inline v1
