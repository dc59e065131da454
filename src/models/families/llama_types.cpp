#include "models/families/llama_types.h"

#include <array>

#include "models/model_types.h"

namespace attend::inline v1::models {

namespace {

// Of each layer whether it is one of those.
template <class Is>
std::vector<bool> layers_that(std::int64_t layers, Is is) {
  std::vector<bool> all;
  all.reserve(static_cast<std::size_t>(layers));
  for (std::int64_t n = 0; n < layers; ++n) all.push_back(is(n));
  return all;
}

}  // namespace

std::vector<bool> turning_layers(const Member& config, std::int64_t layers) {
  if (!config.given("no_rope_layers")) {
    const std::int64_t interval = config["no_rope_layer_interval"].whole(1);
    return layers_that(layers, [&](std::int64_t layer) { return (layer + 1) % interval != 0; });
  }
  const std::vector<Member> said = config["no_rope_layers"].list();
  if (std::ssize(said) < layers) config["no_rope_layers"].refuse("a number for each layer");
  return layers_that(layers,
                     [&](std::int64_t layer) { return said[static_cast<std::size_t>(layer)].whole(0, 1) == 1; });
}

namespace {

std::vector<bool> every_layer(const Member&, std::int64_t layers) {
  return layers_that(layers, [](std::int64_t) { return true; });
}

std::vector<bool> from_a_layer_on(const Member& config, std::int64_t layers) {
  const std::int64_t first = config["max_window_layers"].whole(0);
  return layers_that(layers, [&](std::int64_t layer) { return layer >= first; });
}

std::vector<bool> where_none_turns(const Member& config, std::int64_t layers) {
  if (!config["use_sliding_window"].truth() || !config.given("sliding_window"))
    return layers_that(layers, [](std::int64_t) { return false; });
  std::vector<bool> slides = turning_layers(config, layers);
  slides.flip();
  return slides;
}

std::vector<bool> every_second(const Member&, std::int64_t layers) {
  return layers_that(layers, [](std::int64_t layer) { return layer % 2 == 0; });
}

// Gemma 3: all but every sixth.
std::vector<bool> but_every_few(const Member& config, std::int64_t layers) {
  constexpr const char* key = "sliding_window_pattern";
  const std::int64_t period = config.has(key) ? config[key].whole(1) : 6;
  return layers_that(layers, [&](std::int64_t layer) { return (layer + 1) % period != 0; });
}

constexpr WindowRule qwen_windows = {.slides = from_a_layer_on, .used = "use_sliding_window"};
constexpr WindowRule mistral_windows = {.by_type = false, .slides = every_layer};

constexpr std::array<LlamaType, 9> llama_types = {{
    {.name = "llama", .whole_heads = true, .may_have_bias = true, .wide_bias = true},
    {.name = "mistral", .windows = mistral_windows},
    {.name = "qwen2", .null_head_size = false, .has_bias = true, .windows = qwen_windows},
    {.name = "qwen3", .may_have_bias = true, .head_norms = true, .windows = qwen_windows},
    {.name = "smollm3",
     .null_head_size = false,
     .may_have_bias = true,
     .wide_bias = true,
     .some_turn = true,
     .windows = {.slides = where_none_turns},
     .rotary = {.usual_theta = 2'000'000}},
    {.name = "phi3",
     .null_head_size = false,
     .fused = true,
     .windows = mistral_windows,
     .rotary = {.share = "partial_rotary_factor", .longrope_alone = true}},
    {.name = "olmo2",
     .null_head_size = false,
     .may_have_bias = true,
     .row_norms = true,
     .norms_before = false,
     .norms_after = true},
    {.name = "gemma2",
     .null_head_size = false,
     .whole_heads = true,
     .may_have_bias = true,
     .norms_after = true,
     .gemma = true,
     .windows = {.slides = every_second, .needed = true}},
    {.name = "gemma3_text",
     .null_head_size = false,
     .whole_heads = true,
     .may_have_bias = true,
     .head_norms = true,
     .norms_after = true,
     .gemma = true,
     .may_encode = true,
     .windows = {.slides = but_every_few, .needed = true},
     .rotary = {.usual_theta = 1'000'000, .of_layers = "full_attention"},
     .window_rotary = RotaryKeys{.theta = "rope_local_base_freq", .of_layers = "sliding_attention"}},
}};

}  // namespace

const LlamaType& llama_type(std::string_view name) {
  return row_of_type(llama_types, name);
}

}  // namespace attend::inline v1::models
