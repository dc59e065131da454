#include "tests/layers/golden.h"
#include "tests/layers/numeric.h"

namespace attend {
namespace {

using test::backward_golden;
using test::expect_close;
using test::expect_error;
using test::expect_same;
using test::Numbers;

View golden(const std::string& entry) {
  return backward_golden().at("self_attention." + entry);
}

SelfAttention golden_layer() {
  const auto linear = [](const std::string& name) { return Linear(golden(name + ".weight"), golden(name + ".bias")); };
  return SelfAttention(linear("query"), linear("key"), linear("value"));
}

TEST(SelfAttentionBackward, EqualsTorch) {
  const SelfAttention layer = golden_layer();
  const View x = golden("x"), dcontext = golden("doutput");
  SelfAttentionState state;
  const Tensor context = layer.forward(x, {.causal = true}, state);
  expect_same(context, layer.forward(x, {.causal = true}));
  expect_same(context, state.context);
  const SelfAttentionGradients out = layer.backward(dcontext, x, state, {.causal = true});
  // As for MultiHeadAttention: three times the forward's 5e-7.
  expect_close(out.dx, golden("dx"), 1.5e-6);
  const std::pair<const char*, const LinearGradients&> parts[] = {
      {"query", out.query}, {"key", out.key}, {"value", out.value}};
  for (const auto& [name, gradients] : parts) {
    expect_close(gradients.dweight, golden(std::string("d") + name + ".weight"), 1.5e-6, name);
    // Sums over rows, which cancel: twice that. Of a key's bias all cancels: it adds the same to all scores of a row.
    if (name == std::string("key")) {
      for (int i = 0; i < 5; ++i) EXPECT_NEAR(gradients.dbias->item({i}), 0, 2e-6);
    } else {
      expect_close(*gradients.dbias, golden(std::string("d") + name + ".bias"), 3e-6, name);
    }
  }
  // One item of the batch by itself, without the axis B.
  SelfAttentionState one;
  layer.forward(x.select(0, 1), {.causal = true}, one);
  expect_same(layer.backward(dcontext.select(0, 1), x.select(0, 1), one, {.causal = true}).dx,
              out.dx.view().select(0, 1));
}

TEST(SelfAttentionBackward, OptionsAndTheirGradients) {
  Generator generator(3);
  const SelfAttention layer(4, 3, 5, generator, {.qkv_bias = true});
  Numbers numbers;
  numbers.add("x", generator.randn({2, 6, 4}));
  numbers.add("q", layer.query().weight()), numbers.add("qb", *layer.query().bias());
  numbers.add("k", layer.key().weight()), numbers.add("kb", *layer.key().bias());
  numbers.add("v", layer.value().weight()), numbers.add("vb", *layer.value().bias());
  numbers.add("sinks", Tensor::from({1}, {0.5f})), numbers.add("slopes", Tensor::from({1}, {0.25f}));
  numbers.add("bias", generator.randn({6, 6}));
  const Tensor dcontext = generator.randn({2, 6, 5}), dlse = generator.randn({2, 6});
  const auto options_of = [](const TensorMap& at) {
    return AttentionOptions{.window = {2, 1},
                            .bias = at.at("bias"),
                            .alibi_slopes = at.at("slopes"),
                            .sinks = at.at("sinks"),
                            .softcap = 2,
                            .dropout = {0.3, 5}};
  };
  const TensorMap expected = numbers.gradients([&](const TensorMap& at) {
    const auto head = [&](const char* weight, const char* bias) {
      return test::insert_head(test::linear(at.at("x"), at.at(weight), at.at(bias)));
    };
    const Tensor q = head("q", "qb"), k = head("k", "kb"), v = head("v", "vb");
    const AttentionResult result = attention(q, k, v, options_of(at));
    return test::dot(result.out, dcontext) + test::dot(result.lse, dlse);
  });
  const View x = numbers.single.at("x");
  SelfAttentionState state;
  layer.forward(x, options_of(numbers.single), state);
  const BackwardOptions wanted{.dlse = dlse, .dbias = true, .dalibi_slopes = true, .dsinks = true};
  const SelfAttentionGradients out = layer.backward(dcontext, x, state, options_of(numbers.single), wanted);
  const auto compare = [&](const char* name, const View& gradient) {
    expect_close(gradient, expected.at(name), test::of_differences, name);
  };
  compare("x", out.dx);
  compare("q", out.query.dweight), compare("qb", *out.query.dbias);
  compare("k", out.key.dweight), compare("kb", *out.key.dbias);
  compare("v", out.value.dweight), compare("vb", *out.value.dbias);
  compare("sinks", *out.dsinks), compare("slopes", *out.dalibi_slopes), compare("bias", *out.dbias);
}

TEST(SelfAttentionBackward, BF16Layers) {
  Generator generator(4);
  const SelfAttention wide(8, 4, 6, generator);
  const SelfAttention narrow = wide.to(DType::bf16);
  EXPECT_EQ(narrow.dtype(), DType::bf16);
  const Tensor x = generator.randn({2, 5, 8}), dcontext = generator.randn({2, 5, 6});
  SelfAttentionState state, narrow_state;
  wide.forward(x, {}, state);
  narrow.forward(x, {}, narrow_state);
  const SelfAttentionGradients expected = wide.backward(dcontext, x, state);
  const SelfAttentionGradients out = narrow.backward(dcontext, x, narrow_state);
  EXPECT_EQ(out.dx.dtype(), DType::bf16);
  EXPECT_EQ(out.query.dweight.dtype(), DType::f32);
  // Some ten roundings to 8 bits behind each other.
  expect_close(out.dx, expected.dx, 10 * 0x1p-8);
  expect_close(out.query.dweight, expected.query.dweight, 10 * 0x1p-8);
  expect_close(out.value.dweight, expected.value.dweight, 10 * 0x1p-8);
}

TEST(SelfAttentionBackward, Errors) {
  const SelfAttention layer = golden_layer();
  const View x = golden("x"), dcontext = golden("doutput");
  SelfAttentionState state;
  layer.forward(x, {}, state);
  expect_error(
      ErrorCode::bad_shape,
      [&] {
        layer.backward(Tensor({2, 7, 5}), x, state);
      },
      "SelfAttention: dcontext has shape [2,7,5], expected [2,7,4]");
  expect_error(
      ErrorCode::bad_shape, [&] { layer.backward(dcontext, x, {}); },
      "SelfAttention: state.queries has shape [0], expected [2,7,5]");
  expect_error(
      ErrorCode::bad_dtype, [&] { layer.backward(dcontext.to(DType::i64), x, state); }, "dcontext is i64");
  expect_error(
      ErrorCode::bad_value, [&] { layer.backward(dcontext, x, state, {}, {.dsinks = true}); }, "dsinks is wanted");
}

}  // namespace
}  // namespace attend
