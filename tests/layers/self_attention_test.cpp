#include "tests/expect.h"

namespace attend {
namespace {

using test::expect_close;
using test::expect_error;
using test::expect_same;

const TensorMap& document_001() {
  static const TensorMap tensors = read_npz(test::data("golden/document_001.npz"));
  return tensors;
}

TEST(SelfAttention, BareParametersAsInDocument001) {
  const TensorMap& document = document_001();
  const SelfAttention layer =
      SelfAttention::from_parameters(document.at("W_query"), document.at("W_key"), document.at("W_value"));
  expect_close(layer.query().forward(document.at("inputs")), document.at("queries"), 5e-7);
  expect_close(layer.key().forward(document.at("inputs")), document.at("keys"), 5e-7);
  expect_close(layer.value().forward(document.at("inputs")), document.at("values"), 5e-7);
  expect_close(layer.forward(document.at("inputs")), document.at("context_vec"), 1e-6);
}

TEST(SelfAttention, LinearLayersAsInDocument001) {
  const TensorMap& document = document_001();
  const SelfAttention layer(Linear(document.at("v2.W_query")), Linear(document.at("v2.W_key")),
                            Linear(document.at("v2.W_value")));
  expect_close(layer.forward(document.at("inputs")), document.at("v2.context_vec"), 1e-6);

  // Drawn after the three bare parameters.
  Generator generator(123);
  for (int parameter = 0; parameter < 3; ++parameter) generator.rand({3, 2});
  const SelfAttention drawn(3, 2, 2, generator);
  expect_same(drawn.query().weight(), document.at("v2.W_query"));
  expect_same(drawn.key().weight(), document.at("v2.W_key"));
  expect_same(drawn.value().weight(), document.at("v2.W_value"));
}

TEST(SelfAttention, DrawsQueryKeyValueInThatOrder) {
  Generator generator(42);
  const SelfAttention layer(5, 3, 7, generator, {.qkv_bias = true});
  Generator again(42);
  const Linear query(5, 3, again), key(5, 3, again), value(5, 7, again);
  expect_same(layer.query().weight(), query.weight());
  expect_same(*layer.key().bias(), *key.bias());
  expect_same(layer.value().weight(), value.weight());
  expect_same(*layer.value().bias(), *value.bias());
  EXPECT_FALSE(SelfAttention(5, 3, 7, generator).query().bias());
}

TEST(SelfAttention, ABatchIsItsItemsOneByOne) {
  Generator generator(1);
  const SelfAttention layer(6, 4, 3, generator);
  const Tensor x = generator.randn({3, 5, 6});
  Tensor lengths({3}, DType::i64);
  for (int b = 0; b < 3; ++b) lengths.data<std::int64_t>()[b] = 5 - b;
  const Tensor whole = layer.forward(x, {.causal = true, .key_lengths = lengths});
  ASSERT_EQ(whole.shape(), Dims({3, 5, 3}));
  for (int b = 0; b < 3; ++b) {
    const AttentionOptions options{.causal = true, .key_lengths = lengths.view().slice(0, b, b + 1)};
    expect_same(whole.view().select(0, b), layer.forward(x.view().select(0, b), options));
  }
}

TEST(SelfAttention, Errors) {
  const auto linear = [](std::int64_t out, std::int64_t in) { return Linear(Tensor({out, in})); };
  const SelfAttention layer(linear(2, 6), linear(2, 6), linear(5, 6));
  expect_error(
      ErrorCode::bad_shape, [&] { layer.forward(Tensor({6})); }, "SelfAttention: x has shape [6]");
  expect_error(
      ErrorCode::bad_shape,
      [&] {
        layer.forward(Tensor({3, 4, 7}));
      },
      "SelfAttention: x has 7 features (x [3,4,7]), the layer takes 6");
  expect_error(
      ErrorCode::bad_shape, [&] { SelfAttention(linear(2, 6), linear(3, 6), linear(5, 6)); },
      "key makes 3 features, query 2");
  expect_error(
      ErrorCode::bad_shape, [&] { SelfAttention(linear(2, 6), linear(2, 6), linear(5, 7)); }, "6, 6 and 7");
  expect_error(
      ErrorCode::bad_dtype, [&] { SelfAttention(linear(2, 6), linear(2, 6).to(DType::bf16), linear(5, 6)); },
      "f32, bf16 and f32, expected one dtype");
  expect_error(
      ErrorCode::bad_shape,
      [&] {
        SelfAttention::from_parameters(Tensor({2, 3}), Tensor({2}), Tensor({2, 3}));
      },
      "w_key has shape [2]", "[E,D]");
}

}  // namespace
}  // namespace attend
