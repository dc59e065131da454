#include "models/config.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

namespace attend::inline v1::models {

namespace {

using nlohmann::json;

// Of each type what its class in Transformers 5.23 has: "defaults" of the keys that are computed with here, "nullable"
// those of them that may be null though their default is not, "aliases" other names of keys. "only": the keys that
// Transformers computes with besides, and the values that are no different from what is computed here; "every" has
// those of all types. All other keys are without effect there, and so they are here. tests/pytorch/test_model_config.py
// holds this against the classes, and against what their code reads.
constexpr std::string_view table_text = R"json({
"every": {
  "only": {"is_encoder_decoder": [false], "quantization_config": [null], "per_layer_config": [null],
    "transformers_weights": [null], "fusion_config": [null], "text_config": [null], "decoder": [null],
    "generator": [null], "text_encoder": [null], "attribute_map": [], "_heterogeneity_spec": []}},
"bert": {
  "defaults": {"vocab_size": 30522, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
    "intermediate_size": 3072, "hidden_act": "gelu", "max_position_embeddings": 512, "type_vocab_size": 2,
    "layer_norm_eps": 1e-12},
  "only": {"is_decoder": [false], "add_cross_attention": [false], "position_embedding_type": ["absolute", null]}},
"roberta": {
  "defaults": {"vocab_size": 50265, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
    "intermediate_size": 3072, "hidden_act": "gelu", "max_position_embeddings": 512, "type_vocab_size": 2,
    "layer_norm_eps": 1e-12, "pad_token_id": 1},
  "only": {"is_decoder": [false], "add_cross_attention": [false], "position_embedding_type": ["absolute", null]}},
"xlm-roberta": {
  "defaults": {"vocab_size": 30522, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
    "intermediate_size": 3072, "hidden_act": "gelu", "max_position_embeddings": 512, "type_vocab_size": 2,
    "layer_norm_eps": 1e-12, "pad_token_id": 1},
  "only": {"is_decoder": [false], "add_cross_attention": [false], "position_embedding_type": ["absolute", null]}},
"camembert": {
  "defaults": {"vocab_size": 30522, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
    "intermediate_size": 3072, "hidden_act": "gelu", "max_position_embeddings": 512, "type_vocab_size": 2,
    "layer_norm_eps": 1e-12, "pad_token_id": 1},
  "only": {"is_decoder": [false], "add_cross_attention": [false], "position_embedding_type": ["absolute", null]}},
"distilbert": {
  "defaults": {"vocab_size": 30522, "dim": 768, "n_layers": 6, "n_heads": 12, "hidden_dim": 3072,
    "activation": "gelu", "max_position_embeddings": 512},
  "aliases": {"hidden_size": "dim", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads"}},
"mpnet": {
  "defaults": {"vocab_size": 30527, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
    "intermediate_size": 3072, "hidden_act": "gelu", "max_position_embeddings": 512, "layer_norm_eps": 1e-12,
    "relative_attention_num_buckets": 32}},
"albert": {
  "defaults": {"vocab_size": 30000, "embedding_size": 128, "hidden_size": 4096, "num_hidden_layers": 12,
    "num_hidden_groups": 1, "num_attention_heads": 64, "intermediate_size": 16384, "inner_group_num": 1,
    "hidden_act": "gelu_new", "max_position_embeddings": 512, "type_vocab_size": 2, "layer_norm_eps": 1e-12}},
"electra": {
  "defaults": {"vocab_size": 30522, "embedding_size": 128, "hidden_size": 256, "num_hidden_layers": 12,
    "num_attention_heads": 4, "intermediate_size": 1024, "hidden_act": "gelu", "max_position_embeddings": 512,
    "type_vocab_size": 2, "layer_norm_eps": 1e-12},
  "only": {"is_decoder": [false], "add_cross_attention": [false], "position_embedding_type": ["absolute", null]}},
"nomic_bert": {
  "defaults": {"vocab_size": 30528, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
    "intermediate_size": 3072, "hidden_act": "silu", "max_position_embeddings": 2048, "type_vocab_size": 2,
    "layer_norm_eps": 1e-12, "rope_parameters": null, "head_dim": null},
  "only": {"layer_types": [null], "partial_rotary_factor": [1.0, null], "_rope_type_labels": [null]}},
"gte": {
  "defaults": {"vocab_size": 250048, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
    "intermediate_size": 3072, "hidden_act": "gelu", "max_position_embeddings": 8192, "type_vocab_size": 1,
    "layer_norm_eps": 1e-12, "rope_parameters": null},
  "only": {"layer_types": [null], "partial_rotary_factor": [1.0, null], "_rope_type_labels": [null]}},
"jina_bert": {
  "defaults": {"vocab_size": 30522, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
    "intermediate_size": 3072, "hidden_act": "gelu", "max_position_embeddings": 512, "type_vocab_size": 2,
    "layer_norm_eps": 1e-12},
  "only": {"is_decoder": [false], "add_cross_attention": [false]}},
"modernbert": {
  "defaults": {"vocab_size": 50368, "hidden_size": 768, "intermediate_size": 1152, "num_hidden_layers": 22,
    "num_attention_heads": 12, "hidden_activation": "gelu", "max_position_embeddings": 8192, "norm_eps": 1e-5,
    "norm_bias": false, "attention_bias": false, "layer_types": null, "rope_parameters": null, "local_attention": 128,
    "mlp_bias": false},
  "only": {"rope_scaling": [null], "partial_rotary_factor": [1.0, null], "sliding_window": [], "head_dim": [],
    "_rope_type_labels": [null]}},
"gpt2": {
  "defaults": {"vocab_size": 50257, "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "n_inner": null,
    "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "scale_attn_weights": true,
    "scale_attn_by_inverse_layer_idx": false, "tie_word_embeddings": true},
  "aliases": {"hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head",
    "max_position_embeddings": "n_positions"},
  "only": {"add_cross_attention": [false], "is_causal": [true], "layer_types": [null], "sliding_window": [null],
    "attention_chunk_size": [null], "kv_sharing_modes": [null]}},
"llama": {
  "defaults": {"vocab_size": 32000, "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": null, "head_dim": null, "intermediate_size": 11008, "hidden_act": "silu",
    "max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "rope_parameters": null, "attention_bias": false,
    "mlp_bias": false, "tie_word_embeddings": false},
  "only": {"is_causal": [true], "partial_rotary_factor": [1.0, null], "_rope_type_labels": [null], "sliding_window": [null],
    "attention_chunk_size": [null], "kv_sharing_modes": [null]}},
"mistral": {
  "defaults": {"vocab_size": 32000, "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": null, "intermediate_size": 14336, "hidden_act": "silu",
    "max_position_embeddings": 131072, "rms_norm_eps": 1e-6, "rope_parameters": null, "sliding_window": 4096,
    "tie_word_embeddings": false},
  "nullable": ["sliding_window"],
  "only": {"is_causal": [true], "partial_rotary_factor": [1.0, null], "_rope_type_labels": [null], "attention_chunk_size": [null],
    "kv_sharing_modes": [null]}},
"qwen2": {
  "defaults": {"vocab_size": 151936, "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 32, "intermediate_size": 22016, "hidden_act": "silu", "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-6, "rope_parameters": null, "use_sliding_window": false, "sliding_window": 4096,
    "max_window_layers": 28, "layer_types": null, "tie_word_embeddings": false},
  "nullable": ["num_key_value_heads", "sliding_window"],
  "only": {"is_causal": [true], "partial_rotary_factor": [1.0, null], "_rope_type_labels": [null], "attention_chunk_size": [null],
    "kv_sharing_modes": [null]}},
"qwen3": {
  "defaults": {"vocab_size": 151936, "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 32, "head_dim": 128, "intermediate_size": 22016, "hidden_act": "silu",
    "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "rope_parameters": null, "attention_bias": false,
    "use_sliding_window": false, "sliding_window": 4096, "max_window_layers": 28, "layer_types": null,
    "tie_word_embeddings": false},
  "nullable": ["num_key_value_heads", "sliding_window"],
  "only": {"is_causal": [true], "partial_rotary_factor": [1.0, null], "_rope_type_labels": [null], "attention_chunk_size": [null],
    "kv_sharing_modes": [null]}},
"smollm3": {
  "defaults": {"vocab_size": 128256, "hidden_size": 2048, "num_hidden_layers": 36, "num_attention_heads": 16,
    "num_key_value_heads": 4, "intermediate_size": 11008, "hidden_act": "silu", "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-6, "rope_parameters": null, "attention_bias": false, "mlp_bias": false, "no_rope_layers": null,
    "no_rope_layer_interval": 4, "use_sliding_window": false, "sliding_window": null, "layer_types": null,
    "tie_word_embeddings": true},
  "nullable": ["num_key_value_heads"],
  "only": {"is_causal": [true], "partial_rotary_factor": [1.0, null], "_rope_type_labels": [null], "attention_chunk_size": [null],
    "kv_sharing_modes": [null]}},
"phi3": {
  "defaults": {"vocab_size": 32064, "hidden_size": 3072, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": null, "intermediate_size": 8192, "hidden_act": "silu", "max_position_embeddings": 4096,
    "original_max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_parameters": null, "sliding_window": null,
    "tie_word_embeddings": false},
  "only": {"is_causal": [true], "_rope_type_labels": [null], "attention_chunk_size": [null], "kv_sharing_modes": [null]}},
"olmo2": {
  "defaults": {"vocab_size": 50304, "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": null, "intermediate_size": 11008, "hidden_act": "silu", "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5, "rope_parameters": null, "attention_bias": false, "tie_word_embeddings": false},
  "only": {"is_causal": [true], "partial_rotary_factor": [1.0, null], "_rope_type_labels": [null], "sliding_window": [null],
    "attention_chunk_size": [null], "kv_sharing_modes": [null]}},
"gemma2": {
  "defaults": {"vocab_size": 256000, "hidden_size": 2304, "num_hidden_layers": 26, "num_attention_heads": 8,
    "num_key_value_heads": 4, "head_dim": 256, "intermediate_size": 9216, "hidden_activation": "gelu_pytorch_tanh",
    "max_position_embeddings": 8192, "rms_norm_eps": 1e-6, "rope_parameters": null, "attention_bias": false,
    "query_pre_attn_scalar": 256, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
    "sliding_window": 4096, "layer_types": null, "tie_word_embeddings": true},
  "nullable": ["sliding_window", "attn_logit_softcapping", "final_logit_softcapping"],
  "only": {"is_causal": [true], "use_bidirectional_attention": [null, false], "partial_rotary_factor": [1.0, null],
    "_rope_type_labels": [null], "attention_chunk_size": [null], "kv_sharing_modes": [null]}},
"gemma3_text": {
  "defaults": {"vocab_size": 262208, "hidden_size": 2304, "num_hidden_layers": 26, "num_attention_heads": 8,
    "num_key_value_heads": 4, "head_dim": 256, "intermediate_size": 9216, "hidden_activation": "gelu_pytorch_tanh",
    "max_position_embeddings": 131072, "rms_norm_eps": 1e-6, "rope_parameters": null, "attention_bias": false,
    "query_pre_attn_scalar": 256, "final_logit_softcapping": null, "sliding_window": 4096, "layer_types": null,
    "use_bidirectional_attention": false, "tie_word_embeddings": true},
  "nullable": ["sliding_window", "use_bidirectional_attention"],
  "only": {"is_causal": [true], "attn_logit_softcapping": [null],
    "partial_rotary_factor": [1.0, null], "_rope_type_labels": [null], "attention_chunk_size": [null],
    "kv_sharing_modes": [null]}},
"gpt_neox": {
  "defaults": {"vocab_size": 50432, "hidden_size": 6144, "num_hidden_layers": 44, "num_attention_heads": 64,
    "intermediate_size": 24576, "hidden_act": "gelu", "max_position_embeddings": 2048, "layer_norm_eps": 1e-5,
    "rope_parameters": null, "use_parallel_residual": true, "attention_bias": true, "tie_word_embeddings": false},
  "only": {"is_causal": [true], "_rope_type_labels": [null], "layer_types": [null], "sliding_window": [null], "attention_chunk_size": [null],
    "kv_sharing_modes": [null]}},
"opt": {
  "defaults": {"vocab_size": 50272, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
    "ffn_dim": 3072, "activation_function": "relu", "max_position_embeddings": 2048, "word_embed_proj_dim": null,
    "do_layer_norm_before": true, "_remove_final_layer_norm": false, "enable_bias": true,
    "layer_norm_elementwise_affine": true, "tie_word_embeddings": true},
  "only": {"is_causal": [true], "layer_types": [null], "sliding_window": [null], "attention_chunk_size": [null],
    "kv_sharing_modes": [null]}},
"bart": {
  "defaults": {"vocab_size": 50265, "max_position_embeddings": 1024, "encoder_layers": 12, "encoder_ffn_dim": 4096,
    "encoder_attention_heads": 16, "decoder_layers": 12, "decoder_ffn_dim": 4096, "decoder_attention_heads": 16,
    "activation_function": "gelu", "d_model": 1024, "scale_embedding": false, "decoder_start_token_id": 2,
    "tie_word_embeddings": true},
  "nullable": ["encoder_layers", "encoder_ffn_dim", "encoder_attention_heads", "decoder_layers", "decoder_ffn_dim",
    "decoder_attention_heads", "activation_function", "d_model", "scale_embedding", "decoder_start_token_id"],
  "aliases": {"hidden_size": "d_model", "num_attention_heads": "encoder_attention_heads",
    "num_hidden_layers": "encoder_layers"},
  "only": {"is_encoder_decoder": [true], "is_decoder": [false], "is_causal": [true], "sliding_window": [null],
    "attention_chunk_size": [null], "kv_sharing_modes": [null]}},
"marian": {
  "defaults": {"vocab_size": 58101, "decoder_vocab_size": null, "max_position_embeddings": 1024, "encoder_layers": 12,
    "encoder_ffn_dim": 4096, "encoder_attention_heads": 16, "decoder_layers": 12, "decoder_ffn_dim": 4096,
    "decoder_attention_heads": 16, "activation_function": "gelu", "d_model": 1024, "scale_embedding": false,
    "decoder_start_token_id": 58100, "share_encoder_decoder_embeddings": true, "tie_word_embeddings": true},
  "aliases": {"hidden_size": "d_model", "num_attention_heads": "encoder_attention_heads",
    "num_hidden_layers": "encoder_layers"},
  "only": {"is_encoder_decoder": [true], "is_decoder": [false], "is_causal": [true], "sliding_window": [null],
    "attention_chunk_size": [null], "kv_sharing_modes": [null]}},
"t5": {
  "defaults": {"vocab_size": 32128, "d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6,
    "num_decoder_layers": null, "num_heads": 8, "relative_attention_num_buckets": 32,
    "relative_attention_max_distance": 128, "layer_norm_epsilon": 1e-6, "feed_forward_proj": "relu"},
  "aliases": {"hidden_size": "d_model", "num_attention_heads": "num_heads", "num_hidden_layers": "num_layers",
    "head_dim": "d_kv"},
  "only": {"is_encoder_decoder": [true, false], "is_decoder": [false], "is_causal": [true], "sliding_window": [null],
    "attention_chunk_size": [null], "kv_sharing_modes": [null]}}
})json";

const json& table() {
  static const json parsed = json::parse(table_text);
  return parsed;
}

// A part of a type's row; an empty one where it has none.
const json& part_of(const json& row, const char* name) {
  static const json none = json::object();
  return row.contains(name) ? row[name] : none;
}

// What `of_type` says of a key goes first.
void check_only(const Member& file, const json& only, const json& of_type) {
  for (const auto& [key, values] : only.items()) {
    if (!file.has(key.c_str()) || of_type.contains(key)) continue;
    const Member member = file[key.c_str()];
    if (std::ranges::find(values, member.value()) != values.end()) continue;
    const std::string shown = quote(member.value().dump(-1, ' ', false, json::error_handler_t::replace));
    if (values.empty()) fail_at(member.place(), "is not known here");
    fail_at(member.place(), "{} is not known here; {} is", shown, values[0].dump());
  }
}

}  // namespace

void rename(const Member& file, const json& aliases, json& config) {
  for (const auto& [alias, name] : aliases.items()) {
    if (!file.has(alias.c_str())) continue;
    const auto key = name.get<std::string>();
    const Member other = file[alias.c_str()];
    if (file.has(key.c_str()) && other.value() != file[key.c_str()].value())
      fail_at(other.place(), "is another name for {}, which has another value", key);
    config[key] = other.value();
  }
}

void refuse_others(const Member& file, const json& only) {
  check_only(file, only, json::object());
}

json complete_config(const Member& file) {
  const json& row = table().at(file["model_type"].text());
  check_only(file, table().at("every").at("only"), part_of(row, "only"));
  refuse_others(file, part_of(row, "only"));
  json config = file.value();
  rename(file, part_of(row, "aliases"), config);
  const json& nullable = part_of(row, "nullable");
  for (const auto& [key, value] : row.at("defaults").items()) {
    if (!config.contains(key)) config[key] = value;
    const bool may_be_null = value.is_null() || std::ranges::find(nullable, json(key)) != nullable.end();
    if (config[key].is_null() && !may_be_null)
      fail_at(file.place().in(key), "is null; without it {} would be taken", value.dump());
    const Member found(file.place().in(key), config[key]);
    if (value.is_boolean() && !found.value().is_null()) found.truth();
    if (value.is_number_integer() && !found.value().is_null() && !found.value().is_number_integer())
      found.refuse("a whole number");
  }
  return config;
}

double number_from_0(const Member& of) {
  if (!(of.number() >= 0) || !std::isfinite(of.number())) of.refuse("a number from 0 on");
  return of.number();
}

double number_above_0(const Member& of) {
  if (!(of.number() > 0) || !std::isfinite(of.number())) of.refuse("a number above 0");
  return of.number();
}

std::int64_t whole_divided(const Member& config, std::int64_t embedding_size, std::int64_t heads) {
  if (embedding_size % heads != 0)
    fail_at(config.place(), "a hidden size of {} can't be shared by {} heads", embedding_size, heads);
  return embedding_size / heads;
}

std::string class_of_model(const Member& config) {
  if (!config.given("architectures")) return "";
  const json& list = config["architectures"].value();
  return list.is_array() && !list.empty() && list[0].is_string() ? list[0].get<std::string>() : "";
}

std::vector<std::int64_t> ids_of(const Member& of) {
  const std::vector<Member> list = of.value().is_array() ? of.list() : std::vector{of};
  std::vector<std::int64_t> ids;
  for (const Member& each : list)
    if (const std::int64_t id = each.whole(-Member::most); id >= 0) ids.push_back(id);
  return ids;
}

std::int64_t id_of(const Member& of) {
  if (!of.value().is_array()) return of.whole(0);
  const std::vector<Member> list = of.list();
  if (list.size() != 1) of.refuse("one id");
  return list.front().whole(0);
}

std::vector<std::int64_t> end_ids(const Member& config) {
  return config.given("eos_token_id") ? ids_of(config["eos_token_id"]) : std::vector<std::int64_t>();
}

std::optional<DType> said_dtype(const Member& config) {
  for (const char* key : {"dtype", "torch_dtype"}) {
    if (!config.given(key)) continue;
    const std::string name = config[key].text();
    if (name == "bfloat16") return DType::bf16;
    if (name == "float32" || name == "float16") return DType::f32;
    fail_at(config[key].place(), "{} is not known here; float32, float16 and bfloat16 are", quote(name));
  }
  return std::nullopt;
}

Activation read_activation(const Member& name) {
  // Without prelu and xielu, which have weights.
  constexpr std::pair<std::string_view, Activation> known[] = {
      {"gelu", Activation::gelu},
      {"gelu_10", Activation::gelu_10},
      {"gelu_accurate", Activation::gelu_tanh},
      {"gelu_fast", Activation::gelu_tanh},
      {"gelu_new", Activation::gelu_tanh},
      {"gelu_python", Activation::gelu},
      {"gelu_python_tanh", Activation::gelu_tanh},
      {"gelu_pytorch_tanh", Activation::gelu_tanh},
      {"hardswish", Activation::hardswish},
      {"laplace", Activation::laplace},
      {"leaky_relu", Activation::leaky_relu},
      {"linear", Activation::linear},
      {"mish", Activation::mish},
      {"quick_gelu", Activation::gelu_quick},
      {"relu", Activation::relu},
      {"relu2", Activation::relu_squared},
      {"relu6", Activation::relu6},
      {"sigmoid", Activation::sigmoid},
      {"silu", Activation::silu},
      {"sqrtsoftplus", Activation::sqrt_softplus},
      {"swish", Activation::silu},
      {"tanh", Activation::tanh},
  };
  const std::string text = name.text();
  const auto found = std::ranges::find(known, text, &std::pair<std::string_view, Activation>::first);
  if (found != std::end(known)) return found->second;
  std::vector<std::string_view> names;
  for (const auto& each : known) names.push_back(each.first);
  fail_at(name.place(), "{} is not known here; {} are", quote(text), fmt::join(names, ", "));
}

}  // namespace attend::inline v1::models
