#include "attend/attention.h"

#include <tbb/global_control.h>

#include <functional>
#include <limits>

#include "tests/expect.h"

namespace attend {
namespace {

using test::expect_close;
using test::expect_error;
using test::expect_same;

const TensorMap& golden() {
  static const TensorMap tensors = read_npz(test::data("golden/attention.npz"));
  return tensors;
}
View input(const std::string& name) {
  return golden().at(name);
}

struct Case {
  std::string name;
  AttentionOptions options;
};

std::vector<Case> cases() {
  AttentionOptions all{.scale = 0.7, .causal = true, .window = {3, -1}, .offset = Offset(2)};
  all.mask = input("mask");
  all.bias = input("bias");
  all.alibi_slopes = input("slopes");
  all.sinks = input("sinks");
  all.softcap = 1.5;
  all.key_lengths = input("lengths");
  return {
      {"plain", {}},
      {"scale", {.scale = 0.3}},
      {"causal_top_left", {.causal = true, .offset = Offset::top_left()}},
      {"causal_bottom_right", {.causal = true, .offset = Offset::bottom_right()}},
      {"causal_minus_2", {.causal = true, .offset = Offset(-2)}},
      {"mask", {.mask = input("mask")}},
      {"bias", {.bias = input("bias")}},
      {"window_1_2", {.window = {1, 2}, .offset = Offset::top_left()}},
      {"alibi", {.offset = Offset::bottom_right(), .alibi_slopes = input("slopes")}},
      {"sinks", {.sinks = input("sinks")}},
      {"softcap", {.softcap = 0.8}},
      {"lengths", {.key_lengths = input("lengths")}},
      {"lengths_bottom_right", {.causal = true, .offset = Offset::bottom_right(), .key_lengths = input("lengths")}},
      {"all", all},
  };
}

// What the softmax saw, from what it made; -infinity where the weight is 0.
Tensor logits_of(const View& weights, const View& lse) {
  Tensor logits = weights.clone();
  const std::int64_t keys = weights.size(-1);
  for (std::int64_t i = 0; i < logits.count(); ++i) {
    double& x = logits.data<double>()[i];
    x = std::log(x) + lse.data<double>()[i / keys];
  }
  return logits;
}

// The golden values are sums of a few products in another order: a few ulp of f64.
constexpr double f64_tolerance = 1e-14;

TEST(Attention, EqualsPyTorchForEveryOption) {
  for (const Case& c : cases()) {
    const AttentionResult result = attention(input("q"), input("k"), input("v"), c.options);
    expect_close(result.out, input(c.name + ".out"), f64_tolerance, c.name + ".out");
    expect_close(result.lse, input(c.name + ".lse"), f64_tolerance, c.name + ".lse");
    const AttentionSteps steps = attention_steps(input("q"), input("k"), input("v"), c.options);
    expect_close(steps.scores, input("scores"), f64_tolerance, c.name + ".scores");
    expect_close(steps.logits, logits_of(input(c.name + ".weights"), input(c.name + ".lse")), f64_tolerance,
                 c.name + ".logits");
    expect_close(steps.weights, input(c.name + ".weights"), f64_tolerance, c.name + ".weights");
    expect_same(steps.context, result.out, c.name + ".context");
    expect_same(steps.lse, result.lse, c.name + ".lse");
  }
}

// Half a unit in the last place of the result, and for bf16 the rounding of each weight besides.
double tolerance(DType dtype) {
  return dtype == DType::f32 ? 0x1p-22 : dtype == DType::f16 ? 0x1p-10 : 0x1p-7;
}

TEST(Attention, EveryDTypeAndOptionIsCloseToDoublePrecision) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const Tensor q = input("q").to(dtype), k = input("k").to(dtype), v = input("v").to(dtype);
    const Tensor q64 = q.view().to(DType::f64), k64 = k.view().to(DType::f64), v64 = v.view().to(DType::f64);
    for (const Case& c : cases()) {
      const AttentionResult exact = attention(q64, k64, v64, c.options);
      const AttentionResult result = attention(q, k, v, c.options);
      EXPECT_EQ(result.out.dtype(), dtype);
      expect_close(result.out, exact.out, tolerance(dtype), c.name + ".out");
      expect_close(result.lse, exact.lse, 4e-6, c.name + ".lse");
    }
  }
}

TEST(Attention, AnyStridesAndAlignment) {
  const AttentionResult expected = attention(input("q"), input("k"), input("v"));
  // [B,T,H,D] in memory, shifted by one byte.
  const auto shuffled = [](const View& x, std::vector<char>& memory) {
    const Tensor packed = x.permute({0, 2, 1, 3}).clone();
    memory.resize(static_cast<std::size_t>(packed.count()) * 8 + 1);
    std::memcpy(memory.data() + 1, packed.raw(), memory.size() - 1);
    return View(memory.data() + 1, DType::f64, packed.shape()).permute({0, 2, 1, 3});
  };
  std::vector<char> a, b, c;
  const AttentionResult result = attention(shuffled(input("q"), a), shuffled(input("k"), b), shuffled(input("v"), c));
  expect_same(result.out, expected.out);
}

TEST(Attention, SameBitsForAnyThreadsBatchAndSplitOfQueries) {
  Generator generator(1);
  const Tensor q = generator.randn({3, 4, 70, 33}), k = generator.randn({3, 2, 90, 33}),
               v = generator.randn({3, 2, 90, 17});
  const auto run = [&](const View& queries, const View& keys, const View& values, std::int64_t offset) {
    return attention(queries, keys, values, {.causal = true, .offset = Offset(offset)});
  };
  const AttentionResult whole = run(q, k, v, 20);
  for (const int threads : {1, 2, 3, 8}) {
    const tbb::global_control limit(tbb::global_control::max_allowed_parallelism, static_cast<std::size_t>(threads));
    expect_same(run(q, k, v, 20).out, whole.out, std::to_string(threads) + " threads");
  }
  const auto item = [](const View& x) { return x.slice(0, 1, 2); };
  expect_same(run(item(q), item(k), item(v), 20).out, item(whole.out), "one item of the batch");
  expect_same(run(q.view().slice(2, 31, 70), k, v, 51).out, whole.out.view().slice(2, 31, 70), "the later queries");
}

TEST(Attention, LeadingAxesMayBeLeftOut) {
  const AttentionResult expected = attention(input("q"), input("k"), input("v"));
  const auto item = [](const View& x) { return x.select(0, 1); };
  const AttentionResult three = attention(item(input("q")), item(input("k")), item(input("v")));
  expect_same(three.out, item(expected.out));
  expect_same(three.lse, item(expected.lse));
  const auto head = [&](const View& x, int h) { return item(x).select(0, h); };
  const AttentionResult two = attention(head(input("q"), 3), head(input("k"), 1), head(input("v"), 1));
  expect_same(two.out, head(expected.out, 3));
  expect_same(two.lse, head(expected.lse, 3));
}

TEST(Attention, MaskedNaNNeverLeaksAndAttendedNaNDoes) {
  Tensor k = input("k").clone(), v = input("v").clone();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  k.view().select(2, 6).copy_from(Tensor::from({1}, {NAN}).view().broadcast_to({2, 2, 6}));
  v.view().select(2, 6).copy_from(Tensor::from({1}, {INFINITY}).view().broadcast_to({2, 2, 3}));
  Tensor visible({7}, DType::boolean);
  std::fill(visible.data<bool>(), visible.data<bool>() + 6, true);
  Tensor minus_infinity({7}, DType::f64);
  minus_infinity.data<double>()[6] = -INFINITY;
  const auto first_six = [](const View& x) { return x.slice(2, 0, 6); };
  const AttentionResult clean = attention(input("q"), first_six(k), first_six(v));
  const Tensor six = [] {
    Tensor lengths({2}, DType::i64);
    lengths.data<std::int64_t>()[0] = lengths.data<std::int64_t>()[1] = 6;
    return lengths;
  }();
  const AttentionOptions ways[] = {{.mask = visible},
                                   {.key_lengths = six},
                                   {.causal = true, .offset = Offset(1), .mask = visible},
                                   {.window = {-1, 0}, .offset = Offset(1)}};
  for (const AttentionOptions& way : ways) {
    const AttentionResult result = attention(input("q"), k, v, way);
    for (std::int64_t i = 0; i < result.out.count(); ++i) ASSERT_TRUE(std::isfinite(result.out.data<double>()[i]));
  }
  expect_same(attention(input("q"), k, v, ways[0]).out, clean.out);
  expect_same(attention(input("q"), k, v, ways[1]).out, clean.out);
  // A value of infinity behind a score of -infinity is not attended to either.
  expect_same(attention(input("q"), input("k"), v, {.bias = minus_infinity}).out,
              attention(input("q"), first_six(input("k")), first_six(v)).out);
  const AttentionResult poisoned = attention(input("q"), k, v);
  EXPECT_TRUE(std::isnan(poisoned.out.item({0, 0, 0, 0})));
  EXPECT_TRUE(std::isnan(poisoned.lse.item({0, 0, 0})));
  v = input("v").clone();
  v.data<double>()[0] = nan;
  EXPECT_TRUE(std::isnan(attention(input("q"), input("k"), v).out.item({0, 0, 0, 0})));
}

// The first rows see a part of the first keys, later rows all of them: both kinds meet the same tile.
TEST(Attention, AttendedNaNReachesEveryRowOfACausalCall) {
  Generator generator(1);
  const Tensor q = generator.randn({1, 1, 200, 8}), k = generator.randn({1, 1, 200, 8});
  Tensor v = generator.randn({1, 1, 200, 4});
  v.data<float>()[3 * 4 + 1] = NAN;
  const Tensor out = attention(q, k, v, {.causal = true, .offset = Offset::top_left()}).out;
  for (std::int64_t i = 0; i < 200; ++i) {
    EXPECT_EQ(std::isnan(out.item({0, 0, i, 1})), i >= 3) << i;
    EXPECT_FALSE(std::isnan(out.item({0, 0, i, 0}))) << i;
  }
}

TEST(Attention, NothingToAttendToGivesZeroAndMinusInfinity) {
  const Tensor q({2, 3, 4, 5}), k({2, 3, 0, 5}), v({2, 3, 0, 6});
  const AttentionResult result = attention(q, k, v);
  EXPECT_EQ(result.out.shape(), Dims({2, 3, 4, 6}));
  for (int i = 0; i < 144; ++i) EXPECT_EQ(result.out.data<float>()[i], 0);
  for (int i = 0; i < 24; ++i) EXPECT_EQ(result.lse.data<float>()[i], -INFINITY);
  // With a sink there is one score: its own.
  const Tensor sinks = Tensor::from({3}, {1, 2, 3});
  EXPECT_EQ(attention(q, k, v, {.sinks = sinks}).lse.item({1, 2, 3}), 3);
}

TEST(Attention, ZeroLengthsWork) {
  EXPECT_EQ(attention(Tensor({0, 2, 4, 5}), Tensor({0, 2, 3, 5}), Tensor({0, 2, 3, 6})).out.shape(),
            Dims({0, 2, 4, 6}));
  EXPECT_EQ(attention(Tensor({1, 2, 0, 5}), Tensor({1, 2, 3, 5}), Tensor({1, 2, 3, 6})).lse.shape(), Dims({1, 2, 0}));
  EXPECT_EQ(attention(Tensor({1, 0, 4, 5}), Tensor({1, 0, 3, 5}), Tensor({1, 0, 3, 6})).out.count(), 0);
}

// No memory is there, through which the undefined behaviour sanitizer lets nobody step.
TEST(Attention, AMaskOrBiasOfNoKeysMayBeNowhere) {
  const Tensor q({1, 2, 70, 4}), k({1, 2, 0, 4});
  const View mask(nullptr, DType::boolean, {70, 0}, {1, 1}), bias(nullptr, DType::f32, {70, 0}, {1, 1});
  for (const std::int64_t Tq : {1, 70}) {  // both paths
    AttentionOptions options;
    options.mask = mask.slice(0, 0, Tq), options.bias = bias.slice(0, 0, Tq);
    const AttentionResult result = attention(q.view().slice(2, 0, Tq), k, k, options);
    EXPECT_EQ(result.lse.item({0, 1, Tq - 1}), -INFINITY);
  }
}

// NumPy and PyTorch leave any number there.
TEST(Attention, TheStrideOfAnAxisOfOneElementMayBeAnything) {
  Generator generator(9);
  for (const std::int64_t Tq : {1, 30}) {  // both paths
    const Tensor q = generator.randn({1, 1, Tq, 16}), k = generator.randn({1, 1, 1, 16});
    const auto absurd = [](const Tensor& x) {
      Dims strides = x.view().strides();
      for (int axis = 0; axis < 4; ++axis)
        if (x.size(axis) == 1) strides[axis] = INT64_MAX / 2 + axis;
      return View(x.raw(), x.dtype(), x.shape(), strides);
    };
    const AttentionResult expected = attention(q, k, k), result = attention(absurd(q), absurd(k), absurd(k));
    test::expect_same(result.out, expected.out, "out");
    const AttentionGradients g =
        attention_backward(absurd(q), absurd(q), absurd(k), absurd(k), absurd(result.out), result.lse, {}, {});
    test::expect_same(g.dv, attention_backward(q, q, k, k, expected.out, expected.lse).dv, "dv");
  }
}

TEST(Attention, LargeScoresDoNotOverflow) {
  const Tensor q = Tensor::from({1, 1}, {1e4f}), k = Tensor::from({3, 1}, {1e4f, 1e4f, -1e4f}),
               v = Tensor::from({3, 1}, {2, 4, 100});
  const AttentionResult result = attention(q, k, v);
  EXPECT_EQ(result.out.item({0, 0}), 3);
  EXPECT_EQ(result.lse.item({0}), static_cast<float>(1e8 + std::log(2)));
}

TEST(Attention, VeryNegativeScoresDoNotVanish) {
  const Tensor q = Tensor::from({1, 1}, {-1e4f}), k = Tensor::from({2, 1}, {1e4f, 1e4f}),
               v = Tensor::from({2, 1}, {2, 4});
  const AttentionResult result = attention(q, k, v);
  EXPECT_EQ(result.out.item({0, 0}), 3);
  EXPECT_EQ(result.lse.item({0}), static_cast<float>(-1e8 + std::log(2)));
}

TEST(Attention, ErrorsNameFunctionArgumentExpectedAndGot) {
  const auto shapes = [](Dims q, Dims k, Dims v) { return [=] { attention(Tensor(q), Tensor(k), Tensor(v)); }; };
  const auto bad = ErrorCode::bad_shape;
  expect_error(bad, shapes({2, 8, 5, 80}, {2, 8, 7, 64}, {2, 8, 7, 64}),
               "attention: k has head size 64, q has 80 (q [2,8,5,80], k [2,8,7,64], v [2,8,7,64])");
  expect_error(bad, shapes({2, 8, 5, 4}, {1, 8, 7, 4}, {2, 8, 7, 4}), "k has batch size 1, q has 2");
  expect_error(bad, shapes({2, 8, 5, 4}, {2, 8, 7, 4}, {1, 8, 7, 4}), "v has batch size 1, q has 2");
  expect_error(bad, shapes({2, 8, 5, 4}, {2, 4, 7, 4}, {2, 8, 7, 4}), "v has heads 8, k has 4");
  expect_error(bad, shapes({2, 8, 5, 4}, {2, 8, 7, 4}, {2, 8, 6, 4}), "v has keys 6, k has 7");
  expect_error(bad, shapes({2, 8, 5, 4}, {2, 3, 7, 4}, {2, 3, 7, 4}), "q has 8 heads, expected a multiple of k's 3");
  expect_error(bad, shapes({2, 8, 5, 4}, {2, 0, 7, 4}, {2, 0, 7, 4}), "multiple of k's 0");
  expect_error(bad, shapes({5}, {7}, {7}), "q has 1 axes");
  expect_error(bad, shapes({5, 4}, {1, 7, 4}, {7, 4}), "differ in their number of axes");
  expect_error(bad, shapes({5, 0}, {7, 0}, {7, 4}), "q has head size 0");
  expect_error(bad, shapes({5, 4}, {7, 4}, {7, 0}), "v has head size 0");
  expect_error(
      ErrorCode::bad_dtype,
      [] {
        attention(Tensor({5, 4}, DType::i64), Tensor({7, 4}), Tensor({7, 4}));
      },
      "q is i64");
  expect_error(
      ErrorCode::bad_dtype,
      [] {
        attention(Tensor({5, 4}), Tensor({7, 4}, DType::f16), Tensor({7, 4}));
      },
      "k is f16, q is f32");
  expect_error(
      ErrorCode::bad_dtype,
      [] {
        attention(Tensor({5, 4}), Tensor({7, 4}), Tensor({7, 4}, DType::bf16));
      },
      "v is bf16, q is f32");
}

TEST(Attention, ShapesBeyondMemoryAreAnError) {
  // The plain path keeps a row of scores.
  const double zero = 0;
  const View q(&zero, DType::f64, {1, 4}, {0, 0});
  const View many_keys(&zero, DType::f64, {std::int64_t{1} << 60, 4}, {0, 0});
  expect_error(
      ErrorCode::out_of_memory, [&] { attention(q, many_keys, many_keys); }, "attention: ", "[1152921504606846976,4]");
}

TEST(Attention, BadOptionsAreNamed) {
  const Tensor q({2, 3, 5, 4}), k({2, 3, 7, 4}), f({5}), three({3}), lengths({2}, DType::i64);
  const auto with = [&](AttentionOptions options) { return [&, options] { attention(q, k, k, options); }; };
  Tensor long_lengths({2}, DType::i64), nan({3});
  long_lengths.data<std::int64_t>()[1] = 8;
  nan.data<float>()[2] = NAN;
  const auto shape = ErrorCode::bad_shape, dtype = ErrorCode::bad_dtype, value = ErrorCode::bad_value;
  expect_error(value, with({.causal = true}), "5 queries and 7 keys", "top_left", "bottom_right");
  expect_error(value, with({.window = {2, 2}}), "top_left", "bottom_right");
  expect_error(value, with({.alibi_slopes = three.view()}), "top_left", "bottom_right");
  expect_error(value, with({.window = {-2, 0}}), "window side -2");
  expect_error(value, with({.scale = NAN}), "scale is nan");
  expect_error(value, with({.scale = 1e-39}), "scale is 1e-39", "8.2e-39");
  expect_error(value, with({.scale = -3e38}), "scale is -3e+38", "2.3e38");
  expect_error(value, with({.softcap = -1}), "softcap is -1");
  expect_error(value, with({.offset = Offset(INT64_MIN)}), "offset is -9223372036854775808");
  expect_error(dtype, with({.mask = f.view()}), "mask is f32", "true = may attend");
  expect_error(shape, with({.mask = View(f.raw(), DType::boolean, {5})}), "mask has shape [5]", "[2,3,5,7]");
  expect_error(dtype, with({.bias = lengths.view()}), "bias is i64");
  expect_error(shape, with({.bias = f.view()}), "bias has shape [5]", "[2,3,5,7]");
  expect_error(shape, with({.offset = Offset(0), .alibi_slopes = f.view()}),
               "alibi_slopes has shape [5], expected [H] = [3]");
  expect_error(value, with({.sinks = nan.view()}), "sinks[2] is nan");
  expect_error(dtype, with({.key_lengths = three.view()}), "key_lengths is f32");
  expect_error(shape, with({.key_lengths = View(lengths.raw(), DType::i64, {1})}),
               "key_lengths has shape [1], expected [B] = [2]");
  expect_error(value, with({.key_lengths = long_lengths.view()}), "key_lengths[1] is 8, expected 0 to Tk = 7");
}

}  // namespace
}  // namespace attend
