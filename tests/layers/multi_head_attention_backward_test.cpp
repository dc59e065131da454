#include <set>
#include <string>

#include "tests/layers/golden.h"

namespace attend {
namespace {

using test::backward_golden;
using test::expect_close;
using test::expect_error;
using test::expect_same;
using test::golden;
using test::golden_if_any;

class MultiHeadAttentionBackwardEqualsTorch : public testing::TestWithParam<const char*> {};

TEST_P(MultiHeadAttentionBackwardEqualsTorch, EveryGradient) {
  const std::string name = GetParam();
  const std::set<std::string> with_zeros = {"zero_attention", "bias_kv_and_zero", "everything", "everything_float"};
  const MultiHeadAttention layer =
      MultiHeadAttention::from_state_dict(test::layers_golden(), name == "one_head" ? 1 : 5,
                                          {.zero_attention = with_zeros.contains(name)}, name + ".layer.");
  const View query = golden(name + ".query"), doutput = backward_golden().at(name + ".doutput");
  const std::optional<View> key = golden_if_any(name + ".key"), value = golden_if_any(name + ".value");
  MultiHeadAttentionCall call;
  call.key_padding_mask = golden_if_any(name + ".key_padding_mask");
  call.attn_mask = golden_if_any(name + ".attn_mask");
  const auto floating = [](const std::optional<View>& mask) { return mask && is_floating(mask->dtype()); };
  const MultiHeadAttentionBackward wanted{.key_padding_mask = floating(call.key_padding_mask),
                                          .attn_mask = floating(call.attn_mask)};
  MultiHeadAttentionState state;
  const MultiHeadAttentionResult result =
      key ? layer.forward(query, *key, value.value_or(*key), call, state) : layer.forward(query, call, state);
  expect_same(result.output,
              (key ? layer.forward(query, *key, value.value_or(*key), call) : layer.forward(query, call)).output);
  const MultiHeadAttentionGradients out =
      key ? layer.backward(doutput, query, *key, value.value_or(*key), state, call, wanted)
          : layer.backward(doutput, query, state, call, wanted);

  std::size_t compared = 1;  // doutput
  const auto compare = [&](const std::string& entry, const View& gradient) {
    // Forward and backward in f32, some ten roundings behind each other, against f64; FlashAttention's rule allows
    // three times the forward's 5e-7.
    expect_close(gradient, backward_golden().at(name + "." + entry), 1.5e-6, entry);
    ++compared;
  };
  compare("dquery", out.dquery);
  if (key) compare("dkey", out.dkey);
  if (key) compare("dvalue", out.dvalue);
  if (wanted.key_padding_mask) compare("dkey_padding_mask", *out.dkey_padding_mask);
  if (wanted.attn_mask) compare("dattn_mask", *out.dattn_mask);
  for (const auto& [entry, gradient] : out.parameters) compare("dlayer." + entry, gradient);
  std::size_t expected = 0;
  for (const auto& [entry, tensor] : backward_golden()) expected += entry.starts_with(name + ".");
  EXPECT_EQ(compared, expected);
}

INSTANTIATE_TEST_SUITE_P(Golden, MultiHeadAttentionBackwardEqualsTorch,
                         testing::Values("self", "no_bias", "one_head", "one_token", "unbatched", "unbatched_per_head",
                                         "averaged", "per_head", "causal", "cross", "cross_sizes", "bias_kv",
                                         "bias_kv_sizes", "zero_attention", "bias_kv_and_zero", "padding_bool",
                                         "padding_float", "mask_bool", "mask_float", "mask_bool_3d", "mask_float_3d",
                                         "both_bool", "both_float", "everything", "everything_float"),
                         [](const auto& test_info) { return std::string(test_info.param); });

}  // namespace
}  // namespace attend
