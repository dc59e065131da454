#include "models/llama_types.h"

#include <algorithm>
#include <array>

namespace attend::models {

bool turns(const Member& config, std::int64_t layer) {
  if (!config.given("no_rope_layers")) return (layer + 1) % config["no_rope_layer_interval"].whole(1) != 0;
  const std::vector<Member> layers = config["no_rope_layers"].list();
  if (layer >= std::ssize(layers)) config["no_rope_layers"].refuse("a number for each layer");
  return layers[static_cast<std::size_t>(layer)].whole(0, 1) == 1;
}

namespace {

bool in_every_layer(const Member&, std::int64_t) {
  return true;
}

bool from_a_layer_on(const Member& config, std::int64_t layer) {
  return layer >= config["max_window_layers"].whole(0);
}

bool where_none_turns(const Member& config, std::int64_t layer) {
  return config["use_sliding_window"].truth() && config.given("sliding_window") && !turns(config, layer);
}

bool in_every_second(const Member&, std::int64_t layer) {
  return layer % 2 == 0;
}

// Gemma 3: all but every sixth.
bool but_every_few(const Member& config, std::int64_t layer) {
  constexpr const char* key = "sliding_window_pattern";
  return (layer + 1) % (config.has(key) ? config[key].whole(1) : 6) != 0;
}

constexpr WindowRule qwen_windows = {.slides = from_a_layer_on, .used = "use_sliding_window"};
constexpr WindowRule mistral_windows = {.by_type = false, .slides = in_every_layer};

constexpr std::array<LlamaType, 9> types = {{
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
     .windows = {.slides = in_every_second, .needed = true}},
    {.name = "gemma3_text",
     .null_head_size = false,
     .whole_heads = true,
     .may_have_bias = true,
     .head_norms = true,
     .norms_after = true,
     .gemma = true,
     .windows = {.slides = but_every_few, .needed = true},
     .rotary = {.usual_theta = 1'000'000, .of_layers = "full_attention"},
     .window_rotary = RotaryKeys{.theta = "rope_local_base_freq", .of_layers = "sliding_attention"}},
}};

}  // namespace

const LlamaType& llama_type(std::string_view name) {
  return *std::ranges::find(types, name, &LlamaType::name);
}

}  // namespace attend::models
