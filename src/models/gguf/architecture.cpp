#include "models/gguf/architecture.h"

#include <algorithm>
#include <array>

#include "models/gguf/config.h"
#include "models/gguf/describe.h"
#include "models/model_types.h"

namespace attend::inline v1::models {

namespace {

constexpr GgufRenamed llama_outer[] = {
    {"token_embd", "model.embed_tokens"}, {"output_norm", "model.norm"}, {"output", "lm_head"}};
constexpr GgufRenamed llama_inner[] = {
    {"attn_norm", "input_layernorm"},    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},      {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"}, {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"}, {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
};

constexpr GgufRenamed gemma_inner[] = {
    {"attn_norm", "input_layernorm"},
    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"},
    {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_norm", "pre_feedforward_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
};
constexpr GgufRenamed phi3_inner[] = {
    {"attn_norm", "input_layernorm"},         {"attn_qkv", "self_attn.qkv_proj"}, {"attn_output", "self_attn.o_proj"},
    {"ffn_norm", "post_attention_layernorm"}, {"ffn_up", "mlp.gate_up_proj"},     {"ffn_down", "mlp.down_proj"},
};

constexpr GgufRenamed gpt2_outer[] = {{"token_embd", "transformer.wte"},
                                      {"position_embd", "transformer.wpe"},
                                      {"output_norm", "transformer.ln_f"},
                                      {"output", "lm_head"}};
constexpr GgufRenamed gpt2_inner[] = {
    {"attn_norm", "ln_1"}, {"attn_qkv", "attn.c_attn"}, {"attn_output", "attn.c_proj"},
    {"ffn_norm", "ln_2"},  {"ffn_up", "mlp.c_fc"},      {"ffn_down", "mlp.c_proj"},
};

constexpr GgufRenamed bert_outer[] = {{"token_embd", "bert.embeddings.word_embeddings"},
                                      {"position_embd", "bert.embeddings.position_embeddings"},
                                      {"token_types", "bert.embeddings.token_type_embeddings"},
                                      {"token_embd_norm", "bert.embeddings.LayerNorm"}};
constexpr GgufRenamed bert_inner[] = {
    {"attn_q", "attention.self.query"},
    {"attn_k", "attention.self.key"},
    {"attn_v", "attention.self.value"},
    {"attn_output", "attention.output.dense"},
    {"attn_output_norm", "attention.output.LayerNorm"},
    {"ffn_up", "intermediate.dense"},
    {"ffn_down", "output.dense"},
    {"layer_output_norm", "output.LayerNorm"},
};

constexpr GgufRenamed roberta_outer[] = {{"token_embd", "roberta.embeddings.word_embeddings"},
                                         {"position_embd", "roberta.embeddings.position_embeddings"},
                                         {"token_types", "roberta.embeddings.token_type_embeddings"},
                                         {"token_embd_norm", "roberta.embeddings.LayerNorm"}};

constexpr GgufRenamed distilbert_outer[] = {{"token_embd", "distilbert.embeddings.word_embeddings"},
                                            {"position_embd", "distilbert.embeddings.position_embeddings"},
                                            {"token_embd_norm", "distilbert.embeddings.LayerNorm"}};
constexpr GgufRenamed distilbert_inner[] = {
    {"attn_q", "attention.q_lin"},
    {"attn_k", "attention.k_lin"},
    {"attn_v", "attention.v_lin"},
    {"attn_output", "attention.out_lin"},
    {"attn_output_norm", "sa_layer_norm"},
    {"ffn_up", "ffn.lin1"},
    {"ffn_down", "ffn.lin2"},
    {"layer_output_norm", "output_layer_norm"},
};

constexpr GgufRenamed modernbert_outer[] = {{"token_embd", "model.embeddings.tok_embeddings"},
                                            {"token_embd_norm", "model.embeddings.norm"},
                                            {"output_norm", "model.final_norm"}};
constexpr GgufRenamed modernbert_inner[] = {
    {"attn_norm", "attn_norm"}, {"attn_qkv", "attn.Wqkv"}, {"attn_output", "attn.Wo"},
    {"ffn_norm", "mlp_norm"},   {"ffn_up", "mlp.Wi"},      {"ffn_down", "mlp.Wo"},
};

// A file's is the first of its name, a folder's the first of its type.
constexpr std::array architectures = {
    GgufArchitecture{.type = "llama",
                     .configure = configure_llama,
                     .describe = describe_llama,
                     .outer = llama_outer,
                     .inner = llama_inner,
                     .permuted = true},
    GgufArchitecture{.type = "mistral",
                     .configure = configure_llama,
                     .describe = describe_llama,
                     .outer = llama_outer,
                     .inner = llama_inner,
                     .permuted = true},
    GgufArchitecture{.type = "qwen2",
                     .configure = configure_qwen,
                     .describe = describe_llama,
                     .outer = llama_outer,
                     .inner = llama_inner},
    GgufArchitecture{.type = "qwen3",
                     .configure = configure_qwen,
                     .describe = describe_llama,
                     .outer = llama_outer,
                     .inner = llama_inner},
    GgufArchitecture{.type = "smollm3",
                     .configure = configure_smollm3,
                     .describe = describe_smollm3,
                     .outer = llama_outer,
                     .inner = llama_inner,
                     .permuted = true},
    GgufArchitecture{.type = "gemma2",
                     .configure = configure_gemma2,
                     .describe = describe_gemma2,
                     .outer = llama_outer,
                     .inner = gemma_inner,
                     .norms_of_1 = true},
    GgufArchitecture{.type = "gemma3_text",
                     .configure = configure_gemma3,
                     .describe = describe_gemma3,
                     .outer = llama_outer,
                     .inner = gemma_inner,
                     .norms_of_1 = true},
    GgufArchitecture{.type = "phi3",
                     .configure = configure_phi3,
                     .describe = describe_phi3,
                     .outer = llama_outer,
                     .inner = phi3_inner},
    GgufArchitecture{.type = "gpt2",
                     .configure = configure_gpt2,
                     .describe = describe_gpt2,
                     .outer = gpt2_outer,
                     .inner = gpt2_inner,
                     .layers = "transformer.h.",
                     .transposed = true},
    GgufArchitecture{.type = "bert",
                     .configure = configure_bert,
                     .describe = describe_bert,
                     .outer = bert_outer,
                     .inner = bert_inner,
                     .layers = "bert.encoder.layer."},
    GgufArchitecture{.type = "xlm-roberta",
                     .configure = configure_bert,
                     .describe = describe_bert,
                     .outer = roberta_outer,
                     .inner = bert_inner,
                     .layers = "roberta.encoder.layer."},
    GgufArchitecture{.type = "distilbert",
                     .configure = configure_bert,
                     .describe = describe_bert,
                     .outer = distilbert_outer,
                     .inner = distilbert_inner,
                     .layers = "distilbert.transformer.layer."},
    GgufArchitecture{.type = "modernbert",
                     .configure = configure_modernbert,
                     .describe = describe_modernbert,
                     .outer = modernbert_outer,
                     .inner = modernbert_inner},
};

}  // namespace

std::string_view GgufArchitecture::name() const {
  return model_type(type).gguf;
}

const GgufArchitecture& gguf_architecture(const GgufFile& file) {
  constexpr const char* key = "general.architecture";
  const std::string name = file.text(key);
  const auto found = std::ranges::find(architectures, name, &GgufArchitecture::name);
  if (found != architectures.end()) return *found;
  std::vector<std::string_view> known;
  for (const GgufArchitecture& each : architectures)
    if (std::ranges::find(known, each.name()) == known.end()) known.push_back(each.name());
  file.refuse(key, fmt::format("{} is not known; {} are", quote(name), fmt::join(known, ", ")));
}

const GgufArchitecture& gguf_architecture_of(const Member& type) {
  const std::string name = type.text();
  const auto found = std::ranges::find(architectures, name, &GgufArchitecture::type);
  if (found != architectures.end()) return *found;
  std::vector<std::string_view> known;
  known.reserve(std::size(architectures));
  for (const GgufArchitecture& each : architectures) known.push_back(each.type);
  fail_at(type.place(), "{} is not written as GGUF; {} are", quote(name), fmt::join(known, ", "));
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
  const auto& list = name.layer.empty() ? of.outer : of.inner;
  const auto found = std::ranges::find(list, name.part, &GgufRenamed::from);
  if (found == list.end()) return std::nullopt;
  if (name.layer.empty()) return fmt::format("{}{}", found->to, name.kind);
  return fmt::format("{}{}.{}{}", of.layers, name.layer, found->to, name.kind);
}

}  // namespace attend::inline v1::models
