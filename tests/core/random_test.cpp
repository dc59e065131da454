#include "attend/random.h"

#include <fstream>
#include <limits>
#include <sstream>
#include <vector>

#include "core/bit_cast.h"
#include "tests/expect.h"

namespace attend {
namespace {

using test::expect_error;
using test::expect_same;

// PyTorch takes log, log1p, sin and cos of doubles from the C library, and so do we: the last bits of such a value are
// the library's. On glibc with FMA they are those of the golden files; elsewhere a few units in the last place are
// allowed: a libm is within 1 ulp in each function, and the square root and the products add less than 2 more.
bool has_golden_libm() {
#if defined(__GLIBC__) && defined(__x86_64__)
  return __builtin_cpu_supports("fma") != 0;
#else
  return false;
#endif
}
constexpr double libm_tolerance = 4 * std::numeric_limits<double>::epsilon();

// One line of a golden file; tests/golden/make_random_golden.py says what the columns are.
struct Draw {
  std::string call;
  DType dtype = DType::f32;
  Dims shape;
  double a = 0;
  double b = 0;
  std::uint64_t checksum = 0;
  std::vector<std::uint64_t> bits;

  bool uses_libm() const { return dtype == DType::f64 && (call == "randn" || call == "normal"); }
};

Dims parse_shape(const std::string& text) {
  Dims shape;
  std::istringstream in(text);
  for (std::string size; std::getline(in, size, 'x');) shape.push_back(std::stoll(size));
  return shape;
}

Draw parse_draw(const std::string& line) {
  std::istringstream in(line);
  Draw draw;
  std::string dtype, shape;
  in >> draw.call >> dtype >> shape >> draw.a >> draw.b >> std::hex >> draw.checksum;
  EXPECT_TRUE(in && (dtype == "f32" || dtype == "f64"));
  draw.dtype = dtype == "f64" ? DType::f64 : DType::f32;
  draw.shape = parse_shape(shape);
  for (std::uint64_t word; in >> word;) draw.bits.push_back(word);
  return draw;
}

Tensor repeat(Generator& generator, const Draw& draw) {
  if (draw.call == "rand") return generator.rand(draw.shape, draw.dtype);
  if (draw.call == "randn") return generator.randn(draw.shape, draw.dtype);
  if (draw.call == "uniform") return generator.uniform(draw.shape, draw.a, draw.b, draw.dtype);
  if (draw.call == "normal") return generator.normal(draw.shape, draw.a, draw.b, draw.dtype);
  if (draw.call == "kaiming_uniform") return generator.kaiming_uniform(draw.shape);
  if (draw.call == "xavier_uniform") return generator.xavier_uniform(draw.shape);
  if (draw.call == "xavier_normal") return generator.xavier_normal(draw.shape);
  ADD_FAILURE() << "unknown call";
  return Tensor();
}

std::uint64_t bits_of(const Tensor& tensor, std::size_t i) {
  if (tensor.dtype() == DType::f64) return bit_cast<std::uint64_t>(tensor.data<double>()[i]);
  return bit_cast<std::uint32_t>(tensor.data<float>()[i]);
}

// FNV-1a over the bytes, least significant first.
std::uint64_t checksum_of(const Tensor& tensor) {
  std::uint64_t sum = 0xcbf29ce484222325ULL;
  for (std::size_t i = 0; i < static_cast<std::size_t>(tensor.count()); ++i) {
    const std::uint64_t bits = bits_of(tensor, i);
    for (int byte = 0; byte < size_of(tensor.dtype()); ++byte)
      sum = (sum ^ ((bits >> (8 * byte)) & 0xff)) * 0x100000001b3ULL;
  }
  return sum;
}

void expect_near_bits(const Tensor& actual, const Draw& draw) {
  const double scale = std::abs(draw.a) + (draw.call == "normal" ? draw.b : 1);
  for (std::size_t i = 0; i < draw.bits.size(); ++i) {
    const auto expected = bit_cast<double>(draw.bits[i]);
    const double size = std::max(scale, std::abs(expected));
    ASSERT_NEAR(actual.data<double>()[i], expected, size * libm_tolerance) << "value " << i;
  }
}

void expect_draw(const Tensor& actual, const Draw& draw) {
  ASSERT_EQ(actual.shape(), draw.shape);
  ASSERT_EQ(name_of(actual.dtype()), name_of(draw.dtype));
  ASSERT_TRUE(draw.bits.empty() || draw.bits.size() == static_cast<std::size_t>(actual.count()));
  if (draw.uses_libm() && !has_golden_libm()) return expect_near_bits(actual, draw);
  for (std::size_t i = 0; i < draw.bits.size(); ++i)
    ASSERT_EQ(bits_of(actual, i), draw.bits[i])
        << std::hex << "value " << std::dec << i << " is " << std::hexfloat
        << (draw.dtype == DType::f64 ? actual.data<double>()[i] : double{actual.data<float>()[i]});
  ASSERT_EQ(checksum_of(actual), draw.checksum);
}

// Repeats a whole golden file; returns how many draws it held.
int repeat_file(const std::string& name) {
  std::ifstream file(test::data("golden/" + name));
  EXPECT_TRUE(file) << name;
  Generator generator;
  int draws = 0;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (line.starts_with('#')) continue;
    SCOPED_TRACE(name + ":" + std::to_string(number) + ": " + line.substr(0, 60));
    if (line.starts_with("seed ")) {
      generator.seed(std::stoull(line.substr(5)));
      continue;
    }
    const Draw draw = parse_draw(line);
    expect_draw(repeat(generator, draw), draw);
    ++draws;
    if (testing::Test::HasFailure()) break;
  }
  return draws;
}

TEST(Random, EverySizeAsPyTorch) {
  EXPECT_EQ(repeat_file("random_sizes.txt"), 4 * 2 * 42 * 2);
}

TEST(Random, EverySequenceAsPyTorch) {
  EXPECT_EQ(repeat_file("random_sequences.txt"), 86);
}

TEST(Random, DefaultSeedIsPyTorchs) {
  Generator unseeded;
  Generator seeded(67280421310721);
  expect_same(unseeded.rand({40}), seeded.rand({40}));
}

TEST(Random, OnlyTheLowHalfOfASeedCounts) {
  Generator low(5);
  Generator high((std::uint64_t{1} << 63) + 5);
  Generator other(6);
  const Tensor expected = low.rand({40});
  expect_same(high.rand({40}), expected);
  EXPECT_NE(other.rand({40}).item({0}), expected.item({0}));
}

TEST(Random, CopyContinuesOnItsOwn) {
  Generator first(3);
  first.randn({3});  // keeps a normal value
  Generator second = first;
  const Tensor expected = first.randn({5});
  first.rand({700});
  expect_same(second.randn({5}), expected);
}

TEST(Random, SeedForgetsTheKeptNormal) {
  Generator generator(3);
  const Tensor expected = generator.randn({1});
  generator.seed(3);
  expect_same(generator.randn({1}), expected);
}

TEST(Random, ShapeDoesNotChangeTheValues) {
  Generator flat(1);
  Generator folded(1);
  expect_same(folded.randn({2, 3, 4}), flat.randn({24}).view().reshape({2, 3, 4}));
  expect_same(folded.rand(Dims{}), flat.rand({1}).view().reshape({}));
}

TEST(Random, NoElementsDrawNothing) {
  Generator drawing(1);
  Generator fresh(1);
  EXPECT_EQ(drawing.rand({0}).shape(), Dims({0}));
  EXPECT_EQ(drawing.normal({4, 0}, 0, 1, DType::f64).shape(), Dims({4, 0}));
  EXPECT_EQ(drawing.kaiming_uniform({3, 0}).shape(), Dims({3, 0}));
  EXPECT_EQ(drawing.xavier_uniform({0, 0}).shape(), Dims({0, 0}));
  EXPECT_EQ(drawing.xavier_normal({0, 3}).shape(), Dims({0, 3}));
  expect_same(drawing.rand({3}), fresh.rand({3}));
}

TEST(Random, ValuesStayInTheirRange) {
  Generator generator(11);
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensor values = generator.rand({10000}, dtype).view().to(DType::f64);
    for (int i = 0; i < 10000; ++i) {
      ASSERT_GE(values.data<double>()[i], 0);
      ASSERT_LT(values.data<double>()[i], 1);
    }
  }
}

TEST(Random, NormalHasItsMeanAndDeviation) {
  Generator generator(11);
  constexpr int count = 100000;
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensor values = generator.normal({count}, 2, 3, dtype).view().to(DType::f64);
    double sum = 0;
    double squares = 0;
    for (int i = 0; i < count; ++i) {
      const double difference = values.data<double>()[i] - 2;
      sum += difference;
      squares += difference * difference;
    }
    // Five standard errors: 3 / sqrt(n) for the mean, 9 sqrt(2 / n) for the variance.
    EXPECT_NEAR(sum / count, 0, 5 * 3 / std::sqrt(count));
    EXPECT_NEAR(squares / count, 9, 5 * 9 * std::sqrt(2.0 / count));
  }
}

constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

TEST(Random, OtherDtypesAreErrors) {
  Generator g;
  for (const DType dtype : {DType::bf16, DType::f16, DType::i64, DType::i8, DType::u8, DType::boolean}) {
    const std::string got(name_of(dtype));
    expect_error(
        ErrorCode::bad_dtype, [&] { g.rand({2}, dtype); }, "Generator::rand:", "dtype", got);
    expect_error(
        ErrorCode::bad_dtype, [&] { g.randn({2}, dtype); }, "Generator::randn:", "dtype", got);
    expect_error(
        ErrorCode::bad_dtype, [&] { g.uniform({2}, 0, 1, dtype); }, "Generator::uniform:", "dtype", got);
    expect_error(
        ErrorCode::bad_dtype, [&] { g.normal({2}, 0, 1, dtype); }, "Generator::normal:", "dtype", got);
  }
}

TEST(Random, BadBoundsAreErrors) {
  Generator g;
  const auto uniform = [&](double low, double high, DType dtype) {
    expect_error(
        ErrorCode::bad_value, [&] { g.uniform({2}, low, high, dtype); }, "Generator::uniform:", "low");
  };
  for (const DType dtype : {DType::f32, DType::f64}) {
    uniform(1, 0.5, dtype);
    uniform(nan, 1, dtype);
    uniform(0, nan, dtype);
    uniform(-inf, 0, dtype);
    uniform(0, inf, dtype);
  }
  uniform(0, 1e39, DType::f32);
  uniform(-3e38, 3e38, DType::f32);
  uniform(-1e308, 1e308, DType::f64);
}

TEST(Random, BadMeanOrDeviationIsAnError) {
  Generator g;
  const auto normal = [&](double mean, double std, DType dtype, const char* named) {
    expect_error(
        ErrorCode::bad_value, [&] { g.normal({2}, mean, std, dtype); }, "Generator::normal:", named);
  };
  for (const DType dtype : {DType::f32, DType::f64}) {
    for (const double std : {-1.0, -1e-300, nan, inf, -inf}) normal(0, std, dtype, "std");
    for (const double mean : {nan, inf, -inf}) normal(mean, 1, dtype, "mean");
  }
  normal(0, 1e39, DType::f32, "std");
  normal(1e39, 1, DType::f32, "mean");
}

TEST(Random, BadShapesAreErrors) {
  Generator g;
  for (const Dims& shape : {Dims{}, Dims{3}}) {
    expect_error(
        ErrorCode::bad_shape, [&] { g.kaiming_uniform(shape); }, "Generator::kaiming_uniform:", shape.str());
    expect_error(
        ErrorCode::bad_shape, [&] { g.xavier_uniform(shape); }, "Generator::xavier_uniform:", shape.str());
    expect_error(
        ErrorCode::bad_shape, [&] { g.xavier_normal(shape); }, "Generator::xavier_normal:", shape.str());
  }
  expect_error(
      ErrorCode::bad_shape,
      [&] {
        g.rand({2, -1});
      },
      "[2,-1]");
  expect_error(
      ErrorCode::bad_shape,
      [&] {
        g.xavier_normal({2, -1});
      },
      "[2,-1]");
}

TEST(Random, AnErrorDrawsNothing) {
  Generator failed(1);
  Generator fresh(1);
  expect_error(ErrorCode::bad_value, [&] { failed.uniform({2}, 1, 0); });
  expect_error(ErrorCode::bad_value, [&] { failed.normal({2}, 0, -1); });
  expect_error(ErrorCode::bad_shape, [&] { failed.randn({2, -1}); });
  expect_same(failed.randn({3}), fresh.randn({3}));
}

}  // namespace
}  // namespace attend
