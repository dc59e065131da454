#include <algorithm>
#include <array>

#include "models/gguf_architecture.h"

namespace attend::models {

namespace {

constexpr GgufRenamed llama_outer[] = {
    {"token_embd", "model.embed_tokens"}, {"output_norm", "model.norm"}, {"output", "lm_head"}};
constexpr GgufRenamed llama_layer[] = {
    {"attn_norm", "input_layernorm"},    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},      {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"}, {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"}, {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
};

constexpr std::array<GgufArchitecture, 3> architectures = {{
    {.name = "llama",
     .type = "llama",
     .class_name = "LlamaForCausalLM",
     .outer_names = llama_outer,
     .layer_names = llama_layer,
     .layers = "model.layers.",
     .permuted = true},
    {.name = "qwen2",
     .type = "qwen2",
     .class_name = "Qwen2ForCausalLM",
     .outer_names = llama_outer,
     .layer_names = llama_layer,
     .layers = "model.layers."},
    {.name = "qwen3",
     .type = "qwen3",
     .class_name = "Qwen3ForCausalLM",
     .outer_names = llama_outer,
     .layer_names = llama_layer,
     .layers = "model.layers."},
}};

}  // namespace

const GgufArchitecture& gguf_architecture(const GgufFile& file) {
  constexpr const char* key = "general.architecture";
  const std::string name = file.text(key);
  const auto found = std::ranges::find(architectures, name, &GgufArchitecture::name);
  if (found != architectures.end()) return *found;
  std::vector<std::string_view> known;
  for (const GgufArchitecture& each : architectures) known.push_back(each.name);
  file.refuse(key, fmt::format("{} is not known; {} are", quote(name), fmt::join(known, ", ")));
}

std::optional<GgufName> cut_gguf_name(std::string_view name) {
  GgufName out;
  const std::size_t end = name.rfind('.');
  if (end == std::string_view::npos) return std::nullopt;
  out.kind = name.substr(end), out.part = name.substr(0, end);
  if (out.kind != ".weight" && out.kind != ".bias") return std::nullopt;
  if (!out.part.starts_with("blk.")) return out;
  out.part.remove_prefix(4);
  out.layer = out.part.substr(0, out.part.find('.'));
  const bool is_number =
      !out.layer.empty() && std::ranges::all_of(out.layer, [](char c) { return c >= '0' && c <= '9'; });
  if (!is_number || (out.layer.size() > 1 && out.layer.front() == '0')) return std::nullopt;
  out.part.remove_prefix(std::min(out.part.size(), out.layer.size() + 1));
  return out;
}

std::optional<std::string> folder_name(const GgufArchitecture& of, const GgufName& name) {
  const auto& list = name.layer.empty() ? of.outer_names : of.layer_names;
  const auto found = std::ranges::find(list, name.part, &GgufRenamed::from);
  if (found == list.end()) return std::nullopt;
  if (name.layer.empty()) return fmt::format("{}{}", found->to, name.kind);
  return fmt::format("{}{}.{}{}", of.layers, name.layer, found->to, name.kind);
}

}  // namespace attend::models
