#include <climits>
#include <cmath>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "tests/layers/golden.h"
#include "tests/layers/numeric.h"
#include "tests/threads_at_most.h"

namespace attend {
namespace {

using test::backward_golden;
using test::expect_close;
using test::expect_error;
using test::expect_same;
using test::golden;
using test::golden_if_any;
using test::Numbers;

class MultiHeadAttentionBackwardEqualsTorch : public testing::TestWithParam<const char*> {};

// A case of the golden data. Of self-attention, key and value are the query.
struct Case {
  explicit Case(const std::string& of) : name(of) {
    call.key_padding_mask = golden_if_any(name + ".key_padding_mask");
    call.attn_mask = golden_if_any(name + ".attn_mask");
  }

  static MultiHeadAttention layer_of(const std::string& name) {
    const std::set<std::string> with_zeros = {"zero_attention", "bias_kv_and_zero", "everything", "everything_float"};
    return MultiHeadAttention::from_state_dict(test::layers_golden(), name == "one_head" ? 1 : 5,
                                               {.zero_attention = with_zeros.contains(name)}, name + ".layer.");
  }

  std::string name;
  MultiHeadAttention layer = layer_of(name);
  bool crosses = golden_if_any(name + ".key").has_value();
  View query = golden(name + ".query"), key = golden_if_any(name + ".key").value_or(query),
       value = golden_if_any(name + ".value").value_or(key), doutput = backward_golden().at(name + ".doutput");
  MultiHeadAttentionCall call = {};
};

TEST_P(MultiHeadAttentionBackwardEqualsTorch, EveryGradient) {
  const Case c(GetParam());
  const MultiHeadAttention& layer = c.layer;
  const MultiHeadAttentionCall& call = c.call;
  const auto floating = [](const std::optional<View>& mask) { return mask && is_floating(mask->dtype()); };
  const MultiHeadAttentionBackward wanted{.key_padding_mask = floating(call.key_padding_mask),
                                          .attn_mask = floating(call.attn_mask)};
  MultiHeadAttentionState state;
  const MultiHeadAttentionResult result =
      c.crosses ? layer.forward(c.query, c.key, c.value, call, state) : layer.forward(c.query, call, state);
  expect_same(result.output,
              (c.crosses ? layer.forward(c.query, c.key, c.value, call) : layer.forward(c.query, call)).output);
  const MultiHeadAttentionGradients out = c.crosses
                                              ? layer.backward(c.doutput, c.query, c.key, c.value, state, call, wanted)
                                              : layer.backward(c.doutput, c.query, state, call, wanted);

  std::size_t compared = 1;  // doutput
  const auto compare = [&](const std::string& entry, const View& gradient) {
    // Forward and backward in f32, some ten roundings behind each other, against f64; FlashAttention's rule allows
    // three times the forward's 5e-7.
    expect_close(gradient, backward_golden().at(c.name + "." + entry), 1.5e-6, entry);
    ++compared;
  };
  compare("dquery", out.dquery);
  if (c.crosses) compare("dkey", out.dkey);
  if (c.crosses) compare("dvalue", out.dvalue);
  if (wanted.key_padding_mask) compare("dkey_padding_mask", *out.dkey_padding_mask);
  if (wanted.attn_mask) compare("dattn_mask", *out.dattn_mask);
  for (const auto& [entry, gradient] : out.parameters) compare("dlayer." + entry, gradient);
  std::size_t expected = 0;
  for (const auto& [entry, tensor] : backward_golden()) expected += entry.starts_with(c.name + ".");
  EXPECT_EQ(compared, expected);
}

// Of truth in f64, no farther than three times torch's own gradients in bf16, and the roundings of a gradient that
// comes through three layers.
TEST_P(MultiHeadAttentionBackwardEqualsTorch, InBF16) {
  const Case c(GetParam());
  const MultiHeadAttention layer = c.layer.to(DType::bf16);
  MultiHeadAttentionState state;
  layer.forward(c.query, c.key, c.value, c.call, state);
  const MultiHeadAttentionGradients out = layer.backward(c.doutput, c.query, c.key, c.value, state, c.call);
  EXPECT_EQ(out.dquery.dtype(), DType::bf16);
  const auto compare = [&](const std::string& entry, const View& gradient) {
    const View truth = backward_golden().at(c.name + "." + entry);
    const double theirs = test::relative_error(backward_golden().at("bf16." + c.name + "." + entry), truth);
    expect_close(gradient, truth, 3 * theirs + 2 * 0x1p-8, entry);
  };
  if (c.crosses) compare("dquery", out.dquery), compare("dkey", out.dkey);
  for (const auto& [entry, gradient] : out.parameters) compare("dlayer." + entry, gradient);
}

INSTANTIATE_TEST_SUITE_P(Golden, MultiHeadAttentionBackwardEqualsTorch,
                         testing::Values("self", "no_bias", "one_head", "one_token", "unbatched", "unbatched_per_head",
                                         "averaged", "per_head", "causal", "cross", "cross_sizes", "bias_kv",
                                         "bias_kv_sizes", "zero_attention", "bias_kv_and_zero", "padding_bool",
                                         "padding_float", "mask_bool", "mask_float", "mask_bool_3d", "mask_float_3d",
                                         "both_bool", "both_float", "everything", "everything_float"),
                         [](const auto& test_info) { return std::string(test_info.param); });

// Options that torch's layer does not have: a layer in double, made of the reference path of attention() and plain
// loops, gives the gradients by differences.
class MultiHeadAttentionBackwardOptions : public testing::Test {
 protected:
  // The call's own tensors at numbers `at`; attention's and the layer's own keys as the test says.
  struct Case {
    MultiHeadAttentionOptions layer;
    std::int64_t Tk = 5;
    std::function<MultiHeadAttentionCall(const TensorMap& at)> call;
    MultiHeadAttentionBackward wanted = {};
    // The same in double: AttentionOptions of the reference, over all keys Tk'.
    std::function<AttentionOptions(const TensorMap& at)> reference;
  };

  static constexpr std::int64_t B = 2, Tq = 4, E = 6, heads = 2;

  void check(const Case& c) {
    Generator generator(9);
    const MultiHeadAttention layer(E, heads, generator, c.layer);
    for (const auto& [name, tensor] : layer.state_dict()) {
      numbers.add(name, tensor.rank() == 1 ? generator.randn(tensor.shape()) : tensor.clone());
    }
    const std::int64_t key_size = c.layer.key_size ? c.layer.key_size : E;
    const std::int64_t value_size = c.layer.value_size ? c.layer.value_size : E;
    numbers.add("query", generator.randn({B, Tq, E}));
    numbers.add("key", generator.randn({B, c.Tk, key_size}));
    numbers.add("value", generator.randn({B, c.Tk, value_size}));
    const std::int64_t d_v = c.layer.d_v ? c.layer.d_v : E / heads;
    const Tensor doutput = generator.randn({B, Tq, c.layer.output_projection ? E : heads * d_v});

    const TensorMap expected =
        numbers.gradients([&](const TensorMap& at) { return test::dot(reference(at, c), doutput); });
    TensorMap state;
    for (const auto& [name, tensor] : layer.state_dict()) state[name] = numbers.single[name].clone();
    const MultiHeadAttention same = MultiHeadAttention::from_state_dict(
        state, heads, {.output_projection = c.layer.output_projection, .zero_attention = c.layer.zero_attention});
    const View query = numbers.single["query"], key = numbers.single["key"], value = numbers.single["value"];
    const MultiHeadAttentionCall call = c.call(numbers.single);
    MultiHeadAttentionState kept;
    const Tensor output = same.forward(query, key, value, call, kept).output;
    expect_close(output, reference(numbers.wide, c), 1e-6);
    const MultiHeadAttentionGradients out = same.backward(doutput, query, key, value, kept, call, c.wanted);
    std::set<std::string> compared;
    const auto compare = [&](const std::string& name, const View& gradient) {
      expect_close(gradient, expected.at(name), test::of_differences, name);
      compared.insert(name);
    };
    compare("query", out.dquery), compare("key", out.dkey), compare("value", out.dvalue);
    for (const auto& [name, gradient] : out.parameters) compare(name, gradient);
    const std::pair<const char*, const std::optional<Tensor>&> options[] = {
        {"key_padding_mask", out.dkey_padding_mask}, {"attn_mask", out.dattn_mask},       {"bias", out.dbias},
        {"distance_bias", out.ddistance_bias},       {"alibi_slopes", out.dalibi_slopes}, {"sinks", out.dsinks}};
    for (const auto& [name, gradient] : options) {
      if (gradient) compare(name, *gradient);
    }
    for (const auto& [name, gradient] : expected) EXPECT_TRUE(compared.contains(name)) << name;
  }

  Tensor reference(const TensorMap& at, const Case& c) {
    const auto weight = [&](const char* separate, std::int64_t index) {
      const auto found = at.find(separate);
      if (found != at.end()) return found->second.view();
      return at.at("in_proj_weight").view().slice(0, index * E, (index + 1) * E);
    };
    const View wq = weight("q_proj_weight", 0), wk = weight("k_proj_weight", 1), wv = weight("v_proj_weight", 2);
    const auto bias = [&](std::int64_t first, const View& of) -> std::optional<View> {
      if (!c.layer.bias) return std::nullopt;
      return at.at("in_proj_bias").view().slice(0, first, first + of.size(0));
    };
    const Tensor queries = test::linear(at.at("query"), wq, bias(0, wq));
    const Tensor keys = append(test::linear(at.at("key"), wk, bias(wq.size(0), wk)), at, "bias_k", c);
    const Tensor values = append(test::linear(at.at("value"), wv, bias(2 * wq.size(0), wv)), at, "bias_v", c);
    const auto split = [](const Tensor& x) {
      return x.view().reshape({B, x.size(1), heads, x.size(2) / heads}).transpose(1, 2);
    };
    const Tensor out = attention(split(queries), split(keys), split(values), c.reference(at)).out;
    const Tensor concat = out.view().transpose(1, 2).clone();
    const View rows = concat.view().reshape({B, Tq, heads * out.size(3)});
    if (!c.layer.output_projection) return rows.clone();
    return test::linear(rows, at.at("out_proj.weight"),
                        c.layer.bias ? std::optional<View>(at.at("out_proj.bias")) : std::nullopt);
  }

  static Tensor append(Tensor rows, const TensorMap& at, const char* learned, const Case& c) {
    const std::int64_t T = rows.size(1), N = rows.size(2);
    Tensor out({B, T + c.layer.bias_kv + c.layer.zero_attention, N}, DType::f64);
    out.view().slice(1, 0, T).copy_from(rows);
    if (c.layer.bias_kv) {
      out.view().slice(1, T, T + 1).copy_from(at.at(learned).view().broadcast_to({B, 1, N}));
    }
    return out;
  }

  Numbers numbers;
};

TEST_F(MultiHeadAttentionBackwardOptions, OtherSizesWithoutOutputProjection) {
  check({.layer = {.d_k = 2, .d_v = 5, .key_size = 3, .value_size = 4, .output_projection = false},
         .call = [](const TensorMap&) { return MultiHeadAttentionCall{}; },
         .reference = [](const TensorMap&) { return AttentionOptions{}; }});
}

TEST_F(MultiHeadAttentionBackwardOptions, OtherSizesWithoutBias) {
  check({.layer = {.d_k = 5, .d_v = 2, .bias = false},
         .call = [](const TensorMap&) { return MultiHeadAttentionCall{}; },
         .reference = [](const TensorMap&) { return AttentionOptions{}; }});
}

// All that the call's attention may hold, and every gradient of it.
TEST_F(MultiHeadAttentionBackwardOptions, AttentionOptions) {
  Generator generator(12);
  numbers.add("bias", generator.randn({2, 1, 5}));
  numbers.add("alibi_slopes", Tensor::from({2}, {0.5f, 0.25f}));
  numbers.add("sinks", Tensor::from({2}, {0.5f, -1}));
  Tensor lengths({2}, DType::i64);
  lengths.data<std::int64_t>()[0] = 5, lengths.data<std::int64_t>()[1] = 3;
  const auto options = [&](const TensorMap& at) {
    return attend::AttentionOptions{.scale = 0.7,
                                    .causal = true,
                                    .window = {3, 0},
                                    .offset = Offset::bottom_right(),
                                    .bias = at.at("bias"),
                                    .alibi_slopes = at.at("alibi_slopes"),
                                    .sinks = at.at("sinks"),
                                    .softcap = 2,
                                    .key_lengths = lengths,
                                    .dropout = {0.25, 3}};
  };
  check({.layer = {},
         .call = [&](const TensorMap& at) { return MultiHeadAttentionCall{.attention = options(at)}; },
         .wanted = {.attention = {.dbias = true, .dalibi_slopes = true, .dsinks = true}},
         .reference = options});
}

// Appended keys: positions become a mask and a bias, whose gradient falls to its four parts.
TEST_F(MultiHeadAttentionBackwardOptions, AppendedKeysAndEveryBias) {
  Generator generator(13);
  numbers.add("bias", generator.randn({2, 1, 1, 1}));
  numbers.add("key_padding_mask", generator.randn({2, 5}));
  numbers.add("attn_mask", generator.randn({4, 4, 5}));
  numbers.add("distance_bias", generator.randn({2, 5}));
  numbers.add("alibi_slopes", Tensor::from({2}, {0.5f, 0.25f}));
  numbers.add("sinks", Tensor::from({2}, {0.5f, -1}));
  Tensor visible({1, 1, 4, 7}, DType::boolean), sum({2, 2, 4, 7}, DType::f64);
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 7; ++j) visible.data<bool>()[i * 7 + j] = j <= i + 1 || j >= 5;
  check({.layer = {.bias_kv = true, .zero_attention = true},
         .call =
             [](const TensorMap& at) {
               return MultiHeadAttentionCall{.key_padding_mask = at.at("key_padding_mask"),
                                             .attn_mask = at.at("attn_mask"),
                                             .attention = {.causal = true,
                                                           .offset = Offset::bottom_right(),
                                                           .bias = at.at("bias"),
                                                           .distance_bias = at.at("distance_bias"),
                                                           .alibi_slopes = at.at("alibi_slopes"),
                                                           .sinks = at.at("sinks"),
                                                           .dropout = {0.25, 3}}};
             },
         .wanted = {.key_padding_mask = true,
                    .attn_mask = true,
                    .attention = {.dbias = true, .dalibi_slopes = true, .dsinks = true, .ddistance_bias = true}},
         .reference =
             [&](const TensorMap& at) {
               for (std::int64_t n = 0; n < sum.count(); ++n) {
                 const std::int64_t b = n / 56, h = n / 28 % 2, i = n / 7 % 4, j = n % 7;
                 if (j >= 5) continue;
                 sum.data<double>()[n] =
                     at.at("bias").item({b, 0, 0, 0}) + at.at("key_padding_mask").item({b, j}) +
                     at.at("attn_mask").item({b * 2 + h, i, j}) +
                     at.at("distance_bias").item({h, std::clamp<std::int64_t>(j - i - 1, -2, 2) + 2}) -
                     at.at("alibi_slopes").item({h}) * static_cast<double>(std::abs(i + 1 - j));
               }
               return attend::AttentionOptions{
                   .mask = visible, .bias = sum, .sinks = at.at("sinks"), .dropout = {0.25, 3}};
             }});
}

// A single float mask goes to attention() as it is; one over [Tk] alone is summed over everything else.
TEST_F(MultiHeadAttentionBackwardOptions, OneBias) {
  Generator generator(14);
  numbers.add("bias", generator.randn({5}));
  const auto options = [](const TensorMap& at) { return attend::AttentionOptions{.bias = at.at("bias")}; };
  check({.layer = {},
         .call = [&](const TensorMap& at) { return MultiHeadAttentionCall{.attention = options(at)}; },
         .wanted = {.attention = {.dbias = true}},
         .reference = options});
}

struct Small {
  Generator generator{5};
  MultiHeadAttention layer{12, 3, generator, {.bias_kv = true, .zero_attention = true}};
  Tensor x = generator.randn({2, 4, 12}), key = generator.randn({2, 6, 12}), doutput = generator.randn({2, 4, 12});
};

TEST(MultiHeadAttentionBackward, OfSelfAttentionIsTheSumOfThree) {
  Small s;
  MultiHeadAttentionState state;
  s.layer.forward(s.x, {}, state);
  const MultiHeadAttentionGradients one = s.layer.backward(s.doutput, s.x, state);
  const MultiHeadAttentionGradients three = s.layer.backward(s.doutput, s.x, s.x, s.x, state);
  for (std::int64_t i = 0; i < s.x.count(); ++i) {
    EXPECT_EQ(one.dquery.data<float>()[i],
              three.dquery.data<float>()[i] + three.dkey.data<float>()[i] + three.dvalue.data<float>()[i]);
  }
  EXPECT_EQ(one.dkey.count(), 0);
  EXPECT_EQ(one.parameters.size(), s.layer.state_dict().size());
}

// A batch without its axis B, and doutput in another dtype, strided.
TEST(MultiHeadAttentionBackward, WithoutABatchAndAnyStrides) {
  Small s;
  MultiHeadAttentionState state, one;
  s.layer.forward(s.x.view().slice(0, 1, 2), s.key.view().slice(0, 1, 2), s.key.view().slice(0, 1, 2), {}, state);
  s.layer.forward(s.x.view().select(0, 1), s.key.view().select(0, 1), s.key.view().select(0, 1), {}, one);
  const View last = s.doutput.view().slice(0, 1, 2), key = s.key.view().slice(0, 1, 2);
  const auto batched = s.layer.backward(last, s.x.view().slice(0, 1, 2), key, key, state);
  const Tensor turned = last.select(0, 0).transpose(0, 1).to(DType::f64);
  const auto single =
      s.layer.backward(turned.view().transpose(0, 1), s.x.view().select(0, 1), key.select(0, 0), key.select(0, 0), one);
  expect_same(single.dquery, batched.dquery.view().select(0, 0));
  expect_same(single.dkey, batched.dkey.view().select(0, 0));
  for (const auto& [name, gradient] : batched.parameters) expect_same(single.parameters.at(name), gradient, name);
}

TEST(MultiHeadAttentionBackward, TheSameBitsForAnyNumberOfThreads) {
  Generator generator(6);
  const MultiHeadAttention wide(96, 3, generator);
  const Tensor x = generator.randn({2, 90, 96}), doutput = generator.randn({2, 90, 96});
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const MultiHeadAttention layer = wide.to(dtype);
    std::vector<MultiHeadAttentionGradients> out;
    for (const int threads : {1, INT_MAX}) {
      const test::ThreadsAtMost limit(threads);
      MultiHeadAttentionState state;
      layer.forward(x, {.attention = {.causal = true}}, state);
      out.push_back(layer.backward(doutput, x, state, {.attention = {.causal = true}}));
    }
    expect_same(out[0].dquery, out[1].dquery);
    for (const auto& [name, gradient] : out[0].parameters) expect_same(out[1].parameters.at(name), gradient, name);
  }
}

// A hidden key may hold anything, and gets and gives nothing; a row that sees nothing likewise.
TEST(MultiHeadAttentionBackward, HiddenKeysAndBlindRows) {
  Generator generator(7);
  const MultiHeadAttention layer(12, 3, generator);
  const Tensor x = generator.randn({2, 4, 12}), doutput = generator.randn({2, 4, 12});
  Tensor hidden({2, 4}, DType::boolean);  // true: may not attend
  for (int j = 0; j < 4; ++j) hidden.data<bool>()[j] = true;
  const MultiHeadAttentionCall call{.key_padding_mask = hidden};
  MultiHeadAttentionState state;
  layer.forward(x, call, state);
  const auto out = layer.backward(doutput, x, state, call);
  expect_same(out.dquery.view().select(0, 0), Tensor({4, 12}));
  for (const auto& [name, gradient] : out.parameters) {
    for (std::int64_t i = 0; i < gradient.count(); ++i) ASSERT_TRUE(std::isfinite(gradient.data<float>()[i])) << name;
  }
}

TEST(MultiHeadAttentionBackward, EmptySequences) {
  Small s;
  const Tensor none({2, 0, 12});
  MultiHeadAttentionState state;
  s.layer.forward(s.x, none, none, {}, state);
  const auto out = s.layer.backward(s.doutput, s.x, none, none, state);
  EXPECT_EQ(out.dkey.shape(), Dims({2, 0, 12}));
  expect_same(out.parameters.at("in_proj_weight").view().slice(0, 12, 36), Tensor({24, 12}));
  const Tensor no_batch({0, 3, 12});
  s.layer.forward(no_batch, {}, state);
  expect_same(s.layer.backward(no_batch, no_batch, state).parameters.at("bias_k"), Tensor({1, 1, 12}));
}

TEST(MultiHeadAttentionBackward, Errors) {
  Small s;
  MultiHeadAttentionState state;
  s.layer.forward(s.x, s.key, s.key, {}, state);
  const auto backward = [&](const View& doutput, const MultiHeadAttentionState& kept,
                            const MultiHeadAttentionBackward& wanted, const MultiHeadAttentionCall& call = {}) {
    return s.layer.backward(doutput, s.x, s.key, s.key, kept, call, wanted);
  };
  expect_error(
      ErrorCode::bad_shape,
      [&] {
        backward(Tensor({2, 4, 11}), state, {});
      },
      "MultiHeadAttention: doutput has shape [2,4,11], expected [2,4,12]");
  expect_error(
      ErrorCode::bad_dtype,
      [&] {
        backward(Tensor({2, 4, 12}, DType::u8), state, {});
      },
      "doutput is u8");
  expect_error(
      ErrorCode::bad_shape, [&] { backward(s.doutput, {}, {}); },
      "MultiHeadAttention: state.queries has shape [0], expected [2,4,12]");
  MultiHeadAttentionState other;
  s.layer.forward(s.x, {}, other);
  expect_error(
      ErrorCode::bad_shape, [&] { backward(s.doutput, other, {}); },
      "state.keys has shape [2,6,12], expected [2,8,12]");
  expect_error(
      ErrorCode::bad_value, [&] { backward(s.doutput, state, {.attn_mask = true}); },
      "MultiHeadAttention: dattn_mask is wanted, but attn_mask is not given");
  const Tensor mask({2, 6}, DType::boolean);
  expect_error(
      ErrorCode::bad_value, [&] { backward(s.doutput, state, {.key_padding_mask = true}, {.key_padding_mask = mask}); },
      "dkey_padding_mask is wanted, but key_padding_mask is bool, expected floating point");
  for (const TensorOption& option : tensor_options()) {
    if (!option.wanted) continue;
    MultiHeadAttentionBackward wanted;
    wanted.attention.*option.wanted = true;
    expect_error(
        ErrorCode::bad_value, [&] { backward(s.doutput, state, wanted); }, "d" + std::string(option.name), "is wanted");
  }
  expect_error(
      ErrorCode::bad_value, [&] { backward(s.doutput, state, {.attention = {.dlse = s.x}}); },
      "dlse or lse_low is given");
}

}  // namespace
}  // namespace attend
