// Every operation of every target's vector layer by itself, against what docs/dispatch.md says of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "core/bit_cast.h"
#include "kernels/targets.h"
#include "tests/kernels/simd/table.h"

namespace attend {
namespace {

using test::SimdTable;
using Floats = std::vector<float>;
using Halves = std::vector<std::uint16_t>;

constexpr float infinity = std::numeric_limits<float>::infinity();

std::uint32_t bits_of(float x) {
  return bit_cast<std::uint32_t>(x);
}
float float_of(std::uint32_t bits) {
  return bit_cast<float>(bits);
}

// So many that every target's lanes divide them.
template <class T>
void pad(std::vector<T>& x) {
  while (x.size() % 16 != 0) x.push_back(x.front());
}

// Numbers at which arithmetic changes its ways, of both signs, and some between.
const Floats& special() {
  static const Floats all = [] {
    Floats x = {0, 1, 1.5f, 2, 3, 0.1f, 0.5f, FLT_MIN, FLT_MAX, FLT_TRUE_MIN, infinity, 126, 127, 65504, 65520, 1e10f};
    x.insert(x.end(),
             {1 + FLT_EPSILON, 1 - FLT_EPSILON / 2, std::nextafter(FLT_MIN, 0.0f), 0x1p23f, 0x1p31f, 0x1p-70f});
    x.insert(x.end(), {float_of(0x7FC00000), float_of(0x7FC12345), 1e-3f, 12345.678f});
    const std::size_t half = x.size();
    for (std::size_t i = 0; i < half; ++i) x.push_back(-x[i]);
    return x;
  }();
  return all;
}

// Numbers of all magnitudes, by their bits; not NaN.
Floats any_bits(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Floats x;
  while (x.size() < count) {
    const float next = float_of(static_cast<std::uint32_t>(random()));
    if (!std::isnan(next)) x.push_back(next);
  }
  return x;
}

Floats uniform(std::size_t count, float low, float high, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> draw(low, high);
  Floats x(count);
  for (float& each : x) each = draw(random);
  return x;
}

// Every pair of special numbers, and pairs of any.
struct Pairs {
  Floats a, b;
  Pairs() : a(any_bits(4096, 1)), b(any_bits(4096, 2)) {
    for (const float x : special())
      for (const float y : special()) a.push_back(x), b.push_back(y);
    pad(a), pad(b);
  }
};

std::string shown(float x) {
  return std::to_string(x) + " (" + std::to_string(bits_of(x)) + ")";
}

// The same bits; of NaN only that it is one.
void expect_same(float got, float wanted, const std::string& of) {
  if (std::isnan(got) && std::isnan(wanted)) return;
  EXPECT_EQ(bits_of(got), bits_of(wanted)) << of << ": " << shown(got) << ", not " << shown(wanted);
}

const SimdTable* table_of(const kernels::Target& target) {
  for (const SimdTable* each : test::simd_tables)
    if (std::string(each->target) == target.name) return each;
  return nullptr;
}

class Simd : public testing::TestWithParam<const kernels::Target*> {
 protected:
  void SetUp() override {
    if (!GetParam()->supported()) GTEST_SKIP() << "this processor does not run " << GetParam()->name;
    table_ = table_of(*GetParam());
    ASSERT_TRUE(table_) << "tests/kernels/simd/ has no file for this target";
  }

  void check(SimdTable::Unary operation, Floats x, float (*wanted)(float)) {
    pad(x);
    Floats y(x.size());
    operation(x.data(), y.data(), std::ssize(x));
    for (std::size_t i = 0; i < x.size(); ++i) expect_same(y[i], wanted(x[i]), shown(x[i]));
  }
  void check(SimdTable::Binary operation, float (*wanted)(float, float)) {
    const Pairs pairs;
    Floats y(pairs.a.size());
    operation(pairs.a.data(), pairs.b.data(), y.data(), std::ssize(y));
    for (std::size_t i = 0; i < y.size(); ++i) {
      expect_same(y[i], wanted(pairs.a[i], pairs.b[i]), shown(pairs.a[i]) + ", " + shown(pairs.b[i]));
    }
  }

  const SimdTable* table_ = nullptr;
};

INSTANTIATE_TEST_SUITE_P(Every, Simd, testing::ValuesIn(kernels::targets().begin(), kernels::targets().end()),
                         [](const auto& each) { return std::string(each.param->name); });

TEST_P(Simd, SizesAreThoseOfTheTarget) {
  const SimdTable& simd = *table_;
  EXPECT_EQ(simd.lanes, GetParam()->lanes);
  EXPECT_EQ(simd.height, GetParam()->tile_height);
  EXPECT_EQ(simd.vectors * simd.lanes, GetParam()->panel_rows);
  EXPECT_EQ(16 % simd.lanes, 0);
  EXPECT_EQ(simd.lanes % 4, 0);
  EXPECT_EQ(simd.dot_bf16 != nullptr, GetParam()->bf16_dot);
}

TEST_P(Simd, ZeroAndSet1) {
  Floats y(16, -1);
  table_->zero(y.data(), 16);
  for (const float each : y) EXPECT_EQ(bits_of(each), 0u);
  for (const float x : special()) {
    table_->set1(x, y.data(), 16);
    for (const float each : y) EXPECT_EQ(bits_of(each), bits_of(x));
  }
}

TEST_P(Simd, LoadAndStoreKeepBitsAtAnyAlignment) {
  Floats x = any_bits(33, 3);
  x[5] = float_of(0x7FC12345), x[9] = float_of(0x7F812345);  // a quiet NaN and a signalling one
  for (std::size_t byte = 0; byte < 8; ++byte) {
    std::vector<std::byte> from(4 * x.size() + 8), to(4 * x.size() + 8);
    std::memcpy(from.data() + byte, x.data(), 4 * x.size());
    table_->copy(reinterpret_cast<const float*>(from.data() + byte), reinterpret_cast<float*>(to.data() + 7 - byte),
                 32);
    EXPECT_EQ(std::memcmp(from.data() + byte, to.data() + 7 - byte, 4 * 32), 0) << byte;
    EXPECT_EQ(to[7 - byte + 4 * 32], std::byte{}) << "nothing beyond";
  }
}

TEST_P(Simd, ArithmeticRoundsOnce) {
  check(table_->add, [](float a, float b) { return a + b; });
  check(table_->sub, [](float a, float b) { return a - b; });
  check(table_->mul, [](float a, float b) { return a * b; });
  check(table_->div, [](float a, float b) { return a / b; });
}

TEST_P(Simd, FmaRoundsOnceButInBaseline) {
  const Pairs pairs;
  Floats c = pairs.b, y(c.size());
  std::rotate(c.begin(), c.begin() + 5, c.end());
  // And products that cancel but for their own rounding.
  for (std::size_t i = 0; i < 4000; ++i) c[i] = -(pairs.a[i] * pairs.b[i]);
  table_->fma(pairs.a.data(), pairs.b.data(), c.data(), y.data(), std::ssize(y));
  const bool twice = GetParam()->name == std::string("baseline");
  for (std::size_t i = 0; i < y.size(); ++i) {
    const float a = pairs.a[i], b = pairs.b[i];
    expect_same(y[i], twice ? a * b + c[i] : std::fma(a, b, c[i]), shown(a) + " * " + shown(b) + " + " + shown(c[i]));
  }
}

TEST_P(Simd, MaxAndMinTakeTheSecondWhereEitherIsNaN) {
  check(table_->max, [](float a, float b) { return a > b ? a : b; });
  check(table_->min, [](float a, float b) { return a < b ? a : b; });
}

TEST_P(Simd, SignsAreBits) {
  const Pairs pairs;
  Floats y(pairs.a.size());
  table_->abs(pairs.a.data(), y.data(), std::ssize(y));
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(bits_of(y[i]), bits_of(pairs.a[i]) & 0x7FFFFFFF);
  table_->copy_sign(pairs.a.data(), pairs.b.data(), y.data(), std::ssize(y));
  for (std::size_t i = 0; i < y.size(); ++i) {
    EXPECT_EQ(bits_of(y[i]), (bits_of(pairs.a[i]) & 0x7FFFFFFF) | (bits_of(pairs.b[i]) & 0x80000000));
  }
}

TEST_P(Simd, ComparisonsAreFalseForNaN) {
  check(table_->greater, [](float a, float b) { return a > b ? 1.0f : 0.0f; });
  check(table_->equal, [](float a, float b) { return a == b ? 1.0f : 0.0f; });
}

TEST_P(Simd, TestLooksAtOneBitOfEachLane) {
  std::mt19937 random(4);
  std::vector<std::uint32_t> x(48);
  for (std::uint32_t& each : x) each = static_cast<std::uint32_t>(random());
  x[0] = 0, x[1] = ~0u;
  for (int i = 0; i < 32; ++i) {
    Floats y(x.size());
    table_->test(x.data(), 1u << i, y.data(), std::ssize(x));
    for (std::size_t j = 0; j < x.size(); ++j)
      EXPECT_EQ(y[j], static_cast<float>(x[j] >> i & 1)) << i << " of " << x[j];
  }
}

TEST_P(Simd, LanesOfBits) {
  const auto lanes = static_cast<unsigned>(table_->lanes);
  for (std::uint32_t bits = 0; bits < 1u << lanes; bits += 1 + bits / 300) {
    Floats y(lanes);
    table_->lanes_of(bits, y.data());
    for (unsigned i = 0; i < lanes; ++i) ASSERT_EQ(y[i], static_cast<float>(bits >> i & 1)) << bits;
    ASSERT_EQ(table_->bits_of_lanes(bits), bits);
  }
}

TEST_P(Simd, ShiftUpTakesTheLastLaneOfTheVectorBefore) {
  const auto lanes = static_cast<std::size_t>(table_->lanes);
  const Floats both = any_bits(2 * lanes, 5);
  Floats y(lanes);
  table_->shift_up(both.data() + lanes, both.data(), y.data());
  for (std::size_t i = 0; i < lanes; ++i) EXPECT_EQ(bits_of(y[i]), bits_of(both[lanes + i - 1])) << i;
}

TEST_P(Simd, AnyLane) {
  const auto lanes = static_cast<std::size_t>(table_->lanes);
  const Floats zeros(lanes, 0);
  for (std::size_t i = 0; i <= lanes; ++i) {
    Floats one(lanes, -1);
    if (i < lanes) one[i] = 1;
    bool any = false;
    table_->any_greater(one.data(), zeros.data(), &any, table_->lanes);
    EXPECT_EQ(any, i < lanes);
  }
}

TEST_P(Simd, SelectKeepsBits) {
  const Pairs pairs;
  Floats x = pairs.b, z = pairs.a, y(x.size());
  std::rotate(x.begin(), x.begin() + 3, x.end());
  std::rotate(z.begin(), z.begin() + 7, z.end());
  table_->select_greater(pairs.a.data(), pairs.b.data(), x.data(), z.data(), y.data(), std::ssize(y));
  for (std::size_t i = 0; i < y.size(); ++i) {
    EXPECT_EQ(bits_of(y[i]), bits_of(pairs.a[i] > pairs.b[i] ? x[i] : z[i]));
  }
}

TEST_P(Simd, SumEachAddsALaneOfEachVector) {
  const auto lanes = static_cast<std::size_t>(table_->lanes);
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const Floats x = uniform(lanes * lanes, -3, 3, seed);
    Floats y(lanes);
    table_->sum_each(x.data(), y.data());
    for (std::size_t i = 0; i < lanes; ++i) {
      double sum = 0, magnitude = 0;
      for (std::size_t j = 0; j < lanes; ++j) {
        sum += static_cast<double>(x[i * lanes + j]), magnitude += std::abs(static_cast<double>(x[i * lanes + j]));
      }
      // lanes - 1 additions, each rounded by half an ulp of no more than the magnitude.
      EXPECT_NEAR(static_cast<double>(y[i]), sum, static_cast<double>(lanes - 1) * 0x1p-24 * magnitude);
    }
  }
  // Each lane by itself, and NaN in its own sum alone.
  Floats ones(lanes * lanes), y(lanes);
  for (std::size_t i = 0; i < ones.size(); ++i) ones[i] = static_cast<float>(i);
  ones[lanes + 1] = float_of(0x7FC00000);
  table_->sum_each(ones.data(), y.data());
  for (std::size_t i = 0; i < lanes; ++i) {
    // NOLINTNEXTLINE(bugprone-integer-division): of two neighbours one is even
    const auto sum = static_cast<float>(lanes * lanes * i + lanes * (lanes - 1) / 2);
    expect_same(y[i], i == 1 ? float_of(0x7FC00000) : sum, std::to_string(i));
  }
}

TEST_P(Simd, Transpose) {
  const auto lanes = static_cast<std::size_t>(table_->lanes);
  const Floats x = any_bits(lanes * lanes, 12);
  Floats y = x;
  table_->transpose(y.data());
  for (std::size_t i = 0; i < lanes; ++i) {
    for (std::size_t j = 0; j < lanes; ++j) EXPECT_EQ(bits_of(y[j * lanes + i]), bits_of(x[i * lanes + j]));
  }
}

TEST_P(Simd, TransposeQuarters) {
  const auto lanes = static_cast<std::size_t>(table_->lanes), quarter = lanes / 4;
  const Floats x = any_bits(4 * lanes, 13);
  Floats y = x;
  table_->transpose_quarters(y.data());
  for (std::size_t i = 0; i < 4; ++i) {
    for (std::size_t j = 0; j < lanes; ++j) {
      EXPECT_EQ(bits_of(y[j / quarter * lanes + i * quarter + j % quarter]), bits_of(x[i * lanes + j]));
    }
  }
}

// The memory ends with the last one that is asked for, so that the address sanitizer sees who reads on.
TEST_P(Simd, LoadFirst) {
  const auto lanes = static_cast<std::size_t>(table_->lanes);
  for (std::size_t count = 1; count < lanes; ++count) {
    const Floats x = any_bits(count, 14 + count);
    Floats y(lanes, 1);
    table_->load_first(x.data(), static_cast<long>(count), y.data());
    for (std::size_t i = 0; i < lanes; ++i) EXPECT_EQ(bits_of(y[i]), i < count ? bits_of(x[i]) : 0);
  }
}

// What scores look like: of all magnitudes, whole, and just beside whole.
Floats exponents() {
  Floats x = uniform(20000, -127, 127, 5);
  for (const float scale : {1e-40f, 1e-10f, 1e-3f, 1.0f}) {
    for (const float each : uniform(500, -2, 2, 6)) x.push_back(each * scale);
  }
  for (int i = -126; i <= 126; ++i) {
    const auto whole = static_cast<float>(i);
    x.insert(x.end(), {whole, std::nextafter(whole, -1000.0f), std::nextafter(whole, 1000.0f)});
  }
  x.insert(x.end(), {0.0f, -0.0f, FLT_TRUE_MIN, -FLT_TRUE_MIN, FLT_MIN, -FLT_MIN});
  pad(x);
  return x;
}

TEST_P(Simd, FractionIsExactFromZeroOn) {
  Floats x = exponents();
  x.insert(x.end(), {1e6f + 0.5f, -1e6f - 0.5f, 0x1p22f + 0.5f, 0x1p23f, -0x1p23f, 0x1p24f, 3e9f, -3e9f, 1e30f, -1e30f,
                     FLT_MAX, -FLT_MAX});
  pad(x);
  Floats y(x.size());
  table_->fraction(x.data(), y.data(), std::ssize(x));
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double wide = static_cast<double>(x[i]), exact = wide - std::floor(wide), got = static_cast<double>(y[i]);
    if (x[i] >= 0) {
      EXPECT_EQ(got, exact) << shown(x[i]);
    } else {
      EXPECT_NEAR(got, exact, 0x1p-24) << shown(x[i]);
      EXPECT_TRUE(got >= 0 && got <= 1) << shown(x[i]) << ": " << got;
    }
  }
  check(table_->fraction, Floats(16, float_of(0x7FC00000)), [](float each) { return each; });
}

TEST_P(Simd, ScaleByFloorIsExactAndZeroFarBelow) {
  Floats x = exponents();
  x.insert(x.end(), {-infinity, -1e30f, -FLT_MAX, -300.5f, -126, -126.5f, -127, -149, -150, -1000, 126.999f});
  pad(x);
  const bool subnormals = std::string(GetParam()->name).starts_with("avx512");
  for (const Floats& y : {Floats(x.size(), 1), Floats(x.size(), 2), uniform(x.size(), 1, 2, 7)}) {
    Floats scaled(x.size());
    table_->scale_by_floor(y.data(), x.data(), scaled.data(), std::ssize(x));
    for (std::size_t i = 0; i < x.size(); ++i) {
      const int power = static_cast<int>(std::max(-400.0f, std::floor(x[i])));
      const double exact = std::ldexp(static_cast<double>(y[i]), power), got = static_cast<double>(scaled[i]);
      if (x[i] >= -126) {
        EXPECT_EQ(got, exact) << shown(x[i]);
      } else if (got != 0) {
        EXPECT_TRUE(subnormals && std::abs(got - exact) <= 0x1p-149) << shown(x[i]) << ": " << got;
      }
    }
  }
  Floats nan(16, float_of(0x7FC00000)), scaled(16);
  table_->scale_by_floor(nan.data(), nan.data(), scaled.data(), 16);
  for (const float each : scaled) EXPECT_TRUE(std::isnan(each));
}

// ---- 16 bits ----

// A 16-bit floating type: what its bits mean, by its definition.
struct Format {
  int fraction;  // bits of it
  int least;     // the exponent of the smallest normal number
  double limit;  // from here on everything rounds to infinity

  double value(std::uint16_t bits) const {
    const int exponent = (bits & 0x7FFF) >> fraction, below = bits & ((1 << fraction) - 1);
    const double sign = bits & 0x8000 ? -1 : 1;
    if (exponent == (0x7FFF >> fraction)) return below ? std::nan("") : sign * HUGE_VAL;
    if (exponent == 0) return sign * std::ldexp(below, least - fraction);
    return sign * std::ldexp((1 << fraction) + below, least - fraction + exponent - 1);
  }
  // To nearest, ties to even.
  double rounded(float x) const {
    const auto wide = static_cast<double>(x);
    if (std::abs(wide) >= limit) return std::copysign(HUGE_VAL, wide);
    if (wide == 0) return wide;
    const double unit = std::ldexp(1, std::max(std::ilogb(wide), least) - fraction);
    return std::nearbyint(wide / unit) * unit;
  }
};
constexpr Format f16{10, -14, 65520};
constexpr Format bf16{7, -126, 0x1.FFp127};

// All numbers of the type, the middles between neighbours, and what lies just beside those.
Floats around(const Format& format) {
  Floats x;
  for (int i = 0; i < 0x10000; ++i) {
    const double a = format.value(static_cast<std::uint16_t>(i)), b = format.value(static_cast<std::uint16_t>(i ^ 1));
    if (!std::isfinite(a) || !std::isfinite(b)) continue;
    const double next = format.value(static_cast<std::uint16_t>(i + 1));
    const auto middle = static_cast<float>(std::isfinite(next) && (i + 1) % 0x8000 ? (a + next) / 2 : a);
    x.insert(x.end(),
             {static_cast<float>(a), middle, std::nextafter(middle, infinity), std::nextafter(middle, -infinity)});
  }
  const auto limit = static_cast<float>(format.limit);
  x.insert(x.end(), {limit, -limit, std::nextafter(limit, 0.0f), FLT_MAX, -FLT_MAX, infinity, -infinity});
  const Floats more = any_bits(20000, 8);
  x.insert(x.end(), more.begin(), more.end());
  pad(x);
  return x;
}

void check_loads(const Format& format, SimdTable::Widen load) {
  Halves x(0x10000);
  std::iota(x.begin(), x.end(), std::uint16_t{0});
  Floats y(x.size());
  load(x.data(), y.data(), std::ssize(x));
  for (std::size_t i = 0; i < x.size(); ++i) {
    expect_same(y[i], static_cast<float>(format.value(x[i])), "bits " + std::to_string(i));
  }
}

void check_stores(const Format& format, SimdTable::Narrow store, bool subnormals = true) {
  const Floats x = around(format);
  Halves y(x.size());
  store(x.data(), y.data(), std::ssize(x));
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double got = format.value(y[i]);
    if (!subnormals && std::abs(x[i]) < FLT_MIN) {
      EXPECT_EQ(got, 0) << shown(x[i]);
      continue;
    }
    EXPECT_EQ(got, format.rounded(x[i])) << shown(x[i]);
    EXPECT_EQ(std::signbit(got), std::signbit(x[i])) << shown(x[i]);
  }
}

void check_stored_nans(const Format& format, SimdTable::Narrow store) {
  Floats x;
  for (const std::uint32_t fraction : {1u, 0x1234u, 0x1FFFu, 0x2000u, 0x10000u, 0x3FFFFFu, 0x400000u, 0x7FFFFFu}) {
    x.push_back(float_of(0x7F800000u | fraction)), x.push_back(float_of(0xFF800000u | fraction));
  }
  Halves y(x.size());
  store(x.data(), y.data(), std::ssize(x));
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_TRUE(std::isnan(format.value(y[i]))) << shown(x[i]);
    EXPECT_TRUE(y[i] & 1 << (format.fraction - 1)) << shown(x[i]) << " is quiet";
  }
}

TEST_P(Simd, LoadsOf16BitsAreExact) {
  check_loads(bf16, table_->load_bf16);
  check_loads(f16, table_->load_f16);
}

TEST_P(Simd, StoresOf16BitsRoundToNearestEven) {
  check_stores(bf16, table_->store_bf16);
  check_stores(f16, table_->store_f16);
  check_stored_nans(bf16, table_->store_bf16);
  check_stored_nans(f16, table_->store_f16);
}

TEST_P(Simd, SixteenBitsAtAnyAlignmentAndNothingBeyond) {
  for (const std::size_t byte : {0U, 1U, 2U, 3U}) {
    Floats x = uniform(16, -4, 4, 9), y(16);
    for (const bool half : {false, true}) {
      std::vector<std::byte> memory(80, std::byte{0x5A});
      auto* at = reinterpret_cast<std::uint16_t*>(memory.data() + 8 + byte);
      (half ? table_->store_f16 : table_->store_bf16)(x.data(), at, table_->lanes);
      (half ? table_->load_f16 : table_->load_bf16)(at, y.data(), table_->lanes);
      for (int i = 0; i < table_->lanes; ++i) {
        const auto each = static_cast<std::size_t>(i);
        EXPECT_EQ(static_cast<double>(y[each]), (half ? f16 : bf16).rounded(x[each]));
      }
      const auto end = memory.begin() + static_cast<std::ptrdiff_t>(8 + byte) + 2 * table_->lanes;
      const auto untouched = [](std::byte each) { return each == std::byte{0x5A}; };
      EXPECT_TRUE(std::all_of(memory.begin(), memory.begin() + static_cast<std::ptrdiff_t>(8 + byte), untouched));
      EXPECT_TRUE(std::all_of(end, memory.end(), untouched));
    }
  }
}

TEST_P(Simd, BitsOfBools) {
  std::mt19937_64 random(10);
  constexpr std::uint8_t truths[] = {1, 2, 0x7F, 0x80, 0xFF};
  for (std::uint64_t bits :
       {std::uint64_t{0}, ~std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 63, random(), random(), random()}) {
    std::vector<std::uint8_t> bytes(65);
    for (unsigned i = 0; i < 64; ++i) bytes[i + 1] = bits >> i & 1 ? truths[i % 5] : 0;
    EXPECT_EQ(table_->bits_of_bools(bytes.data() + 1), bits);
  }
}

TEST_P(Simd, Transpose4) {
  const Floats x = any_bits(16, 11);
  for (const long stride : {4, 5, 17}) {
    Floats y(static_cast<std::size_t>(3 * stride + 5), -7);
    table_->transpose4(&x[0], &x[4], &x[8], &x[12], y.data(), stride);
    for (std::size_t r = 0; r < 4; ++r) {
      for (std::size_t c = 0; c < 4; ++c) {
        EXPECT_EQ(bits_of(y[c * static_cast<std::size_t>(stride) + r]), bits_of(x[4 * r + c]));
      }
    }
    EXPECT_EQ(y.back(), -7);
  }
}

// ---- Functions ----

double worst_relative_error(SimdTable::Unary operation, const Floats& x, double (*exact)(double)) {
  Floats y(x.size());
  operation(x.data(), y.data(), std::ssize(x));
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double wanted = exact(static_cast<double>(x[i]));
    const double error = std::abs(static_cast<double>(y[i]) - wanted);
    worst = std::max(worst, error / std::max(std::abs(wanted), 1e-300));
  }
  return worst;
}

TEST_P(Simd, Exp2) {
  // 2^-126 is the least normal number; below it a weight may be 0.
  Floats x = exponents();
  std::erase_if(x, [](float each) { return each < -126; });
  pad(x);
  const auto exp2 = [](double each) { return std::exp2(each); };
  // The polynomials' own errors are 2.9e-6 and 8.3e-8; the last roundings, each by 6e-8 at most, come on top.
  EXPECT_LT(worst_relative_error(table_->exp2_of_degree_4, x, exp2), 3.0e-6);
  EXPECT_LT(worst_relative_error(table_->exp2_of_degree_5, x, exp2), 1.8e-7);
  Floats whole;
  for (int i = -126; i < 127; ++i) whole.push_back(static_cast<float>(i));
  for (const SimdTable::Unary each : {table_->exp2_of_degree_4, table_->exp2_of_degree_5}) {
    check(each, whole, [](float power) { return std::exp2(power); });
    check(each, Floats(16, -infinity), [](float) { return 0.0f; });
    check(each, Floats(16, -FLT_MAX), [](float) { return 0.0f; });
    check(each, Floats(16, float_of(0x7FC00000)), [](float nan) { return nan; });
  }
}

TEST_P(Simd, Tanh) {
  Floats x = uniform(20000, -25, 25, 12);
  for (const float range : {1e-30f, 1e-5f, 0.1f, 0.3f, 0.31f, 1.0f}) {
    const Floats more = uniform(4000, -range, range, 13);
    x.insert(x.end(), more.begin(), more.end());
  }
  x.insert(x.end(),
           {0.3f, -0.3f, std::nextafter(0.3f, 1.0f), 20, 21, 1e10f, FLT_MAX, -FLT_MAX, infinity, -infinity, FLT_MIN});
  pad(x);
  EXPECT_LT(worst_relative_error(table_->tanh, x, [](double each) { return std::tanh(each); }), 4e-7);
  // Vectors that need one way alone.
  EXPECT_LT(
      worst_relative_error(table_->tanh, uniform(160, -0.29f, 0.29f, 14), [](double each) { return std::tanh(each); }),
      4e-7);
  check(table_->tanh, {0.0f, -0.0f, float_of(0x7FC00000)}, [](float each) { return each; });
}

TEST_P(Simd, Logarithm) {
  Floats x = any_bits(40000, 15);
  for (const float each : uniform(20000, 0.5f, 2, 16)) x.push_back(each);
  x.insert(x.end(), {1, FLT_TRUE_MIN, FLT_MIN, FLT_MAX, std::nextafter(1.0f, 2.0f), std::nextafter(1.0f, 0.0f)});
  for (const float each : x) {
    if (!(std::abs(each) > 0) || std::isinf(each)) continue;
    const double exact = std::log(static_cast<double>(std::abs(each)));
    EXPECT_NEAR(table_->logarithm(std::abs(each)), exact, 1e-11 * std::max(1.0, std::abs(exact))) << shown(each);
  }
}

// ---- Pairs of bf16 ----

// ---- Whole numbers ----

float pair(std::uint16_t low, std::uint16_t high) {
  return float_of(low | static_cast<std::uint32_t>(high) << 16);
}
std::uint16_t half(float pairs, bool high) {
  return static_cast<std::uint16_t>(bits_of(pairs) >> (high ? 16 : 0));
}
std::int16_t whole_half(float pairs, bool high) {
  return bit_cast<std::int16_t>(half(pairs, high));
}
float of_i32(std::int32_t x) {
  return bit_cast<float>(x);
}

TEST_P(Simd, BytesBecomePairsOfSixteenBits) {
  std::vector<std::int8_t> memory(2 * 256 + 1);
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::int8_t>(i * 37);  // all of them
  for (const std::size_t from : {0U, 1U}) {
    Floats y(256);
    table_->load_i8(memory.data() + from, y.data(), 256);
    for (std::size_t i = 0; i < 512; ++i) EXPECT_EQ(whole_half(y[i / 2], i % 2 == 1), memory[from + i]) << i;
  }
}

TEST_P(Simd, WholeNumbersAreTheNearestOnesAndEvenBetween) {
  Floats x = uniform(4096, -32767, 32767, 21);
  x.insert(x.end(), {0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 32767, -32767, 0, -0.0f, 126.5f, 127.5f});
  pad(x);
  std::vector<std::int16_t> y(x.size() + 1);
  table_->store_i16(x.data(), y.data() + 1, std::ssize(x));
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(y[i + 1], std::nearbyint(x[i])) << x[i];
  EXPECT_EQ(y[0], 0);
}

TEST_P(Simd, ProductsOfSixteenBitsAreExact) {
  std::mt19937_64 random(18);
  Floats a(4096), b(4096), c(4096), y(4096);
  const auto draw = [&](int most) {
    return static_cast<std::uint16_t>(std::uniform_int_distribution<int>(-most, most)(random));
  };
  for (std::size_t i = 0; i < a.size(); ++i) {
    a[i] = pair(draw(32767), draw(32767)), b[i] = pair(draw(127), draw(127));
    c[i] = of_i32(static_cast<std::int32_t>(random() % 2'000'000'000) - 1'000'000'000);
  }
  a[0] = a[1] = pair(0x8001, 0x8001), b[0] = pair(127, 127), b[1] = pair(0x7FFF, 0x7FFF), c[1] = c[0] = of_i32(0);
  table_->dot_i16(a.data(), b.data(), c.data(), y.data(), std::ssize(y));
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::int64_t sum = bit_cast<std::int32_t>(c[i]);
    for (const bool high : {false, true}) sum += std::int64_t{whole_half(a[i], high)} * whole_half(b[i], high);
    EXPECT_EQ(bit_cast<std::int32_t>(y[i]), sum) << i;
  }
}

// Of four bytes each, of all values: of a from 0 to most_a, of b from least_b to 127, the ends often.
struct Bytes {
  Floats a, b, c;
  Bytes(int most_a, int least_b) : a(4096), b(4096), c(4096) {
    std::mt19937_64 random(20);
    const auto draw = [&](int low, int high) {
      const auto any = std::uniform_int_distribution<int>(low - 20, high + 20)(random);
      return static_cast<std::uint32_t>(std::clamp(any, low, high)) & 255;
    };
    const auto four = [&](int low, int high) {
      std::uint32_t bytes = 0;
      for (int i = 0; i < 4; ++i) bytes = bytes << 8 | draw(low, high);
      return float_of(bytes);
    };
    for (std::size_t i = 0; i < a.size(); ++i) {
      a[i] = four(0, most_a), b[i] = four(least_b, 127);
      c[i] = of_i32(static_cast<std::int32_t>(random() % 2'000'000'000) - 1'000'000'000);
    }
  }

  // c + the sum of products, a's bytes less `from`.
  std::int32_t sum(std::size_t i, int from = 0) const {
    std::int64_t all = bit_cast<std::int32_t>(c[i]);
    for (int byte = 0; byte < 32; byte += 8) {
      const int code = static_cast<int>(bits_of(a[i]) >> byte & 255) - from;
      all += std::int64_t{code} * static_cast<std::int8_t>(bits_of(b[i]) >> byte & 255);
    }
    return static_cast<std::int32_t>(all);
  }
};

TEST_P(Simd, ProductsOfBytesAreExact) {
  const Bytes x(255, -128);
  Floats y(x.a.size());
  table_->dot_u8(x.a.data(), x.b.data(), x.c.data(), y.data(), std::ssize(y));
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(bit_cast<std::int32_t>(y[i]), x.sum(i)) << i;
}

TEST_P(Simd, WholeNumbersAndTheirBytes) {
  Floats x = uniform(512, -100'000, 100'000, 21), y(512);
  x[0] = 2.5f, x[1] = 3.5f, x[2] = -2.5f;
  table_->to_i32(x.data(), y.data(), std::ssize(y));
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(bit_cast<std::int32_t>(y[i]), std::lrint(x[i])) << x[i];
  std::vector<std::int8_t> bytes(512 + 3);
  table_->store_low_bytes(y.data(), bytes.data() + 3, std::ssize(y));
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(bytes[i + 3], static_cast<std::int8_t>(bits_of(y[i]))) << i;
  std::int32_t sum = 0;
  for (int i = 0; i < table_->lanes; ++i) sum += bit_cast<std::int32_t>(y[static_cast<std::size_t>(i)]);
  EXPECT_EQ(table_->sum_i32(y.data()), sum);
  std::uint32_t four = 0;
  std::memcpy(&four, bytes.data() + 3, sizeof four);
  table_->spread(bytes.data() + 3, x.data());
  for (int i = 0; i < table_->lanes; ++i) EXPECT_EQ(bits_of(x[static_cast<std::size_t>(i)]), four) << i;
}

TEST_P(Simd, SumsOfWholeNumbersAreExactAndThenRounded) {
  std::mt19937_64 random(19);
  const auto lanes = static_cast<std::size_t>(table_->lanes);
  Floats x(lanes * lanes), sums(lanes), y(lanes);
  for (float& each : x) each = of_i32(static_cast<std::int32_t>(random() % 200'000'000) - 100'000'000);
  table_->sum_each_i32(x.data(), sums.data());
  for (std::size_t i = 0; i < lanes; ++i) {
    std::int64_t sum = 0;
    for (std::size_t j = 0; j < lanes; ++j) sum += bit_cast<std::int32_t>(x[i * lanes + j]);
    EXPECT_EQ(bit_cast<std::int32_t>(sums[i]), sum);
  }
  table_->from_i32(sums.data(), y.data(), table_->lanes);
  for (std::size_t i = 0; i < lanes; ++i) EXPECT_EQ(y[i], static_cast<float>(bit_cast<std::int32_t>(sums[i])));
}

TEST_P(Simd, RowsAreInterleavedAsTheyAre) {
  const auto lanes = static_cast<std::size_t>(table_->lanes);
  Halves a(2 * lanes), b(2 * lanes);
  for (std::size_t i = 0; i < 2 * lanes; ++i)
    a[i] = static_cast<std::uint16_t>(100 + i), b[i] = static_cast<std::uint16_t>(40000 + i);
  Floats both(2 * lanes), row_a(lanes), row_b(lanes);
  std::memcpy(row_a.data(), a.data(), 4 * lanes), std::memcpy(row_b.data(), b.data(), 4 * lanes);
  table_->interleave_low(row_a.data(), row_b.data(), both.data(), table_->lanes);
  table_->interleave_high(row_a.data(), row_b.data(), both.data() + lanes, table_->lanes);
  for (std::size_t i = 0; i < 2 * lanes; ++i) {
    const int place = table_->interleaved_place(static_cast<int>(i));
    EXPECT_EQ(bits_of(both[static_cast<std::size_t>(place)]), bits_of(pair(a[i], b[i]))) << i;
  }
}

TEST_P(Simd, PairsAreRoundedAsStoresAre) {
  // Every sign, exponent and kind of fraction: between two bf16, next to the middle, and NaN.
  Floats x;
  for (std::uint32_t upper = 0; upper < 0x10000; upper += 3) {
    for (const std::uint32_t lower : {0u, 1u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu})
      x.push_back(float_of(upper << 16 | lower));
  }
  x.resize(x.size() / 16 * 16);
  Floats other(x.rbegin(), x.rend()), y(x.size());
  Halves low(x.size()), high(x.size());
  table_->store_bf16(x.data(), low.data(), std::ssize(x));
  table_->store_bf16(other.data(), high.data(), std::ssize(x));
  table_->round_pair(x.data(), other.data(), y.data(), std::ssize(x));
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(half(y[i], false), low[i]) << shown(x[i]);
    EXPECT_EQ(half(y[i], true), high[i]) << shown(other[i]);
  }
}

// ---- Products of bytes in 16 bits ----

std::vector<const kernels::Target*> with_pairs() {
  std::vector<const kernels::Target*> found;
  for (const kernels::Target* each : kernels::targets())
    if (const SimdTable* table = table_of(*each); table && table->by_pairs) found.push_back(each);
  return found;
}

class SimdPairs : public Simd {};

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SimdPairs);  // an architecture may have no such target
INSTANTIATE_TEST_SUITE_P(Every, SimdPairs, testing::ValuesIn(with_pairs()),
                         [](const auto& each) { return std::string(each.param->name); });

TEST_P(SimdPairs, ProductsOfBytesInSixteenBitsAreExact) {
  Floats y(4096);
  const Bytes small(63, -128);
  table_->by_pairs(small.a.data(), small.b.data(), small.c.data(), y.data(), std::ssize(y));
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(bit_cast<std::int32_t>(y[i]), small.sum(i)) << i;
  const Bytes all(255, -127);
  table_->dot_lowered(all.a.data(), all.b.data(), all.c.data(), y.data(), std::ssize(y));
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(bit_cast<std::int32_t>(y[i]), all.sum(i, 128)) << i;
}

// ---- Products of bf16 ----

std::vector<const kernels::Target*> with_bf16_dot() {
  std::vector<const kernels::Target*> found;
  for (const kernels::Target* each : kernels::targets())
    if (each->bf16_dot) found.push_back(each);
  return found;
}

class SimdBf16 : public Simd {};

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SimdBf16);  // an architecture may have no such target
INSTANTIATE_TEST_SUITE_P(Every, SimdBf16, testing::ValuesIn(with_bf16_dot()),
                         [](const auto& each) { return std::string(each.param->name); });

// The bf16 that lies next to x.
std::uint16_t near(float x) {
  return static_cast<std::uint16_t>(bits_of(static_cast<float>(bf16.rounded(x))) >> 16);
}

TEST_P(SimdBf16, DotAddsBothProducts) {
  std::mt19937_64 random(17);
  std::uniform_real_distribution<float> draw(-4, 4);
  Floats a(4096), b(4096), c(4096), y(4096);
  for (std::size_t i = 0; i < a.size(); ++i) {
    // Whole numbers first: then nothing is rounded.
    const auto next = [&] { return i < 2048 ? std::round(draw(random)) : draw(random); };
    const auto two = [&] {
      const float low = next(), high = next();
      return pair(near(low), near(high));
    };
    a[i] = two(), b[i] = two(), c[i] = next();
  }
  table_->dot_bf16(a.data(), b.data(), c.data(), y.data(), std::ssize(y));
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double low = bf16.value(half(a[i], false)) * bf16.value(half(b[i], false));
    const double high = bf16.value(half(a[i], true)) * bf16.value(half(b[i], true));
    const auto from = static_cast<double>(c[i]);
    // Two roundings of partial sums that are no larger than all magnitudes together.
    const double tolerance = i < 2048 ? 0 : 0x1.01p-23 * (std::abs(low) + std::abs(high) + std::abs(from));
    EXPECT_NEAR(static_cast<double>(y[i]), from + low + high, tolerance);
  }
}

TEST_P(SimdBf16, DotTakesSubnormalsForZeroAndKeepsNaN) {
  Floats a(16, pair(near(1), 0x0001)), b(16, pair(near(2), near(0x1p120f))), c(16, 3), y(16);
  table_->dot_bf16(a.data(), b.data(), c.data(), y.data(), 16);
  for (const float each : y) EXPECT_EQ(each, 5);
  a.assign(16, pair(near(1), 0x7FC0));
  table_->dot_bf16(a.data(), b.data(), c.data(), y.data(), 16);
  for (const float each : y) EXPECT_TRUE(std::isnan(each));
}

TEST_P(SimdBf16, PairRoundsToNearestEvenWithoutSubnormals) {
  static const SimdTable* table;
  table = table_;
  // One half by itself, the other being of something else.
  const SimdTable::Narrow low = [](const float* x, std::uint16_t* to, long n) {
    Floats other(static_cast<std::size_t>(n), -3), y(other.size());
    table->pair_bf16(x, other.data(), y.data(), n);
    for (std::size_t i = 0; i < y.size(); ++i) {
      to[i] = half(y[i], false);
      EXPECT_EQ(half(y[i], true), near(-3));
    }
  };
  const SimdTable::Narrow high = [](const float* x, std::uint16_t* to, long n) {
    Floats other(static_cast<std::size_t>(n), 5), y(other.size());
    table->pair_bf16(other.data(), x, y.data(), n);
    for (std::size_t i = 0; i < y.size(); ++i) {
      to[i] = half(y[i], true);
      EXPECT_EQ(half(y[i], false), near(5));
    }
  };
  for (const SimdTable::Narrow each : {low, high}) {
    check_stores(bf16, each, false);
    check_stored_nans(bf16, each);
  }
}

TEST_P(SimdBf16, OperandsAreStoredAsPairsAreRounded) {
  check_stores(bf16, table_->store_bf16_operand, false);
  check_stored_nans(bf16, table_->store_bf16_operand);
}

TEST_P(SimdBf16, RowsAreInterleavedInTheirOrder) {
  const auto lanes = static_cast<std::size_t>(table_->lanes);
  Halves low, high;
  for (std::size_t i = 0; i < 2 * lanes; ++i)
    low.push_back(static_cast<std::uint16_t>(100 + i)), high.push_back(static_cast<std::uint16_t>(40000 + i));
  Floats y(2 * lanes);
  table_->interleave(low.data(), high.data(), y.data());
  for (std::size_t i = 0; i < 2 * lanes; ++i) EXPECT_EQ(bits_of(y[i]), bits_of(pair(low[i], high[i]))) << i;
}

TEST_P(SimdBf16, PairsTimesAPowerOfTwo) {
  Floats x, y(0x8000);
  for (int i = 0; i < 0x8000; ++i)
    x.push_back(pair(static_cast<std::uint16_t>(i), static_cast<std::uint16_t>(0xFFFF - i)));
  for (const float factor : {1.0f, 0.5f, 4.0f, 0x1p-40f}) {
    table_->scale_pair_bf16(x.data(), factor, y.data(), std::ssize(x));
    for (std::size_t i = 0; i < x.size(); ++i) {
      for (const bool high : {false, true}) {
        const double from = bf16.value(half(x[i], high)), got = bf16.value(half(y[i], high));
        const double wanted = from * static_cast<double>(factor);
        if (std::isnan(from)) {
          EXPECT_TRUE(std::isnan(got) && (half(y[i], high) & 0x40)) << i;
        } else if (std::abs(from) < 0x1p-126 || std::abs(wanted) < 0x1p-126) {
          EXPECT_LE(std::abs(got), std::abs(wanted)) << i;  // towards 0, which subnormals become
        } else {
          EXPECT_EQ(got, std::abs(wanted) >= bf16.limit ? std::copysign(HUGE_VAL, wanted) : wanted) << i;
        }
      }
    }
  }
}

TEST(SimdTables, OneForEachTargetAndNoOther) {
  std::set<std::string> targets, tables;
  for (const kernels::Target* each : kernels::targets()) targets.insert(each->name);
  for (const SimdTable* each : test::simd_tables) tables.insert(each->target);
  EXPECT_EQ(tables, targets);
}

}  // namespace
}  // namespace attend
