// Every target's kernels for rows by themselves: sizes around their vectors and pieces, every dtype, beside the same in
// double, and nothing read or written outside.
#include <cmath>
#include <numbers>

#include "core/element.h"
#include "tests/kernels/every_target.h"

namespace attend {
namespace {

using namespace test;
using kernels::ActivationKind;

class RowKernels : public EveryTarget {};

INSTANTIATE_TEST_SUITE_P(Every, RowKernels, every_target(), name_of_target);

constexpr DType dtypes[] = {DType::f32, DType::bf16, DType::f16};

// Around a vector's lanes and a piece's 16 vectors.
std::vector<std::int64_t> sizes(const kernels::Target& target) {
  const std::int64_t n = target.lanes;
  return {1, 2, n - 1, n, n + 1, 3 * n + 2, 16 * n - 1, 16 * n, 16 * n + 1, 33 * n + 3};
}

// What rounding a result to the dtype may take, beside f32's own.
double unit(DType dtype) {
  return dtype == DType::bf16 ? 0x1p-8 : dtype == DType::f16 ? 0x1p-11 : 0x1p-24;
}

// Drawn from N(0, 3), in memory of just their size.
class Numbers {
 public:
  Numbers(std::int64_t count, DType dtype, std::uint64_t seed) : memory_(count, dtype), dtype_(dtype) {
    MutableView(memory_.begin(), dtype, {count}).copy_from(Generator(seed).normal({count}, 0, 3));
  }
  void* begin() { return memory_.begin(); }
  const float* floats() { return memory_.as<float>(); }
  double operator[](std::int64_t n) { return load_element(dtype_, memory_.begin() + n * size_of(dtype_)); }
  std::vector<double> all(std::int64_t count) {
    std::vector<double> out;
    for (std::int64_t n = 0; n < count; ++n) out.push_back((*this)[n]);
    return out;
  }
  bool intact() const { return memory_.intact(); }

 private:
  Guarded memory_;
  DType dtype_;
};

std::string what(std::int64_t size, DType dtype) {
  return std::to_string(size) + " " + std::string(name_of(dtype));
}

TEST_P(RowKernels, ConvertAndAdd) {
  for (const std::int64_t size : sizes(target())) {
    for (const DType from : dtypes) {
      Numbers x(size, from, 1), sum(size, DType::f32, 2);
      const std::vector<double> before = sum.all(size);
      target().rows.add(static_cast<float*>(sum.begin()), x.begin(), from, size);
      for (std::int64_t i = 0; i < size; ++i)
        EXPECT_EQ(sum[i], double(float(before[std::size_t(i)]) + float(x[i]))) << what(size, from);
      for (const DType to : dtypes) {
        Numbers y(size, to, 3);
        target().rows.convert(x.begin(), from, y.begin(), to, size);
        for (std::int64_t i = 0; i < size; ++i) EXPECT_EQ(y[i], double(rounded(to, float(x[i])))) << what(size, from);
        EXPECT_TRUE(x.intact() && y.intact() && sum.intact()) << what(size, from);
      }
    }
  }
}

TEST_P(RowKernels, Normalize) {
  for (const std::int64_t size : sizes(target())) {
    for (const DType dtype : dtypes) {
      for (const bool centered : {true, false}) {
        constexpr std::int64_t rows = 3;
        Numbers x(rows * (size + 1) - 1, dtype, 1), y(rows * (size + 2) - 2, dtype, 2);
        Numbers weight(size, DType::f32, 3), bias(size, DType::f32, 4);
        const kernels::NormOperands operands{x.begin(),
                                             y.begin(),
                                             dtype,
                                             dtype,
                                             size,
                                             size + 1,
                                             size + 2,
                                             weight.floats(),
                                             centered ? bias.floats() : nullptr,
                                             centered,
                                             1e-3f};
        target().rows.normalize(operands, 0, 1), target().rows.normalize(operands, 1, rows);
        for (std::int64_t r = 0; r < rows; ++r) {
          double mean = 0, squares = 0;
          for (std::int64_t i = 0; centered && i < size; ++i) mean += x[r * (size + 1) + i] / double(size);
          for (std::int64_t i = 0; i < size; ++i) squares += std::pow(x[r * (size + 1) + i] - mean, 2);
          const double factor = 1 / std::sqrt(squares / double(size) + 1e-3);
          for (std::int64_t i = 0; i < size; ++i) {
            const double scaled = (x[r * (size + 1) + i] - mean) * factor * weight[i], b = centered ? bias[i] : 0;
            const double tolerance =
                2e-6 * (10 * std::abs(weight[i]) + std::abs(b)) + unit(dtype) * std::abs(scaled + b);
            EXPECT_NEAR(y[r * (size + 2) + i], scaled + b, tolerance) << what(size, dtype) << " row " << r;
          }
        }
        EXPECT_TRUE(x.intact() && y.intact() && weight.intact() && bias.intact()) << what(size, dtype);
      }
    }
  }
}

// dy [rows,size] given as f32, x of every dtype; in double by the formula of the gradient, no row of the kernel's.
TEST_P(RowKernels, NormalizeGradient) {
  for (const std::int64_t size : sizes(target())) {
    for (const DType dtype : dtypes) {
      for (const bool centered : {true, false}) {
        constexpr std::int64_t rows = 3;
        Numbers x(rows * size, dtype, 1), dy(rows * size, DType::f32, 2), weight(size, DType::f32, 3);
        Numbers dx(rows * size, DType::f32, 4);
        const kernels::NormGradientOperands operands{
            x.begin(), dy.floats(), static_cast<float*>(dx.begin()), dtype, size, weight.floats(), centered, 1e-3f};
        target().rows.normalize_gradient(operands, 0, 1), target().rows.normalize_gradient(operands, 1, rows);
        for (std::int64_t r = 0; r < rows; ++r) {
          const auto n = static_cast<double>(size);
          double mean = 0, squares = 0, sum = 0, along = 0, most = 0;
          const auto at = [&](std::int64_t i) { return x[r * size + i] - mean; };
          const auto g = [&](std::int64_t i) { return dy[r * size + i] * weight[i]; };
          double total = 0;
          for (std::int64_t i = 0; centered && i < size; ++i) total += x[r * size + i] / n;
          mean = total;
          for (std::int64_t i = 0; i < size; ++i) squares += at(i) * at(i);
          const double divisor = std::sqrt(squares / n + 1e-3);
          for (std::int64_t i = 0; i < size; ++i) {
            sum += centered ? g(i) / n : 0, along += g(i) * at(i) / n;
            most = std::max(most, std::abs(g(i)));
          }
          for (std::int64_t i = 0; i < size; ++i) {
            const double expected = (g(i) - sum) / divisor - at(i) * along / std::pow(divisor, 3);
            EXPECT_NEAR(dx[r * size + i], expected, 1e-5 * most / divisor) << what(size, dtype) << " row " << r;
          }
        }
        EXPECT_TRUE(x.intact() && dy.intact() && dx.intact() && weight.intact()) << what(size, dtype);
      }
    }
  }
}

double plain(ActivationKind kind, double x) {
  const auto distribution = [](double z) { return std::erfc(-z / std::numbers::sqrt2) / 2; };
  switch (kind) {
    case ActivationKind::linear:
      return x;
    case ActivationKind::relu:
      return std::max(x, 0.0);
    case ActivationKind::relu6:
      return std::clamp(x, 0.0, 6.0);
    case ActivationKind::relu_squared:
      return x > 0 ? x * x : 0;
    case ActivationKind::leaky_relu:
      return x > 0 ? x : 0.01 * x;
    case ActivationKind::gelu:
      return x * distribution(x);
    case ActivationKind::gelu_10:
      return std::min(x * distribution(x), 10.0);
    case ActivationKind::gelu_tanh:
      return x / (1 + std::exp(-2 * std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case ActivationKind::gelu_quick:
      return x / (1 + std::exp(-1.702 * x));
    case ActivationKind::silu:
      return x / (1 + std::exp(-x));
    case ActivationKind::hardswish:
      return x * std::clamp(x + 3, 0.0, 6.0) / 6;
    case ActivationKind::mish:
      return x * std::tanh(std::log1p(std::exp(x)));
    case ActivationKind::sigmoid:
      return 1 / (1 + std::exp(-x));
    case ActivationKind::tanh:
      return std::tanh(x);
    case ActivationKind::laplace:
      return distribution((x - 0.707107) / 0.282095);
    case ActivationKind::sqrt_softplus:
      return std::sqrt(std::log1p(std::exp(x)));
  }
  return NAN;
}

TEST_P(RowKernels, Activate) {
  for (const std::int64_t size : sizes(target())) {
    for (const DType dtype : dtypes) {
      for (int n = 0; n <= int(ActivationKind::sqrt_softplus); ++n) {
        const auto kind = ActivationKind(n);
        for (const bool gated : {false, true}) {
          Numbers x(2 * size, dtype, 1), gate(2 * size, dtype, 2);
          const std::vector<double> before = x.all(2 * size);
          target().rows.activate({kind, x.begin(), gated ? gate.begin() : nullptr, dtype, size}, 0, 2);
          for (std::int64_t i = 0; i < 2 * size; ++i) {
            const double expected = plain(kind, before[std::size_t(i)]) * (gated ? gate[i] : 1);
            // f16 has no numbers of full precision below 2^-14.
            EXPECT_NEAR(x[i], expected,
                        (4e-6 + unit(dtype)) * std::abs(expected) + (dtype == DType::f16 ? 0x1p-24 : 1e-9))
                << what(size, dtype) << " of " << before[std::size_t(i)] << " kind " << int(kind);
          }
          EXPECT_TRUE(x.intact() && gate.intact()) << what(size, dtype);
        }
      }
    }
  }
}

// Beside a difference of the same function in double, over a step that is small beside its curvature.
TEST_P(RowKernels, ActivateGradient) {
  constexpr double step = 1e-4;
  for (const std::int64_t size : sizes(target())) {
    for (const DType dtype : dtypes) {
      for (int n = 0; n <= int(ActivationKind::sqrt_softplus); ++n) {
        const auto kind = ActivationKind(n);
        for (const bool gated : {false, true}) {
          Numbers x(2 * size, dtype, 1), gate(2 * size, dtype, 2), dy(2 * size, DType::f32, 3);
          Numbers dx(2 * size, DType::f32, 4), dgate(2 * size, DType::f32, 5);
          const std::vector<double> before = dgate.all(2 * size);
          target().rows.activate_gradient({kind, x.begin(), gated ? gate.begin() : nullptr, dtype, dy.floats(),
                                           static_cast<float*>(dx.begin()), static_cast<float*>(dgate.begin()), size},
                                          0, 2);
          for (std::int64_t i = 0; i < 2 * size; ++i) {
            const double slope = (plain(kind, x[i] + step) - plain(kind, x[i] - step)) / (2 * step);
            const double by = dy[i] * (gated ? gate[i] : 1);
            EXPECT_NEAR(dx[i], by * slope, 1e-5 * std::abs(by) * (1 + std::abs(slope)))
                << what(size, dtype) << " of " << x[i] << " kind " << n;
            const double expected = gated ? dy[i] * plain(kind, x[i]) : before[std::size_t(i)];
            EXPECT_NEAR(dgate[i], expected, 5e-6 * std::abs(expected) + 1e-8) << what(size, dtype) << " kind " << n;
          }
          EXPECT_TRUE(x.intact() && gate.intact() && dy.intact() && dx.intact() && dgate.intact());
        }
      }
    }
  }
}

// Where a derivative jumps it is PyTorch's; far out nothing overflows, and NaN stays.
TEST_P(RowKernels, ActivationGradientsAtTheirEdges) {
  const auto slope = [&](ActivationKind kind, float x) {
    float one = 1, dx = 0;
    target().rows.activate_gradient({kind, &x, nullptr, DType::f32, &one, &dx, nullptr, 1}, 0, 1);
    return dx;
  };
  EXPECT_EQ(slope(ActivationKind::relu, 0), 0);
  EXPECT_EQ(slope(ActivationKind::relu6, 0), 0);
  EXPECT_EQ(slope(ActivationKind::relu6, 6), 0);
  EXPECT_EQ(slope(ActivationKind::leaky_relu, 0), 0.01f);
  EXPECT_EQ(slope(ActivationKind::relu_squared, 0), 0);
  EXPECT_EQ(slope(ActivationKind::hardswish, -3), 0);
  EXPECT_EQ(slope(ActivationKind::hardswish, 3), 1);
  EXPECT_EQ(slope(ActivationKind::gelu_10, 11), 0);
  for (int n = 0; n <= int(ActivationKind::sqrt_softplus); ++n) {
    const auto kind = ActivationKind(n);
    for (const float x : {-1e4f, -90.0f, 90.0f, 1e4f}) {
      const double expected = (plain(kind, double(x) * 1.001) - plain(kind, double(x) * 0.999)) / (double(x) * 0.002);
      const bool known = std::isfinite(expected) && std::isfinite(plain(kind, double(x)));
      if (known) {
        EXPECT_NEAR(slope(kind, x), expected, 1e-4 * (1 + std::abs(expected))) << n << " at " << x;
      }
      EXPECT_TRUE(std::isfinite(slope(kind, x))) << n << " at " << x;
    }
  }
}

TEST_P(RowKernels, Rotate) {
  for (const std::int64_t half : sizes(target())) {
    for (const DType dtype : dtypes) {
      constexpr std::int64_t rows = 2, heads = 3;
      const std::int64_t head = 2 * half + 1, row = heads * head + 2, count = (rows - 1) * row + heads * head - 1;
      Numbers x(count, dtype, 1), cos(rows * half, DType::f32, 2), sin(rows * half, DType::f32, 3);
      const std::vector<double> before = x.all(count);
      target().rows.rotate({x.begin(), dtype, row, head, heads, half, cos.floats(), sin.floats()}, 0, rows);
      std::vector<double> expected = before;  // what is between the heads stays
      for (std::int64_t n = 0; n < rows * heads * half; ++n) {
        const std::int64_t r = n / (heads * half), i = n % half, at = r * row + n / half % heads * head + i;
        const double a = before[std::size_t(at)], b = before[std::size_t(at + half)];
        const double c = cos[r * half + i], s = sin[r * half + i];
        expected[std::size_t(at)] = a * c - b * s, expected[std::size_t(at + half)] = b * c + a * s;
      }
      for (std::int64_t n = 0; n < count; ++n) {
        const double magnitude = std::abs(expected[std::size_t(n)]);
        EXPECT_NEAR(x[n], expected[std::size_t(n)], 2e-5 + unit(dtype) * magnitude) << what(half, dtype) << " at " << n;
      }
      EXPECT_TRUE(x.intact() && cos.intact() && sin.intact()) << what(half, dtype);
    }
  }
}

TEST_P(RowKernels, Multiply) {
  for (const std::int64_t size : sizes(target())) {
    constexpr std::int64_t count = 3;
    Numbers row(size, DType::f32, 1), rows(count * size, DType::f32, 2), products(count, DType::f32, 3);
    target().rows.multiply(row.floats(), rows.floats(), size, count, static_cast<float*>(products.begin()));
    for (std::int64_t n = 0; n < count; ++n) {
      double expected = 0, magnitude = 0;
      for (std::int64_t i = 0; i < size; ++i)
        expected += row[i] * rows[n * size + i], magnitude += std::abs(row[i] * rows[n * size + i]);
      EXPECT_NEAR(products[n], expected, 4e-6 * magnitude) << size;
    }
    EXPECT_TRUE(row.intact() && rows.intact() && products.intact()) << size;
  }
}

// Of each row by itself: eight sums side by side, and then one after the other.
TEST_P(RowKernels, DotInDouble) {
  for (const std::int64_t size : {1, 7, 8, 9, 16, 33, 384}) {
    constexpr std::int64_t count = 3;
    Numbers row(size, DType::f32, 1), rows(count * size, DType::f32, 2);
    std::vector<double> wide(row.floats(), row.floats() + size), products(count), squares(count), alone(count);
    target().rows.dot(wide.data(), rows.floats(), size, count, products.data(), squares.data());
    target().rows.dot(wide.data(), rows.floats(), size, count, alone.data(), nullptr);
    EXPECT_EQ(alone, products);
    const auto dot = [&](const auto* a, const auto* b) {
      double sums[8] = {}, sum = 0;
      for (std::int64_t e = 0; e < size; ++e) sums[e < size / 8 * 8 ? e % 8 : 0] += double(a[e]) * double(b[e]);
      for (const double each : sums) sum += each;
      return sum;
    };
    for (std::int64_t n = 0; n < count; ++n) {
      const float* other = rows.floats() + n * size;
      EXPECT_EQ(products[std::size_t(n)], dot(wide.data(), other)) << size;
      EXPECT_EQ(squares[std::size_t(n)], dot(other, other)) << size;
    }
    EXPECT_TRUE(row.intact() && rows.intact()) << size;
  }
}

}  // namespace
}  // namespace attend
