// Norms, activations and rotary positions: PyTorch's and Transformers' numbers (make_transformer_rows_golden.py), every
// dtype, odd sizes, the same bits for any threads, and errors.
#include "attend/layers.h"
#include "tests/expect.h"
#include "tests/threads_at_most.h"

namespace attend {
namespace {

using namespace test;

const TensorMap& golden_rows() {
  static const TensorMap tensors = read_safetensors(data("golden/transformer_rows.safetensors")).tensors;
  return tensors;
}

View golden(const std::string& name) {
  return golden_rows().at(name);
}

// Every element within a part of its own magnitude, or of `least` where that is more.
void expect_near_each(const View& actual, const View& expected, double part, double least, const std::string& what) {
  ASSERT_EQ(actual.shape().str(), expected.shape().str()) << what;
  const Tensor a = actual.to(DType::f64), e = expected.to(DType::f64);
  for (std::int64_t i = 0; i < e.count(); ++i) {
    const double x = a.data<double>()[i], y = e.data<double>()[i];
    EXPECT_NEAR(x, y, part * std::max(std::abs(y), least)) << what << " element " << i;
  }
}

TEST(Norms, ArePyTorchs) {
  const View x = golden("x");
  const LayerNorm layer(golden("weight"), golden("bias"), 1e-5), bare(golden("weight"), std::nullopt, 1e-5);
  const RmsNorm rms(golden("weight"), 1e-6);
  expect_near_each(layer.forward(x), golden("layer_norm"), 1e-6, 1, "LayerNorm");
  expect_near_each(bare.forward(x), golden("layer_norm_no_bias"), 1e-6, 1, "LayerNorm without bias");
  expect_near_each(rms.forward(x), golden("rms_norm"), 1e-6, 1, "RmsNorm");
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const std::string what(name_of(dtype));
    const Tensor rounded = x.select(0, 0).to(dtype);  // a row that fits
    expect_same(layer.forward(rounded, dtype), layer.forward(rounded.view().to(DType::f32)).view().to(dtype), what);
    expect_same(rms.forward(rounded, dtype), rms.forward(rounded.view().to(DType::f32)).view().to(dtype), what);
  }
  const Tensor columns = x.transpose(0, 1).clone();
  expect_same(layer.forward(columns.view().transpose(0, 1)), layer.forward(x), "strided");
}

TEST(Norms, OfEverySizeAreThoseOfTheirRows) {
  for (const std::int64_t size : {1, 2, 3, 15, 16, 17, 255, 256, 257, 513, 1000}) {
    const Tensor x = Generator(7).normal({90, size}, 2, 3), weight = Generator(8).normal({size}, 1, 1);
    const LayerNorm layer(weight, weight);
    const Tensor all = layer.forward(x);
    for (const std::int64_t row : {0, 1, 89}) {
      expect_same(all.view().select(0, row), layer.forward(x.view().select(0, row)), std::to_string(size));
      double mean = 0, squares = 0;
      for (std::int64_t i = 0; i < size; ++i) mean += x.item({row, i}) / static_cast<double>(size);
      for (std::int64_t i = 0; i < size; ++i) squares += std::pow(x.item({row, i}) - mean, 2);
      const double factor = 1 / std::sqrt(squares / static_cast<double>(size) + 1e-5);
      for (std::int64_t i = 0; i < size; ++i) {
        const double w = weight.item({i});
        EXPECT_NEAR(all.item({row, i}), (x.item({row, i}) - mean) * factor * w + w, 1e-5 * (1 + std::abs(w))) << size;
      }
    }
  }
}

TEST(Activations, ArePyTorchs) {
  const std::pair<Activation, std::string> all[] = {
      {Activation::linear, "linear"},
      {Activation::relu, "relu"},
      {Activation::relu6, "relu6"},
      {Activation::relu_squared, "relu2"},
      {Activation::leaky_relu, "leaky_relu"},
      {Activation::gelu, "gelu"},
      {Activation::gelu_tanh, "gelu_pytorch_tanh"},
      {Activation::gelu_quick, "quick_gelu"},
      {Activation::gelu_10, "gelu_10"},
      {Activation::silu, "silu"},
      {Activation::hardswish, "hardswish"},
      {Activation::mish, "mish"},
      {Activation::sigmoid, "sigmoid"},
      {Activation::tanh, "tanh"},
      {Activation::laplace, "laplace"},
      {Activation::sqrt_softplus, "sqrtsoftplus"},
  };
  for (const auto& [f, name] : all) {
    Tensor x = golden("line").clone();
    activate(f, x.view());
    // Of the result itself: far below 0 it is small, and right there too. Not below 1e-8, where 1 + tanh has lost what
    // PyTorch's f64 could know.
    expect_near_each(x, golden(name), 4e-6, 1e-8, name);
    Tensor gate = Generator(3).normal({401}, 0, 1), gated = golden("line").clone();
    activate(f, gated.view(), gate);
    for (std::int64_t i = 0; i < 401; ++i)
      EXPECT_EQ(gated.data<float>()[i], x.data<float>()[i] * gate.data<float>()[i]);
    Tensor half = golden("line").to(DType::bf16), wide = half.view().to(DType::f32);
    activate(f, half.view()), activate(f, wide.view());
    expect_same(half, wide.view().to(DType::bf16), name);
    Tensor nan = Tensor::from({3}, {NAN, 1, -1});
    activate(f, nan.view());
    EXPECT_TRUE(std::isnan(nan.item({0}))) << name;
  }
}

TEST(Rotary, AnglesAreThoseOfTransformers) {
  const View given = golden("positions");
  const std::vector<std::int64_t> positions(given.data<std::int64_t>(), given.data<std::int64_t>() + given.count());
  RotaryOptions theta{.theta = 500000}, linear{.scaling = RotaryScaling::linear, .factor = 4}, llama3 = theta;
  llama3.scaling = RotaryScaling::llama3, llama3.factor = 8, llama3.original_length = 64;
  RotaryOptions yarn{.scaling = RotaryScaling::yarn, .factor = 4, .original_length = 64}, exact = yarn;
  exact.beta_fast = 16, exact.beta_slow = 2, exact.attention_factor = 1.5, exact.truncate = false;
  const std::pair<std::string, RotaryOptions> all[] = {{"plain", {}},      {"theta", theta}, {"linear", linear},
                                                       {"llama3", llama3}, {"yarn", yarn},   {"yarn_exact", exact}};
  for (const auto& [name, options] : all) {
    const RotaryAngles angles = RotaryEmbedding(16, options).angles(positions);
    // A frequency may round the other way: 2^-24 of an angle of up to 4,000.
    expect_near_each(angles.cos, golden("rotary." + name + ".cos"), 5e-4, 1, name);
    expect_near_each(angles.sin, golden("rotary." + name + ".sin"), 5e-4, 1, name);
  }
  Tensor heads = golden("heads").clone();
  RotaryEmbedding::rotate(heads.view(), RotaryEmbedding(16).angles(positions));
  expect_near_each(heads, golden("rotated"), 1e-6, 3, "rotated");
}

// The frequencies of longrope are those for each sequence's own last position.
TEST(Rotary, LongTextsHaveFrequenciesOfTheirOwn) {
  const std::vector<std::int64_t> positions{0, 1, 2, 3, 0, 1, 4, 2}, starts{0, 4, 7, 8};
  RotaryOptions options{.scaling = RotaryScaling::longrope, .factor = 4, .original_length = 4};
  options.short_factors.assign(8, 1), options.long_factors.assign(8, 4);
  options.attention_factor = 1;
  const RotaryEmbedding rotary(16, options);
  const RotaryAngles plain = RotaryEmbedding(16).angles(positions), together = rotary.angles(positions, starts);
  const RotaryAngles divided = RotaryEmbedding(16, {.scaling = RotaryScaling::linear, .factor = 4}).angles(positions);
  const auto part = [](const Tensor& of, std::size_t begin, std::size_t end) {
    return of.view().slice(0, static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end));
  };
  for (std::size_t s = 0; s < 3; ++s) {
    const std::size_t begin = s == 0 ? 0 : s == 1 ? 4 : 7, end = s == 0 ? 4 : s == 1 ? 7 : 8;
    const RotaryAngles& expected = s == 1 ? divided : plain;
    expect_same(part(together.cos, begin, end), part(expected.cos, begin, end));
    expect_same(part(together.sin, begin, end), part(expected.sin, begin, end));
    const RotaryAngles alone = rotary.angles(std::span(positions).subspan(begin, end - begin));
    expect_same(alone.cos, part(expected.cos, begin, end));
  }
  EXPECT_EQ(rotary.angles({}).cos.count(), 0);
  options.attention_factor.reset();
  const double factor = std::sqrt(1 + std::log(4.) / std::log(4.));
  EXPECT_NEAR(RotaryEmbedding(16, options).angles(std::vector<std::int64_t>{0}).cos.item({0, 0}), factor, 1e-6);
}

TEST(Rotary, LeavesWhatOfAHeadIsBeyondItsSize) {
  const std::vector<std::int64_t> positions{5, 900};
  const Tensor all = Generator(1).normal({2, 3, 20}, 0, 1);
  Tensor heads = all.clone(), first = all.view().slice(2, 0, 6).clone();
  const RotaryAngles angles = RotaryEmbedding(6).angles(positions);
  RotaryEmbedding::rotate(heads.view(), angles);
  RotaryEmbedding::rotate(first.view(), angles);
  expect_same(heads.view().slice(2, 0, 6), first);
  expect_same(heads.view().slice(2, 6, 20), all.view().slice(2, 6, 20));
  expect_error(
      ErrorCode::bad_shape, [&] { RotaryEmbedding::rotate(heads.view().slice(2, 0, 4), angles); }, "D from 6");
}

TEST(Rotary, TurnsPartsOfRowsInPlace) {
  const std::vector<std::int64_t> positions{5, 6, 900};
  for (const std::int64_t half : {1, 7, 16, 33, 300}) {
    const Tensor all = Generator(1).normal({3, 2, 4 * half}, 0, 1);
    const RotaryAngles angles = RotaryEmbedding(2 * half).angles(positions);
    Tensor wide = all.clone(), packed = all.view().slice(2, half, 3 * half).clone();
    RotaryEmbedding::rotate(wide.view().slice(2, half, 3 * half), angles);
    RotaryEmbedding::rotate(packed.view(), angles);
    expect_same(wide.view().slice(2, half, 3 * half), packed);
    expect_same(wide.view().slice(2, 0, half), all.view().slice(2, 0, half));
    expect_same(wide.view().slice(2, 3 * half, 4 * half), all.view().slice(2, 3 * half, 4 * half));
    for (std::int64_t i = 0; i < half; ++i) {
      const double a = all.item({2, 1, half + i}), b = all.item({2, 1, 2 * half + i});
      const double c = angles.cos.item({2, i}), s = angles.sin.item({2, i});
      EXPECT_NEAR(packed.item({2, 1, i}), a * c - b * s, 1e-6 * (std::abs(a) + std::abs(b)));
      EXPECT_NEAR(packed.item({2, 1, half + i}), b * c + a * s, 1e-6 * (std::abs(a) + std::abs(b)));
    }
  }
}

// sum dy y of a small step along d, beside dx . d: of layers as they stand, in any dtype and order of x.
TEST(TransformerRows, InputGradientsAreTheirSlopes) {
  const Tensor x = Generator(2).normal({7, 33}, 0, 1), dy = Generator(3).normal({7, 33}, 0, 1);
  const Tensor weight = Generator(4).normal({33}, 1, 1), along = Generator(5).normal({7, 33}, 0, 1);
  const auto slope = [&](const auto& norm) {
    double sums[2] = {};
    for (const int side : {0, 1}) {
      Tensor moved = x.clone();
      for (std::int64_t i = 0; i < x.count(); ++i)
        moved.data<float>()[i] += (side == 0 ? -0x1p-7f : 0x1p-7f) * along.data<float>()[i];
      const Tensor y = norm.forward(moved);
      for (std::int64_t i = 0; i < x.count(); ++i)
        sums[side] += double(y.data<float>()[i]) * double(dy.data<float>()[i]);
    }
    return (sums[1] - sums[0]) / 0x1p-6;
  };
  const auto product = [&](const Tensor& dx) {
    double sum = 0;
    for (std::int64_t i = 0; i < x.count(); ++i) sum += double(dx.data<float>()[i]) * double(along.data<float>()[i]);
    return sum;
  };
  const LayerNorm layer_norm(weight, weight.view(), 1e-2);
  const RmsNorm rms_norm(weight, 1e-2);
  EXPECT_NEAR(product(layer_norm.input_gradient(dy, x)), slope(layer_norm), 2e-3);
  EXPECT_NEAR(product(rms_norm.input_gradient(dy, x)), slope(rms_norm), 2e-3);
  const Tensor turned = x.view().transpose(0, 1).clone();
  expect_same(rms_norm.input_gradient(dy, turned.view().transpose(0, 1)), rms_norm.input_gradient(dy, x));
  const Tensor narrow = x.view().to(DType::bf16), wide = narrow.view().to(DType::f32);
  expect_same(layer_norm.input_gradient(dy, narrow), layer_norm.input_gradient(dy, wide));
  const ActivationGradients gated = activation_gradient(Activation::silu, dy, x, along.view());
  const ActivationGradients plain = activation_gradient(Activation::silu, dy, x);
  EXPECT_EQ(plain.dgated.count(), 0);
  for (std::int64_t i = 0; i < x.count(); ++i)
    EXPECT_EQ(gated.dx.data<float>()[i], plain.dx.data<float>()[i] * along.data<float>()[i]);
}

// (R x) . y = x . (R^T y), and R^T R x = x where cos and sin are not scaled.
TEST(Rotary, TurnsBack) {
  const std::vector<std::int64_t> positions{5, 6, 900};
  const RotaryAngles angles = RotaryEmbedding(12).angles(positions), back = angles.back();
  const Tensor x = Generator(1).normal({3, 2, 20}, 0, 1);
  Tensor turned = x.clone();
  RotaryEmbedding::rotate(turned.view(), angles);
  RotaryEmbedding::rotate(turned.view(), back);
  for (std::int64_t i = 0; i < x.count(); ++i) EXPECT_NEAR(turned.data<float>()[i], x.data<float>()[i], 1e-5);
}

TEST(TransformerRows, HaveTheSameBitsForAnyThreads) {
  const Tensor x = Generator(2).normal({300, 700}, 0, 2), weight = Generator(3).normal({700}, 1, 1);
  const auto with = [&](int threads) {
    const test::ThreadsAtMost limit(threads);
    Tensor y = LayerNorm(weight).forward(x);
    activate(Activation::gelu, y.view(), x);
    RotaryEmbedding::rotate(y.view().reshape({300, 7, 100}),
                            RotaryEmbedding(100).angles(std::vector<std::int64_t>(300, 17)));
    return y;
  };
  const Tensor one = with(1);
  for (const int threads : {2, 3, 7}) expect_same(with(threads), one, std::to_string(threads));
}

TEST(TransformerRows, SayWhatIsWrong) {
  const Tensor four({4}), square({4, 4}), whole({4}, DType::i64), wide({4}, DType::f64);
  expect_error(
      ErrorCode::bad_shape, [&] { LayerNorm(square.view()); }, "weight has shape [4,4], expected [E]");
  expect_error(
      ErrorCode::bad_shape, [&] { LayerNorm(four.view(), Tensor({3}).view()); }, "bias has shape [3]");
  expect_error(
      ErrorCode::bad_dtype, [&] { RmsNorm(whole.view()); }, "weight is i64");
  expect_error(
      ErrorCode::bad_value, [&] { RmsNorm(four.view(), -1); }, "eps is -1");
  expect_error(
      ErrorCode::bad_shape,
      [&] {
        RmsNorm(four).forward(Tensor({2, 3}));
      },
      "expected [...,4]");
  expect_error(
      ErrorCode::bad_dtype, [&] { RmsNorm(four).forward(four, DType::i64); }, "y_dtype is i64");
  Tensor x({4, 4}), doubles({4}, DType::f64);
  expect_error(
      ErrorCode::bad_shape, [&] { RmsNorm(four).input_gradient(x, four); }, "dy has shape [4,4], expected [4]");
  expect_error(
      ErrorCode::bad_shape,
      [&] {
        LayerNorm(four).input_gradient(x, Tensor({2, 3}));
      },
      "expected [...,4]");
  expect_error(
      ErrorCode::bad_shape, [&] { activation_gradient(Activation::silu, x, four); },
      "dy has shape [4,4], expected [4]");
  expect_error(
      ErrorCode::bad_dtype, [&] { activation_gradient(Activation::silu, doubles, doubles); }, "x is f64");
  expect_error(
      ErrorCode::bad_shape, [&] { activate(Activation::silu, x.view().transpose(0, 1)); }, "row-major");
  expect_error(
      ErrorCode::bad_shape, [&] { activate(Activation::silu, x.view(), four); }, "gated has shape [4]");
  expect_error(
      ErrorCode::bad_dtype, [&] { activate(Activation::silu, doubles.view()); }, "x is f64");
  expect_error(
      ErrorCode::bad_value, [&] { RotaryEmbedding(3); }, "rotary_size is 3");
  expect_error(
      ErrorCode::bad_value, [&] { RotaryEmbedding(4, {.theta = 0}); }, "theta is 0");
  expect_error(
      ErrorCode::bad_value, [&] { RotaryEmbedding(4, {.scaling = RotaryScaling::yarn}); }, "original_length");
  RotaryOptions longrope{.scaling = RotaryScaling::longrope, .original_length = 4};
  longrope.short_factors = {1, 1}, longrope.long_factors = {1};
  expect_error(
      ErrorCode::bad_value, [&] { RotaryEmbedding(4, longrope); }, "long_factors are 1 numbers, expected 2");
  longrope.long_factors = {1, 0};
  expect_error(
      ErrorCode::bad_value, [&] { RotaryEmbedding(4, longrope); }, "long_factors is 0");
  const RotaryAngles angles = RotaryEmbedding(4).angles(std::vector<std::int64_t>{0, 1});
  expect_error(
      ErrorCode::bad_shape, [&] { RotaryEmbedding::rotate(x.view(), angles); }, "expected [2,H,D], D from 4");
}

}  // namespace
}  // namespace attend
