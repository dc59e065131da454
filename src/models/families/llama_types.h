// In what the types of Llama's family differ: nowhere else is one asked for its name.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "models/families/decoder.h"
#include "models/families/rotary.h"

namespace attend::inline v1::models {

struct LlamaType {
  std::string_view name;
  bool null_head_size = true;  // head_dim may be null
  bool whole_heads = false;    // heads share the hidden size, whatever head_dim says
  bool may_have_bias = false;  // attention_bias says whether queries, keys, values and output have one
  bool has_bias = false;       // queries, keys and values do
  bool wide_bias = false;      // mlp_bias says whether the others have one
  bool fused = false;          // one matrix has queries, keys and values, and one gate and up
  bool head_norms = false;     // queries and keys are normalised, each head by itself
  bool row_norms = false;      // likewise, all heads together
  bool norms_before = true;    // of what attention and MLP read
  bool norms_after = false;    // of what they write
  bool gemma = false;       // norms are of 1 + weight, words times sqrt(E), scores by query_pre_attn_scalar, softcaps
  bool some_turn = false;   // no_rope_layers say in which layers positions are seen
  bool may_encode = false;  // use_bidirectional_attention says whether tokens see both sides
  WindowRule windows = {};
  RotaryKeys rotary = {};
  std::optional<RotaryKeys> window_rotary = {};  // of the layers with a window, where it is another
};

// Throws bad_value for a type of another family.
const LlamaType& llama_type(std::string_view name);
// SmolLM3: of each layer whether it sees positions.
std::vector<bool> turning_layers(const Member& config, std::int64_t layers);

}  // namespace attend::inline v1::models
