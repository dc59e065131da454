#include "models/published_config.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "models/config.h"

namespace attend::inline v1::models {

namespace {

using nlohmann::json;

// Of each such configuration: "names" of keys as Transformers has them, "only" the values that are no different from
// what is computed here, and "needed" the keys without which that code has values that are not looked up here.
// tests/pytorch/test_published_configs.py holds what comes of them against Transformers and against their formulas.
constexpr std::string_view configs_text = R"json({
"nomic_bert": {
  "names": {"n_embd": "hidden_size", "n_layer": "num_hidden_layers", "n_head": "num_attention_heads",
    "n_inner": "intermediate_size", "n_positions": "max_position_embeddings", "layer_norm_epsilon": "layer_norm_eps",
    "rotary_emb_base": "rope_theta"},
  "only": {"prenorm": [false], "parallel_block": [false], "rotary_emb_fraction": [1.0], "rotary_emb_scale_base": [null],
    "rotary_emb_interleaved": [false], "qkv_proj_bias": [false], "mlp_fc1_bias": [false], "mlp_fc2_bias": [false],
    "use_rms_norm": [false], "causal": [false], "moe_every_n_layers": [0], "num_experts": [0], "head_dim": []},
  "needed": ["vocab_size", "n_embd", "n_layer", "n_head", "n_inner", "n_positions", "layer_norm_epsilon",
    "activation_function", "rotary_emb_base", "rotary_emb_fraction", "qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias"]},
"gte": {
  "names": {},
  "only": {"position_embedding_type": ["rope"], "layer_norm_type": ["layer_norm"], "logn_attention_scale": [false],
    "pack_qkv": [true], "embedding_size": [], "head_dim": [], "rope_parameters": []},
  "needed": ["vocab_size", "type_vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads",
    "intermediate_size", "hidden_act", "layer_norm_eps", "max_position_embeddings", "rope_theta"]},
"jina_bert": {
  "names": {},
  "only": {},
  "needed": ["vocab_size", "type_vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads",
    "intermediate_size", "layer_norm_eps", "max_position_embeddings", "feed_forward_type"]}
})json";

const json& row_of(const char* name) {
  static const json table = json::parse(configs_text);
  return table[name];
}

json renamed(const Member& file, const char* name) {
  const json& row = row_of(name);
  refuse_others(file, row["only"]);
  for (const json& key : row["needed"]) (void)file[key.get<std::string>().c_str()];
  json config = file.value();
  rename(file, row["names"], config);
  config["model_type"] = name;
  return config;
}

json native_nomic(const Member& file) {
  json config = renamed(file, "nomic_bert");
  const Member gate = file["activation_function"];
  const std::string name = gate.text();
  if (name != "swiglu" && name != "geglu" && name != "glu")
    fail_at(gate.place(), "{} is not known here; swiglu, geglu and glu are", quote(name));
  config["hidden_act"] = name == "swiglu" ? "silu" : name == "geglu" ? "gelu" : "sigmoid";
  // Longer texts than these turn by another base, which depends on their length.
  constexpr const char* trained = "max_trained_positions";
  if (file.given("rotary_scaling_factor")) {
    const std::int64_t most = file.has(trained) ? file[trained].whole(1) : 2048;
    config["max_position_embeddings"] = std::min(most, file["n_positions"].whole(1));
  }
  return config;
}

// NTK scaling of a fixed factor f, with heads of D numbers: the base times f, and all frequencies by f^(2/D).
json native_gte(const Member& file) {
  json config = renamed(file, "gte");
  if (!file.given("rope_scaling")) return config;
  const Member scaling = file["rope_scaling"];
  scaling.only({"type", "factor", "mixed_b"});
  if (scaling["type"].text() != "ntk")
    fail_at(scaling["type"].place(), "{} is not known here; ntk is", quote(scaling["type"].text()));
  if (scaling.given("mixed_b")) fail_at(scaling["mixed_b"].place(), "is not known here");
  const double factor = scaling["factor"].number(), theta = number_above_0(file["rope_theta"]);
  if (!(factor >= 1) || !std::isfinite(factor)) scaling["factor"].refuse("a number from 1 on");
  const std::int64_t size = whole_divided(file, file["hidden_size"].whole(1), file["num_attention_heads"].whole(1));
  config.erase("rope_scaling");
  config.erase("rope_theta");
  config["rope_parameters"] = {{"rope_type", "linear"},
                               {"rope_theta", theta * factor},
                               {"factor", std::pow(factor, 2 / static_cast<double>(size))}};
  return config;
}

json native_jina(const Member& file) {
  json config = renamed(file, "jina_bert");
  const Member gate = file["feed_forward_type"];
  const std::string name = gate.text();
  if (name != "geglu" && name != "reglu")
    fail_at(gate.place(), "{} is not known here; geglu and reglu are", quote(name));
  config["hidden_act"] = name == "geglu" ? "gelu" : "relu";
  return config;
}

}  // namespace

json native_config(const Member& file) {
  const std::string type = file["model_type"].text();
  if (type == "nomic_bert" && file.has("n_embd")) return native_nomic(file);
  if (type == "new" || (type == "gte" && file.has("pack_qkv"))) return native_gte(file);
  if (type == "bert" && file.has("position_embedding_type") && file["position_embedding_type"].value() == "alibi")
    return native_jina(file);
  return file.value();
}

}  // namespace attend::inline v1::models
