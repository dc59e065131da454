#include "models/gguf/quantize_row.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <cmath>
#include <limits>
#include <random>

#include "attend/linear.h"

namespace attend {
namespace {

using models::GgufType;
using models::largest_number;

struct Searched {
  GgufType type;
  double error;        // of normal numbers, relative to them, 1 % above what was measured: ggml's is 1.4 to 12 % above
  std::uint32_t bits;  // of what 2^15 numbers become
};
constexpr Searched searched[] = {
    {GgufType::q5_0, 0.0397, 528181242}, {GgufType::q5_1, 0.0336, 4130548839}, {GgufType::q4_k, 0.0702, 1048652124},
    {GgufType::q5_k, 0.0344, 817780894}, {GgufType::q6_k, 0.0168, 3209451237},
};

std::vector<std::byte> quantized(GgufType type, const std::vector<float>& numbers) {
  std::vector<std::byte> made(models::bytes_of_row(type, std::ssize(numbers)));
  models::quantize_row(type, numbers.data(), std::ssize(numbers), made.data());
  return made;
}

// Decoded by the kernels, which are tested beside the package gguf.
std::vector<float> read_again(GgufType type, const std::vector<float>& numbers) {
  const std::vector<std::byte> bytes = quantized(type, numbers);
  const Tensor made = dequantize({bytes.data(), *models::quantized(type), 1, std::ssize(numbers)});
  return {made.data<float>(), made.data<float>() + made.count()};
}

double relative_error(GgufType type, const std::vector<float>& numbers) {
  const std::vector<float> made = read_again(type, numbers);
  double left = 0, all = 0;
  for (std::size_t n = 0; n < numbers.size(); ++n) {
    left += std::pow(double{made[n]} - numbers[n], 2);
    all += std::pow(double{numbers[n]}, 2);
  }
  return std::sqrt(left / all);
}

// Sums of twelve uniform numbers: the same on every machine. tail: to the power of 3, as of few large weights.
std::vector<float> random_numbers(std::size_t count, float scale = 1, bool tail = false) {
  std::mt19937 random(3);
  std::vector<float> numbers(count);
  for (float& each : numbers) {
    std::int64_t sum = 0;
    for (int n = 0; n < 12; ++n) sum += static_cast<std::int64_t>(random() >> 12) - (1 << 19);
    const float x = static_cast<float>(sum) * 0x1p-20F;
    each = scale * (tail ? x * x * x : x);
  }
  return numbers;
}

TEST(QuantizeRow, ErrorsAreThoseOfALineThatIsSought) {
  const std::vector<float> numbers = random_numbers(1 << 15);
  for (const auto& [type, error, bits] : searched) {
    SCOPED_TRACE(name_of(type));
    EXPECT_LE(relative_error(type, numbers), error);
  }
}

// On every processor, by every compiler.
TEST(QuantizeRow, TheBitsAreTheSameEverywhere) {
  const std::vector<float> numbers = random_numbers(1 << 15, 0.02F, true);
  for (const auto& [type, error, bits] : searched) {
    const std::vector<std::byte> made = quantized(type, numbers);
    const auto found = crc32(0, reinterpret_cast<const Bytef*>(made.data()), static_cast<uInt>(made.size()));
    EXPECT_EQ(found, bits) << name_of(type);
  }
}

// A block is what it is whatever follows it, in rows of any number of them.
TEST(QuantizeRow, BlocksDoNotDependOnEachOther) {
  const std::vector<float> numbers = random_numbers(7 * 256, 1, true);
  for (const auto& [type, error, bits] : searched) {
    SCOPED_TRACE(name_of(type));
    const std::vector<std::byte> whole = quantized(type, numbers);
    const std::int64_t size = block_size(*models::quantized(type)), bytes = block_bytes(*models::quantized(type));
    for (std::int64_t n = 0; n < std::ssize(numbers) / size; ++n) {
      const std::vector<std::byte> alone =
          quantized(type, {numbers.begin() + n * size, numbers.begin() + (n + 1) * size});
      ASSERT_TRUE(std::equal(alone.begin(), alone.end(), whole.begin() + n * bytes)) << n;
    }
  }
}

// What is in blocks already comes out as it is, but for the rounding of shared scales to f16.
TEST(QuantizeRow, NumbersThatABlockCanHaveStayNearlyThemselves) {
  for (const auto& [type, error, bits] : searched) {
    SCOPED_TRACE(name_of(type));
    EXPECT_LE(relative_error(type, read_again(type, random_numbers(1 << 13))), error / 10);
  }
}

TEST(QuantizeRow, EdgesOfWhatNumbersMayBe) {
  for (const auto& [type, error, bits] : searched) {
    SCOPED_TRACE(name_of(type));
    for (const float x : {0.0F, -0.0F, std::numeric_limits<float>::denorm_min(), -1e-38F, 1e-12F})
      for (const float made : read_again(type, std::vector<float>(512, x))) EXPECT_EQ(made, 0) << x;
    for (const float x : {1.0F, -1.0F, 0.3F, -0.03F, largest_number(type), -largest_number(type)})
      for (const float made : read_again(type, std::vector<float>(256, x))) EXPECT_NEAR(made / x, 1, 1e-3) << x;
    // Numbers whose squares a float can't have, and a small sub-block beside a large one.
    for (const float scale : {1e-6F, 1e-4F, 3e4F / 6})
      for (const float made : read_again(type, random_numbers(256, scale))) EXPECT_LE(std::fabs(made), 8 * scale);
    std::vector<float> mixed = random_numbers(256, 1e-30F);
    mixed[100] = 1;
    EXPECT_NEAR(read_again(type, mixed)[100], 1, 1e-3);
  }
}

TEST(QuantizeRow, LargestNumbers) {
  EXPECT_EQ(largest_number(GgufType::f16), 65504);
  EXPECT_EQ(largest_number(GgufType::q8_0), 127 * 65504);
  for (const GgufType type : {GgufType::q8_0, GgufType::q4_0})
    for (const float made : read_again(type, std::vector<float>(32, -largest_number(type))))
      EXPECT_NEAR(made / -largest_number(type), 1, 1e-3);
}

}  // namespace
}  // namespace attend
