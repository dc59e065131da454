#include "attend/tensor.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "core/tensor_memory.h"
#include "tests/expect.h"

namespace attend {
namespace {

using test::expect_error;

Tensor counting(const Dims& shape) {
  Tensor out(shape);
  for (std::int64_t i = 0; i < out.count(); ++i) out.data<float>()[i] = static_cast<float>(i);
  return out;
}

TEST(Tensor, StartsAtZeroAndAligned) {
  const Tensor t({3, 5}, DType::f64);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(t.raw()) % 64, 0u);
  for (int i = 0; i < 15; ++i) EXPECT_EQ(t.data<double>()[i], 0);
}

TEST(Tensor, EmptyAndScalarShapes) {
  EXPECT_EQ(Tensor({0, 4}).count(), 0);
  EXPECT_EQ(Tensor(Dims{}).count(), 1);
  EXPECT_EQ(Tensor(Dims{}).item(), 0);
  EXPECT_EQ(Tensor({2, 0}).clone().shape(), Dims({2, 0}));
  EXPECT_EQ(Tensor({0, 1LL << 40, 1LL << 40}).clone().count(), 0);
}

TEST(Tensor, WhatIsMovedFromIsEmpty) {
  Tensor a({2, 3}, DType::f64);
  Tensor b(std::move(a));
  EXPECT_EQ(a.shape(), Dims({0}));  // NOLINT(bugprone-use-after-move): what is left is what is asked
  EXPECT_EQ(a.dtype(), DType::f32);
  EXPECT_EQ(a.raw(), nullptr);
  a = std::move(b);
  EXPECT_EQ(b.count(), 0);  // NOLINT(bugprone-use-after-move): as above
  EXPECT_EQ(a.item({1, 2}), 0);
  Tensor& same = a;
  a = std::move(same);
  EXPECT_EQ(a.shape(), Dims({2, 3}));
  EXPECT_EQ(a.item({1, 2}), 0);
}

// Empty memory may be null, and adding to null is undefined: the sanitizers watch.
TEST(Tensor, PartsOfNothing) {
  const Tensor t({0, 4, 5});
  EXPECT_EQ(t.view().select(1, 3).shape(), Dims({0, 5}));
  EXPECT_EQ(t.view().slice(2, 1, 5, 2).clone().shape(), Dims({0, 4, 2}));
  EXPECT_EQ(t.view().permute({2, 0, 1}).select(0, 4).clone().shape(), Dims({0, 4}));
}

TEST(Tensor, ConversionToWholeNumbersStaysInRange) {
  constexpr float inf = std::numeric_limits<float>::infinity();
  const Tensor t = Tensor::from({7}, {-1.7f, -inf, NAN, 2.9f, 255.9f, 300, inf});
  const Tensor bytes = t.view().to(DType::u8);
  const std::uint8_t expected[] = {0, 0, 0, 2, 255, 255, 255};
  for (int i = 0; i < 7; ++i) EXPECT_EQ(bytes.data<std::uint8_t>()[i], expected[i]) << i;
  const Tensor signed_bytes = t.view().to(DType::i8);
  const std::int8_t expected_signed[] = {-1, -128, 0, 2, 127, 127, 127};
  for (int i = 0; i < 7; ++i) EXPECT_EQ(signed_bytes.data<std::int8_t>()[i], expected_signed[i]) << i;
  const Tensor whole = t.view().to(DType::i64);
  const std::int64_t expected_whole[] = {-1, INT64_MIN, 0, 2, 255, 300, INT64_MAX};
  for (int i = 0; i < 7; ++i) EXPECT_EQ(whole.data<std::int64_t>()[i], expected_whole[i]) << i;
}

TEST(Tensor, ErrorsNameTheShapes) {
  expect_error(
      ErrorCode::bad_shape,
      [] {
        Tensor({2, -1});
      },
      "[2,-1]");
  expect_error(
      ErrorCode::bad_shape,
      [] {
        Tensor({1LL << 32, 1LL << 32});
      },
      "4294967296");
  expect_error(
      ErrorCode::bad_shape, [] { Tensor({1LL << 61}, DType::f32); }, "bytes");
  expect_error(
      ErrorCode::out_of_memory, [] { Tensor({1LL << 50}); }, "no memory", "[1125899906842624]");
  expect_error(
      ErrorCode::bad_shape,
      [] {
        Tensor::from({2, 2}, {1, 2, 3});
      },
      "[2,2]", "4", "3");
  expect_error(
      ErrorCode::bad_dtype, [] { Tensor({2}).data<double>(); }, "f32", "f64");
  expect_error(
      ErrorCode::bad_shape,
      [] {
        Dims({1, 1, 1, 1, 1, 1, 1, 1, 1});
      },
      "9", "8");
}

TEST(View, TransposePermuteSliceSelect) {
  const Tensor t = counting({2, 3, 4});
  EXPECT_EQ(t.view().transpose(-1, -2).item({1, 3, 2}), 23);
  EXPECT_EQ(t.view().permute({2, 0, 1}).item({3, 1, 2}), 23);
  EXPECT_EQ(t.view().permute({2, 0, 1}).shape(), Dims({4, 2, 3}));
  const View s = t.view().slice(2, 1, 4, 2);
  EXPECT_EQ(s.shape(), Dims({2, 3, 2}));
  EXPECT_EQ(s.item({1, 2, 1}), 23);
  EXPECT_EQ(t.view().select(1, 2).item({1, 3}), 23);
  EXPECT_EQ(t.view().slice(0, 2, 2).count(), 0);
  test::expect_same(t.view().transpose(0, 2).clone(), t.view().permute({2, 1, 0}));
}

// Axes that follow each other without a gap are read as one.
TEST(View, CopiesReadAnyStrides) {
  const Tensor t = Generator(3).randn({4, 1, 6, 2, 5});
  const View x = t;
  const View all[] = {x,
                      x.slice(2, 1, 5),
                      x.slice(4, 0, 5, 2),
                      x.slice(0, 1, 4).slice(3, 1, 2),
                      x.permute({0, 2, 1, 3, 4}),
                      x.permute({3, 4, 1, 0, 2}),
                      x.broadcast_to({4, 3, 6, 2, 5}),
                      x.select(0, 1).slice(1, 2, 3).broadcast_to({7, 1, 1, 2, 5}),
                      x.select(4, 2),
                      x.select(0, 3).select(0, 0).select(0, 1).select(0, 0)};
  for (const View& view : all) {
    const Tensor same = view.clone(), wide = view.to(DType::f64);
    ASSERT_EQ(same.shape(), view.shape());
    for (std::int64_t n = 0; n < view.count(); ++n) {
      View one = view;
      for (std::int64_t left = view.count(), rest = n; one.rank() > 0; rest %= left) {
        left /= one.size(0);
        one = one.select(0, rest / left);
      }
      ASSERT_EQ(same.data<float>()[n], static_cast<float>(one.item())) << view.shape().str() << " " << n;
      ASSERT_EQ(wide.data<double>()[n], one.item()) << view.shape().str() << " " << n;
    }
  }
}

TEST(View, BadAxesAndRanges) {
  const Tensor t = counting({2, 3});
  expect_error(
      ErrorCode::bad_shape, [&] { t.view().transpose(0, 2); }, "axis 2", "[2,3]");
  expect_error(
      ErrorCode::bad_shape,
      [&] {
        t.view().permute({0, 0});
      },
      "[0,0]");
  expect_error(
      ErrorCode::bad_shape, [&] { t.view().permute({0}); }, "[0]");
  expect_error(
      ErrorCode::bad_shape, [&] { t.view().slice(1, 2, 4); }, "2:4", "[2,3]");
  expect_error(
      ErrorCode::bad_shape, [&] { t.view().slice(1, 2, 1); }, "2:1");
  expect_error(
      ErrorCode::bad_shape, [&] { t.view().select(0, 2); }, "index 2");
  expect_error(
      ErrorCode::bad_shape, [&] { t.item({0}); }, "[0]");
  expect_error(
      ErrorCode::bad_shape,
      [&] {
        t.item({0, 3});
      },
      "[0,3]");
}

// A row is where its elements lie, of any view in which they lie side by side.
TEST(View, RowsAreSpans) {
  Tensor t = counting({2, 3, 4});
  const auto values = [](std::span<const float> row) { return std::vector<float>(row.begin(), row.end()); };
  EXPECT_EQ(values(std::as_const(t).row<float>({1, 2})), (std::vector<float>{20, 21, 22, 23}));
  EXPECT_EQ(std::as_const(t).row<float>({0, 0}).data(), t.data<float>());
  EXPECT_EQ(values(t.view().transpose(0, 1).slice(2, 1, 3).row<float>({2, 1})), (std::vector<float>{21, 22}));
  EXPECT_EQ(values(t.view().slice(2, 3, 4, 4).row<float>({1, 0})), std::vector<float>{15}) << "one element";
  EXPECT_EQ(values(t.view().reshape({-1}).row<float>()).size(), 24);
  EXPECT_TRUE(t.view().slice(2, 1, 1).row<float>({1, 2}).empty());
  const std::span<float> written = t.row<float>({1, 0});
  written[3] = -1;
  EXPECT_EQ(t.item({1, 0, 3}), -1);
  expect_error(
      ErrorCode::bad_dtype,
      [&] {
        t.row<double>({0, 0});
      },
      "row", "holds f32, f64");
  const auto none_at = [&](std::initializer_list<std::int64_t> index) {
    expect_error(
        ErrorCode::bad_shape, [&] { t.row<float>(index); }, "row", Dims(index).str(), "[2,3,4]",
        "each axis but the last");
  };
  none_at({}), none_at({0}), none_at({2, 0}), none_at({0, -1}), none_at({0, 3}), none_at({0, 0, 0});
  expect_error(
      ErrorCode::bad_shape,
      [&] {
        t.view().transpose(1, 2).row<float>({0, 0});
      },
      "row", "4 apart", "clone()");
  expect_error(
      ErrorCode::bad_shape, [&] { t.view().reshape({24}).select(0, 5).row<float>(); }, "row", "[]");
}

TEST(View, ReshapesWherePossible) {
  const Tensor t = counting({2, 3, 4});
  EXPECT_EQ(t.view().reshape({6, -1}).item({5, 3}), 23);
  EXPECT_EQ(t.view().reshape({1, 24, 1}).shape(), Dims({1, 24, 1}));
  // The heads of [B,T,H*D]: splitting an axis of a permuted view needs no copy, merging across one does.
  const View heads = t.view().reshape({2, 3, 2, 2}).permute({0, 2, 1, 3});
  EXPECT_EQ(heads.reshape({2, 2, 3, 1, 2}).item({1, 1, 2, 0, 1}), 23);
  EXPECT_EQ(heads.reshape({1, 2, 2, 3, 2}).item({0, 1, 1, 2, 1}), 23);
  expect_error(
      ErrorCode::bad_shape,
      [&] {
        heads.reshape({2, 12});
      },
      "without a copy");
  const View rows = t.view().slice(2, 0, 2);
  EXPECT_EQ(rows.reshape({6, 2}).item({5, 1}), 21);
  expect_error(
      ErrorCode::bad_shape, [&] { rows.reshape({12}); }, "without a copy");
  expect_error(
      ErrorCode::bad_shape,
      [&] {
        t.view().reshape({5, -1});
      },
      "[2,3,4]", "[5,-1]");
  expect_error(
      ErrorCode::bad_shape,
      [&] {
        t.view().reshape({0, -1});
      },
      "[0,-1]");
  EXPECT_EQ(Tensor({0, 3}).view().reshape({3, 0}).shape(), Dims({3, 0}));
}

TEST(View, Broadcasts) {
  const Tensor t = counting({3, 1});
  const View wide = t.view().broadcast_to({2, 3, 4});
  EXPECT_EQ(wide.item({1, 2, 3}), 2);
  EXPECT_EQ(wide.clone().count(), 24);
  expect_error(
      ErrorCode::bad_shape,
      [&] {
        t.view().broadcast_to({2, 4});
      },
      "[3,1]", "[2,4]");
  expect_error(
      ErrorCode::bad_shape, [&] { t.view().broadcast_to({3}); }, "[3]");
}

TEST(View, NegativeStridesAndUnalignedMemory) {
  alignas(8) char bytes[1 + 3 * sizeof(float)];
  for (std::size_t i = 0; i < 3; ++i) {
    const auto value = static_cast<float>(i);
    std::memcpy(bytes + 1 + i * sizeof(float), &value, sizeof value);
  }
  const View forward(bytes + 1, DType::f32, {3});
  const View backward(bytes + 1 + 2 * sizeof(float), DType::f32, {3}, {-1});
  test::expect_same(forward, Tensor::from({3}, {0, 1, 2}));
  test::expect_same(backward, Tensor::from({3}, {2, 1, 0}));
}

TEST(MutableView, CopiesIntoAnyStrides) {
  Tensor t = counting({2, 3});
  Tensor target({3, 2}, DType::f64);
  target.view().transpose(0, 1).copy_from(t);
  test::expect_same(target.view().transpose(0, 1), t.view().to(DType::f64));
  expect_error(
      ErrorCode::bad_shape, [&] { target.view().copy_from(t); }, "[2,3]", "[3,2]");
}

// Into rows that lie apart: from memory in one piece, from rows that lie apart too, and from another dtype.
TEST(Tensor, CopiesIntoAPartOfAnother) {
  const Tensor numbers = Generator(3).randn({2, 3, 5, 4}), doubles = numbers.view().to(DType::f64);
  const Tensor piece = numbers.view().slice(2, 1, 4).to(DType::f32);
  for (const View& source : {View(piece), numbers.view().slice(2, 1, 4), doubles.view().slice(2, 1, 4)}) {
    Tensor target({2, 3, 5, 4});
    target.view().slice(2, 2, 5).copy_from(source);
    for (std::int64_t n = 0; n < target.count(); ++n) {
      const std::int64_t row = n / 4 % 5, above = n - 4;  // one row further down than in numbers
      EXPECT_EQ(target.data<float>()[n], row < 2 ? 0 : numbers.data<float>()[above]) << n;
    }
  }
}

// Every 16-bit pattern widens to the value that its fields mean, and narrows back to itself.
TEST(HalfPrecision, EveryPatternRoundTrips) {
  for (int i = 0; i < 65536; ++i) {
    F16 h;
    BF16 b;
    h.bits = b.bits = static_cast<std::uint16_t>(i);
    const int exponent = (i >> 10) & 31;
    const double magnitude = exponent == 0 ? std::ldexp(i & 1023, -24) : std::ldexp(1024 + (i & 1023), exponent - 25);
    const auto wide = static_cast<float>(h);
    if (exponent == 31) {
      EXPECT_EQ(std::isnan(wide), (i & 1023) != 0);
    } else {
      EXPECT_EQ(wide, i & 0x8000 ? -magnitude : magnitude);
    }
    if (!std::isnan(wide)) {
      EXPECT_EQ(F16(wide).bits, i);
    }
    if (!std::isnan(static_cast<float>(b))) {
      EXPECT_EQ(BF16(static_cast<float>(b)).bits, i);
    }
  }
}

TEST(HalfPrecision, RoundsToNearestEven) {
  // Halfway between two neighbours goes to the even one, just above it to the upper one; 2^-25 is half the smallest
  // f16.
  EXPECT_EQ(F16(1 + 0x1p-11f).bits, 0x3c00);
  EXPECT_EQ(F16(1 + 0x3p-11f).bits, 0x3c02);
  EXPECT_EQ(F16(1 + 0x1p-11f + 0x1p-20f).bits, 0x3c01);
  EXPECT_EQ(F16(0x1p-25f).bits, 0);
  EXPECT_EQ(F16(0x1.8p-25f).bits, 1);
  EXPECT_EQ(F16(65519.f).bits, 0x7bff);
  EXPECT_EQ(F16(65520.f).bits, 0x7c00);
  EXPECT_EQ(BF16(1 + 0x1p-8f).bits, 0x3f80);
  EXPECT_EQ(BF16(1 + 0x3p-8f).bits, 0x3f82);
  EXPECT_EQ(BF16(std::numeric_limits<float>::max()).bits, 0x7f80);
  EXPECT_TRUE(std::isnan(static_cast<float>(BF16(std::nanf("")))));
  EXPECT_TRUE(std::isnan(static_cast<float>(F16(std::nanf("")))));
}

// The memory of a large tensor that ended serves the next one of its size; what outlives the scope is as any other
// tensor. (parallel_test.cpp has other threads.)
TEST(Tensor, MemoryIsReusedWhereItIsAskedFor) {
  const Dims large{256, 256};
  Tensor kept;
  {
    const MemoryReuse reuse;
    const void* first = nullptr;
    { first = Tensor::uninitialized(large).raw(); }
    const Tensor other = Tensor::uninitialized({256, 255}), again = Tensor::uninitialized(large);
    EXPECT_EQ(again.raw(), first);
    EXPECT_NE(other.raw(), first);
    kept = Tensor(large);
    EXPECT_NE(kept.raw(), first);
    const void* inner_first = nullptr;
    {
      const MemoryReuse inner;
      { inner_first = Tensor::uninitialized(large).raw(); }
      EXPECT_EQ(Tensor::uninitialized(large).raw(), inner_first);
    }
    // All zero although the memory is not fresh.
    Tensor written = Tensor::uninitialized(large);
    for (std::int64_t n = 0; n < written.count(); ++n) written.data<float>()[n] = 1;
    const void* place = written.raw();
    written = Tensor();
    const Tensor zero(large);
    EXPECT_EQ(zero.raw(), place);
    EXPECT_EQ(std::count(zero.data<float>(), zero.data<float>() + zero.count(), 0.0f), zero.count());
  }
  EXPECT_EQ(kept.item({255, 255}), 0);
  kept = Tensor(large);
}

}  // namespace
}  // namespace attend
