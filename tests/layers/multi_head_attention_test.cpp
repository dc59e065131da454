#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "tests/layers/golden.h"

namespace attend {
namespace {

using test::drawn;
using test::expect_close;
using test::expect_error;
using test::expect_same;
using test::golden;
using test::golden_if_any;
using Weights = MultiHeadAttentionCall::Weights;

// Without weights asked for, the heads of one batch item are computed in f32 thrice rounded: projections, context,
// output. Against the f64 truth that leaves 1 ulp of the largest term or two.
constexpr double of_truth = 5e-7;
constexpr double of_torch = 1e-6;

std::int64_t heads_of(const std::string& name) {
  return name == "one_head" ? 1 : 5;
}

MultiHeadAttention golden_layer(const std::string& name) {
  const std::set<std::string> with_zeros = {"zero_attention", "bias_kv_and_zero", "everything", "everything_float"};
  return MultiHeadAttention::from_state_dict(test::layers_golden(), heads_of(name),
                                             {.zero_attention = with_zeros.contains(name)}, name + ".layer.");
}

struct Inputs {
  View query, key, value;
  MultiHeadAttentionCall call;
};

Inputs golden_inputs(const std::string& name) {
  const View query = golden(name + ".query");
  const View key = golden_if_any(name + ".key").value_or(query);
  Inputs out{query, key, golden_if_any(name + ".value").value_or(key), {}};
  out.call.key_padding_mask = golden_if_any(name + ".key_padding_mask");
  out.call.attn_mask = golden_if_any(name + ".attn_mask");
  if (const auto weights = golden_if_any(name + ".weights")) {
    out.call.weights = weights->rank() > query.rank() ? Weights::per_head : Weights::averaged;
  }
  return out;
}

class MultiHeadAttentionEqualsTorch : public testing::TestWithParam<const char*> {};

TEST_P(MultiHeadAttentionEqualsTorch, OutputAndWeights) {
  const std::string name = GetParam();
  const MultiHeadAttention layer = golden_layer(name);
  Inputs in = golden_inputs(name);
  const MultiHeadAttentionResult result = layer.forward(in.query, in.key, in.value, in.call);
  expect_close(result.output, golden(name + ".output"), of_torch);
  expect_close(result.output, golden(name + ".output_f64"), of_truth);
  ASSERT_EQ(result.weights.has_value(), in.call.weights != Weights::none);
  if (result.weights) expect_close(*result.weights, golden(name + ".weights"), of_torch);
  // The path without weights and the one with them agree.
  in.call.weights = in.call.weights == Weights::none ? Weights::per_head : Weights::none;
  expect_same(layer.forward(in.query, in.key, in.value, in.call).output, result.output);
}

INSTANTIATE_TEST_SUITE_P(Golden, MultiHeadAttentionEqualsTorch,
                         testing::Values("self", "no_bias", "one_head", "one_token", "unbatched", "unbatched_per_head",
                                         "averaged", "per_head", "causal", "cross", "cross_sizes", "bias_kv",
                                         "bias_kv_sizes", "zero_attention", "bias_kv_and_zero", "padding_bool",
                                         "padding_float", "mask_bool", "mask_float", "mask_bool_3d", "mask_float_3d",
                                         "both_bool", "both_float", "everything", "everything_float"),
                         [](const auto& test_info) { return std::string(test_info.param); });

// Of truth in f64, no farther than twice torch's own layer in bf16, and the rounding of the result.
TEST_P(MultiHeadAttentionEqualsTorch, InBF16) {
  const std::string name = GetParam();
  const MultiHeadAttention layer = golden_layer(name).to(DType::bf16);
  const Inputs in = golden_inputs(name);
  const MultiHeadAttentionResult result = layer.forward(in.query, in.key, in.value, in.call);
  EXPECT_EQ(result.output.dtype(), DType::bf16);
  const View truth = golden(name + ".output_f64");
  expect_close(result.output, truth, 2 * test::relative_error(golden(name + ".output_bf16"), truth) + 0x1p-9);
  if (result.weights) expect_close(*result.weights, golden(name + ".weights"), 4 * 0x1p-8);
}

TEST(MultiHeadAttention, ToBF16KeepsTheStateDictsNamesAndShapes) {
  for (const char* name : {"self", "everything"}) {
    const MultiHeadAttention wide = golden_layer(name), narrow = wide.to(DType::bf16);
    EXPECT_EQ(narrow.dtype(), DType::bf16);
    const TensorMap before = wide.state_dict(), after = narrow.state_dict();
    ASSERT_EQ(before.size(), after.size());
    for (const auto& [entry, tensor] : before) {
      const bool bias = entry == "in_proj_bias" || entry == "out_proj.bias";
      expect_same(after.at(entry), bias ? tensor.clone() : tensor.view().to(DType::bf16).view().to(DType::f32), entry);
    }
    expect_same(narrow.to(DType::f32).state_dict().at("out_proj.weight"), after.at("out_proj.weight"));
  }
  expect_error(
      ErrorCode::bad_dtype, [] { (void)golden_layer("self").to(DType::f16); }, "expected f32 or bf16");
}

TEST(MultiHeadAttention, StateDictIsTorchsEntryByEntry) {
  for (const std::string name : {"self", "no_bias", "cross_sizes", "bias_kv", "bias_kv_sizes"}) {
    const TensorMap state = golden_layer(name).state_dict();
    std::size_t expected = 0;
    for (const auto& [entry, tensor] : test::layers_golden()) {
      if (entry.starts_with(name + ".layer.")) ++expected;
    }
    EXPECT_EQ(state.size(), expected) << name;
    for (const auto& [entry, tensor] : state) expect_same(tensor, golden(name + ".layer." + entry), name + entry);
  }
}

TEST(MultiHeadAttention, StateDictSurvivesAFile) {
  Generator generator(3);
  const MultiHeadAttentionOptions every_kind[] = {
      {},
      {.bias = false},
      {.key_size = 5, .value_size = 3, .bias_kv = true},
      {.d_k = 2, .d_v = 7, .key_size = 5},
      {.d_k = 9, .output_projection = false, .bias_kv = true},
      {.output_projection = false},
  };
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "attend_state_dict.safetensors";
  for (const MultiHeadAttentionOptions& options : every_kind) {
    const MultiHeadAttention layer(12, 3, generator, options);
    write_safetensors(path, views_of(layer.state_dict()));
    const TensorMap read = read_safetensors(path).tensors;
    const MultiHeadAttention again = MultiHeadAttention::from_state_dict(read, 3, options);
    const Tensor query = generator.randn({2, 4, 12});
    const Tensor key = generator.randn({2, 6, options.key_size == 0 ? 12 : options.key_size});
    const Tensor value = generator.randn({2, 6, options.value_size == 0 ? 12 : options.value_size});
    expect_same(again.forward(query, key, value).output, layer.forward(query, key, value).output);
    EXPECT_EQ(layer.state_dict().contains("out_proj.weight"), options.output_projection);
  }
  std::filesystem::remove(path);
}

TEST(MultiHeadAttention, DrawsAsTorch) {
  const struct {
    const char* name;
    std::int64_t size, heads;
    MultiHeadAttentionOptions options;
  } cases[] = {
      {"multihead", 12, 3, {}},
      {"multihead_no_bias", 12, 3, {.bias = false}},
      {"multihead_sizes", 12, 4, {.key_size = 7, .value_size = 5}},
      {"multihead_bias_kv", 12, 2, {.bias_kv = true}},
      {"multihead_all", 20, 2, {.key_size = 7, .value_size = 5, .bias_kv = true}},
  };
  for (const auto& c : cases) {
    for (const auto& [text, seed] : test::seeds()) {
      Generator generator(seed);
      const TensorMap state = MultiHeadAttention(c.size, c.heads, generator, c.options).state_dict();
      for (const auto& [entry, tensor] : state) {
        const std::string what = std::string(c.name) + "." + text + "." + entry;
        if (entry.starts_with("bias_")) {
          expect_close(tensor, drawn(c.name, text, entry), 5e-7, what);  // normal: within rounding
        } else {
          expect_same(tensor, drawn(c.name, text, entry), what);
        }
      }
      expect_same(generator.rand({2}), drawn(c.name, text, "next"), c.name);
    }
  }
}

// Heads of their own sizes: 24 for queries and keys, 28 for values, and no output projection.
TEST(MultiHeadAttention, Document002) {
  const TensorMap document = read_npz(test::data("golden/document_002.npz"));
  TensorMap state;
  state["q_proj_weight"] = document.at("multi.W_query").view().reshape({72, 16}).clone();
  state["k_proj_weight"] = document.at("multi.W_key").view().reshape({72, 16}).clone();
  state["v_proj_weight"] = document.at("multi.W_value").view().reshape({84, 16}).clone();
  const auto layer = MultiHeadAttention::from_state_dict(state, 3, {.d_k = 24, .d_v = 28, .output_projection = false});
  const MultiHeadAttentionResult result = layer.forward(document.at("x"), {.weights = Weights::per_head});
  const View context = document.at("multi.context");  // [3,6,28]
  expect_close(result.output, context.transpose(0, 1).clone().view().reshape({6, 84}), 2e-6);
  expect_close(*result.weights, document.at("multi.weights"), 2e-6);
}

// Matrices [in,out] a head, used as x @ w, and an output projection used as concat_heads @ w.
TEST(MultiHeadAttention, Document003) {
  const TensorMap document = read_npz(test::data("golden/document_003.npz"));
  const auto stacked = [&](const char* name) {
    return document.at(name).view().transpose(1, 2).clone().view().reshape({16, 16}).clone();
  };
  TensorMap state;
  state["q_proj_weight"] = stacked("multi.w_query");
  state["k_proj_weight"] = stacked("multi.w_key");
  state["v_proj_weight"] = stacked("multi.w_value");
  const auto bare = MultiHeadAttention::from_state_dict(state, 4, {.output_projection = false});
  expect_close(bare.forward(document.at("x")).output, document.at("multi.concat_heads"), 2e-6);
  state["out_proj.weight"] = document.at("multi.w_output").view().transpose(0, 1).clone();
  const auto layer = MultiHeadAttention::from_state_dict(state, 4);
  expect_close(layer.forward(document.at("x")).output, document.at("multi.output"), 2e-6);
}

Tensor bools(const Dims& shape, const std::vector<int>& values) {
  Tensor out(shape, DType::boolean);
  for (std::size_t i = 0; i < values.size(); ++i) out.data<bool>()[i] = values[i] != 0;
  return out;
}

Tensor integers(const std::vector<std::int64_t>& values) {
  Tensor out({static_cast<std::int64_t>(values.size())}, DType::i64);
  std::copy(values.begin(), values.end(), out.data<std::int64_t>());
  return out;
}

// A layer with known parameters, and the same layer without what bias_kv and zero_attention append.
struct Pair {
  MultiHeadAttention plain, appended;
};

Pair pair_of_layers() {
  Generator generator(11);
  const MultiHeadAttention drawn_layer(12, 3, generator, {.bias_kv = true});
  TensorMap state = drawn_layer.state_dict();
  MultiHeadAttention appended = MultiHeadAttention::from_state_dict(state, 3, {.zero_attention = true});
  state.erase("bias_k");
  state.erase("bias_v");
  return {MultiHeadAttention::from_state_dict(state, 3), std::move(appended)};
}

// What the call's options make visible, by the plain layer: the keys of weight above zero.
Tensor visible_keys(const MultiHeadAttentionResult& result) {
  Tensor out(result.weights->shape(), DType::boolean);
  for (std::int64_t i = 0; i < out.count(); ++i) out.data<bool>()[i] = result.weights->data<float>()[i] > 0;
  return out;
}

class MultiHeadAttentionAppended : public testing::Test {
 protected:
  // Each appended layer's row of weights is the plain layer's, with two more keys that share the softmax: the ratios
  // between the sequence's own keys stay, what is hidden stays hidden, and the appended keys are always seen.
  void check(const AttentionOptions& options) {
    const Pair layers = pair_of_layers();
    Generator generator(5);
    const Tensor query = generator.randn({2, 4, 12});
    const Tensor key = generator.randn({2, 6, 12});
    MultiHeadAttentionCall call{.attention = options, .weights = Weights::per_head};
    const auto plain = layers.plain.forward(query, key, key, call);
    const auto appended = layers.appended.forward(query, key, key, call);
    ASSERT_EQ(appended.weights->shape(), Dims({2, 3, 4, 8}));
    const Tensor seen = visible_keys(plain);
    Tensor rescaled({2, 3, 4, 6});
    for (std::int64_t row = 0; row < 24; ++row) {
      double own_sum = 0;
      const float* weights = appended.weights->data<float>() + row * 8;
      for (int j = 0; j < 6; ++j) own_sum += static_cast<double>(weights[j]);
      EXPECT_GT(weights[6], 0);
      EXPECT_GT(weights[7], 0);
      EXPECT_NEAR(own_sum + static_cast<double>(weights[6]) + static_cast<double>(weights[7]), 1, 1e-6);
      for (int j = 0; j < 6; ++j) {
        EXPECT_EQ(weights[j] > 0, seen.data<bool>()[row * 6 + j]);
        if (own_sum > 0) rescaled.data<float>()[row * 6 + j] = static_cast<float>(weights[j] / own_sum);
      }
    }
    expect_close(rescaled, *plain.weights, 1e-6);
    call.weights = Weights::none;
    expect_same(layers.appended.forward(query, key, key, call).output, appended.output);
  }
};

TEST_F(MultiHeadAttentionAppended, Plain) {
  check({});
}
TEST_F(MultiHeadAttentionAppended, CausalAtBothOffsets) {
  check({.causal = true, .offset = Offset::top_left()});
  check({.causal = true, .offset = Offset::bottom_right()});
  check({.causal = true, .offset = Offset(-2)});  // queries 0 and 1 see none of the sequence
}
TEST_F(MultiHeadAttentionAppended, Window) {
  check({.window = {1, 0}, .offset = Offset::bottom_right()});
  check({.window = {-1, 2}, .offset = Offset::top_left()});
  check({.window = {0, -1}, .offset = Offset(3)});
}
TEST_F(MultiHeadAttentionAppended, KeyLengths) {
  const Tensor lengths = integers({3, 0});
  check({.key_lengths = lengths});
  check({.causal = true, .offset = Offset::bottom_right(), .key_lengths = lengths});
}
TEST_F(MultiHeadAttentionAppended, Alibi) {
  const Tensor slopes = Tensor::from({3}, {0.5f, 0.25f, 1});
  const Tensor lengths = integers({5, 2});
  check({.offset = Offset::bottom_right(), .alibi_slopes = slopes});
  check({.causal = true, .offset = Offset::bottom_right(), .alibi_slopes = slopes, .key_lengths = lengths});
}
TEST_F(MultiHeadAttentionAppended, DistanceBias) {
  Generator generator(3);
  Tensor table = generator.randn({3, 5});
  table.data<float>()[6] = -INFINITY;
  const Tensor slopes = Tensor::from({3}, {0.5f, 0.25f, 1}), lengths = integers({5, 2});
  check({.offset = Offset::bottom_right(), .distance_bias = table});
  check({.offset = Offset(1), .distance_bias = table, .alibi_slopes = slopes, .key_lengths = lengths});
}
TEST_F(MultiHeadAttentionAppended, MaskAndBias) {
  const Tensor mask = bools({4, 1}, {1, 0, 1, 1});
  Generator generator(2);
  const Tensor bias = generator.randn({3, 1, 6});
  check({.causal = true, .offset = Offset::top_left(), .mask = mask, .bias = bias, .softcap = 2});
}

TEST(MultiHeadAttention, MasksInBothPolaritiesHoldTogether) {
  const Pair layers = pair_of_layers();
  Generator generator(6);
  const Tensor x = generator.randn({2, 3, 12});
  const Tensor padding = bools({2, 3}, {0, 0, 0, 1, 0, 0});             // true: may not attend
  const Tensor attn_mask = bools({3, 3}, {0, 0, 1, 0, 1, 0, 0, 0, 0});  // true: may not attend
  const Tensor mask = bools({2, 1, 1, 3}, {1, 1, 1, 1, 1, 0});          // true: may attend
  const auto result = layers.plain.forward(x, {.key_padding_mask = padding,
                                               .attn_mask = attn_mask,
                                               .attention = {.causal = true, .mask = mask},
                                               .weights = Weights::averaged});
  const Tensor seen = visible_keys(result);
  expect_same(seen, bools({2, 3, 3}, {1, 0, 0, 1, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0}));
}

TEST(MultiHeadAttention, BiasesOfTheCallAddUp) {
  const Pair layers = pair_of_layers();
  Generator generator(6);
  const Tensor x = generator.randn({2, 3, 12});
  const Tensor padding = generator.randn({2, 3});
  const Tensor attn_mask = generator.randn({6, 3, 3});
  const Tensor bias = generator.randn({3, 1, 3});
  Tensor sum({2, 3, 3, 3});
  for (std::int64_t b = 0; b < 2; ++b)
    for (std::int64_t h = 0; h < 3; ++h)
      for (std::int64_t i = 0; i < 3; ++i)
        for (std::int64_t j = 0; j < 3; ++j) {
          sum.data<float>()[((b * 3 + h) * 3 + i) * 3 + j] =
              static_cast<float>(padding.item({b, j}) + attn_mask.item({b * 3 + h, i, j}) + bias.item({h, 0, j}));
        }
  const auto apart =
      layers.plain.forward(x, {.key_padding_mask = padding, .attn_mask = attn_mask, .attention = {.bias = bias}});
  expect_close(apart.output, layers.plain.forward(x, {.attention = {.bias = sum}}).output, 3e-7);
}

TEST(MultiHeadAttention, OptionsReachAttention) {
  const Pair layers = pair_of_layers();
  Generator generator(6);
  const Tensor x = generator.randn({2, 5, 12});
  const Tensor sinks = Tensor::from({3}, {1, 2, 3});
  const Tensor attn_mask = bools({5, 5}, {0, 1, 1, 1, 1, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0});
  const AttentionOptions options{.scale = 0.3, .causal = true, .sinks = sinks, .softcap = 1.5};
  AttentionOptions uncausal = options;
  uncausal.causal = false;
  const auto result = layers.plain.forward(x, {.attention = options, .weights = Weights::per_head});
  EXPECT_LT(result.weights->item({0, 0, 0, 0}), 1);  // the sink takes its share
  expect_same(result.output, layers.plain.forward(x, {.attn_mask = attn_mask, .attention = uncausal}).output);
}

TEST(MultiHeadAttention, ARowWithNothingToAttendToIsTheOutputBias) {
  const MultiHeadAttention layer = golden_layer("self");
  const View x = golden("self.query");
  const View bias = golden("self.layer.out_proj.bias");
  const float low = -std::numeric_limits<float>::infinity();
  const Tensor hidden = bools({2, 7}, {1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0});
  const Tensor hidden_f32 = Tensor::from({2, 7}, {low, low, low, low, low, low, low, 0, 0, 0, 0, 0, 0, 0});
  for (const View& mask : {hidden.view(), hidden_f32.view()}) {
    const auto result = layer.forward(x, {.key_padding_mask = mask, .weights = Weights::averaged});
    expect_same(result.output.view().select(0, 0), bias.broadcast_to({7, 30}));
    expect_same(result.weights->view().select(0, 0), Tensor({7, 7}));
    expect_same(result.output.view().select(0, 1), layer.forward(x).output.view().select(0, 1));
  }
}

TEST(MultiHeadAttention, NaNInAMaskedKeyStaysThere) {
  const MultiHeadAttention layer = golden_layer("self");
  const View x = golden("self.query");
  Tensor key = x.clone();
  for (int e = 0; e < 30; ++e) key.data<float>()[2 * 30 + e] = NAN;
  const Tensor padding = bools({2, 7}, {0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  expect_same(layer.forward(x, key, key, {.key_padding_mask = padding}).output,
              layer.forward(x, x, x, {.key_padding_mask = padding}).output);
}

TEST(MultiHeadAttention, MasksAndInputsOfAnyStrides) {
  const MultiHeadAttention layer = golden_layer("mask_float_3d");
  const Inputs in = golden_inputs("mask_float_3d");
  const Tensor x = in.query.transpose(0, 1).clone();
  const Tensor mask = in.call.attn_mask->permute({2, 1, 0}).clone();
  const auto expected = layer.forward(in.query, in.key, in.value, in.call);
  const auto strided = layer.forward(x.view().transpose(0, 1), in.key, in.value,
                                     {.attn_mask = mask.view().permute({2, 1, 0}), .weights = Weights::none});
  expect_same(strided.output, expected.output);
}

TEST(MultiHeadAttention, EmptySequences) {
  const Pair layers = pair_of_layers();
  const Tensor none({2, 0, 12});
  const Tensor x({2, 3, 12});
  EXPECT_EQ(layers.plain.forward(none).output.shape(), Dims({2, 0, 12}));
  EXPECT_EQ(layers.plain.forward(x, none, none).output.shape(), Dims({2, 3, 12}));
  const auto appended = layers.appended.forward(x, none, none, {.weights = Weights::averaged});
  EXPECT_EQ(appended.weights->shape(), Dims({2, 3, 2}));
  EXPECT_EQ(layers.appended.forward(Tensor({0, 3, 12}), {.attention = {.causal = true}}).output.shape(),
            Dims({0, 3, 12}));
}

TEST(MultiHeadAttention, ErrorsOfForward) {
  const MultiHeadAttention layer = pair_of_layers().plain;
  const MultiHeadAttention appended = pair_of_layers().appended;
  const Tensor q({2, 4, 12}), k({2, 6, 12});
  const auto bad_shape = [&](const auto& statement, const auto&... texts) {
    expect_error(ErrorCode::bad_shape, statement, texts...);
  };
  bad_shape([&] { layer.forward(Tensor({12})); }, "query has shape [12], expected [T,E] or [B,T,E]");
  bad_shape(
      [&] {
        layer.forward(Tensor({2, 5, 80}));
      },
      "MultiHeadAttention: query has 80 features (query [2,5,80]), the layer takes 12");
  bad_shape([&] { layer.forward(q, k, Tensor({2, 6, 13})); }, "value has 13 features");
  bad_shape([&] { layer.forward(q, Tensor({3, 6, 12}), k); }, "key has shape [3,6,12], query [2,4,12]");
  bad_shape([&] { layer.forward(q, k, Tensor({6, 12})); }, "value has shape [6,12], query [2,4,12]");
  bad_shape([&] { layer.forward(q, k, q); }, "value has 4 rows, key has 6");
  bad_shape(
      [&] {
        layer.forward(q, k, k, {.key_padding_mask = Tensor({2, 4}, DType::boolean).view()});
      },
      "key_padding_mask has shape [2,4], expected [B,Tk] = [2,6]");
  bad_shape(
      [&] {
        layer.forward(q, k, k, {.attn_mask = Tensor({6, 6}, DType::boolean).view()});
      },
      "attn_mask has shape [6,6], expected [Tq,Tk] = [4,6] or [B*heads,Tq,Tk] = [6,4,6]");
  bad_shape(
      [&] {
        layer.forward(q, k, k, {.attention = {.mask = Tensor({5, 6}, DType::boolean).view()}});
      },
      "mask", "[5,6]", "[2,3,4,6]");
  expect_error(
      ErrorCode::bad_dtype,
      [&] {
        layer.forward(q, k, k, {.attn_mask = Tensor({4, 6}, DType::u8).view()});
      },
      "attn_mask is u8, expected bool (true = may not attend) or floating point");
  expect_error(
      ErrorCode::bad_dtype,
      [&] {
        layer.forward(Tensor({4, 12}, DType::i64));
      },
      "query is i64");
  for (const MultiHeadAttention* each : {&layer, &appended}) {
    expect_error(
        ErrorCode::bad_value, [&] { each->forward(q, k, k, {.attention = {.causal = true}}); }, "4 queries and 6 keys",
        "top_left", "bottom_right");
    const Tensor lengths = integers({7, 1});
    expect_error(
        ErrorCode::bad_value, [&] { each->forward(q, k, k, {.attention = {.key_lengths = lengths}}); },
        "key_lengths[0] is 7", "6");
  }
}

TEST(MultiHeadAttention, ErrorsOfTheConstructor) {
  Generator generator;
  const auto bad_value = [&](std::int64_t size, std::int64_t heads, MultiHeadAttentionOptions options,
                             const char* text) {
    expect_error(
        ErrorCode::bad_value, [&] { MultiHeadAttention(size, heads, generator, options); }, text);
  };
  bad_value(12, 0, {}, "MultiHeadAttention: heads is 0");
  bad_value(0, 1, {}, "embedding_size is 0");
  bad_value(30, 4, {}, "embedding_size is 30, expected a multiple of 4 heads");
  bad_value(12, 3, {.d_k = -1}, "d_k is -1");
  bad_value(12, 3, {.value_size = -1}, "value_size is -1");
}

TEST(MultiHeadAttention, SizesBeyond64Bits) {
  Generator generator;
  constexpr std::int64_t huge = std::numeric_limits<std::int64_t>::max();
  const auto draw = [&](std::int64_t size, std::int64_t heads, MultiHeadAttentionOptions options) {
    expect_error(
        ErrorCode::bad_shape, [&] { MultiHeadAttention(size, heads, generator, options); }, "64 bits");
  };
  draw(8, huge, {.d_k = huge, .d_v = 3});
  draw(8, 4, {.d_k = 1, .d_v = std::int64_t{1} << 62});
  draw(huge, 1, {});
}

class MultiHeadAttentionState : public testing::Test {
 protected:
  TensorMap state(const std::string& name) {
    TensorMap out;
    const std::string start = name + ".layer.";
    for (const auto& [entry, tensor] : test::layers_golden()) {
      if (entry.starts_with(start)) out["a." + entry.substr(start.size())] = tensor.clone();
    }
    return out;
  }
  template <class... Texts>
  void expect_refused(const TensorMap& tensors, ErrorCode code, MultiHeadAttentionOptions options,
                      const Texts&... texts) {
    expect_error(
        code, [&] { MultiHeadAttention::from_state_dict(tensors, 5, options, "a."); },
        "MultiHeadAttention::from_state_dict: ", texts...);
  }
};

TEST_F(MultiHeadAttentionState, MissingEntries) {
  for (const std::string name : {"bias_kv", "bias_kv_sizes", "self"}) {
    for (const auto& [entry, tensor] : state(name)) {
      TensorMap tensors = state(name);
      tensors.erase(entry);
      expect_refused(tensors, ErrorCode::bad_value, {}, "entry " + entry + " is missing");
    }
  }
  expect_refused({}, ErrorCode::bad_value, {}, "a.in_proj_weight is missing");
}

TEST_F(MultiHeadAttentionState, UnknownEntries) {
  TensorMap tensors = state("self");
  tensors["a.in_proj.bias"] = Tensor({90});
  expect_refused(tensors, ErrorCode::bad_value, {}, "unknown entry a.in_proj.bias (shape [90])", "a.in_proj_bias");
  expect_refused(state("self"), ErrorCode::bad_value, {.output_projection = false}, "unknown entry a.out_proj.");
  tensors = state("self");
  tensors["b.anything"] = Tensor({1});
  tensors["a"] = Tensor({1});
  MultiHeadAttention::from_state_dict(tensors, 5, {}, "a.");
}

TEST_F(MultiHeadAttentionState, IllShapedEntries) {
  for (const std::string name : {"bias_kv", "bias_kv_sizes", "cross_sizes"}) {
    for (const auto& [entry, tensor] : state(name)) {
      TensorMap tensors = state(name);
      Dims shape = tensor.shape();
      shape[0] += 1;
      tensors[entry] = Tensor(shape);
      if (entry == "a.q_proj_weight" || entry == "a.v_proj_weight") {
        expect_refused(tensors, ErrorCode::bad_shape, {}, entry + " makes 16 features, expected a multiple of 5 heads");
      } else {
        expect_refused(tensors, ErrorCode::bad_shape, {}, entry + " has shape " + shape.str(),
                       "expected " + tensor.shape().str());
      }
      tensors[entry] = Tensor(tensor.shape(), DType::i64);
      expect_refused(tensors, ErrorCode::bad_dtype, {}, entry + " is i64");
    }
  }
}

TEST_F(MultiHeadAttentionState, OptionsMustAgree) {
  expect_refused(state("self"), ErrorCode::bad_value, {.d_k = 7}, "d_k 7, the tensors have 6");
  expect_refused(state("self"), ErrorCode::bad_value, {.d_v = 7}, "d_v 7");
  expect_refused(state("cross_sizes"), ErrorCode::bad_value, {.key_size = 15}, "key_size 15, the tensors have 11");
  expect_refused(state("cross_sizes"), ErrorCode::bad_value, {.value_size = 15}, "value_size 15, the tensors have 9");
  MultiHeadAttention::from_state_dict(state("cross_sizes"), 5, {.d_k = 3, .key_size = 11, .value_size = 9}, "a.");
  expect_error(
      ErrorCode::bad_value, [&] { MultiHeadAttention::from_state_dict(state("self"), 0, {}, "a."); }, "heads is 0");
  expect_error(
      ErrorCode::bad_shape, [&] { MultiHeadAttention::from_state_dict(state("self"), 4, {}, "a."); },
      "a.in_proj_weight makes 30 features, expected a multiple of 4 heads");
}

}  // namespace
}  // namespace attend
