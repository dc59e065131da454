#include "models/llama.h"

#include <algorithm>
#include <array>

#include "layers/rows.h"
#include "models/embeddings.h"
#include "models/rotary.h"

namespace attend::models {

// In what the types differ: nowhere else is one asked for its name.
struct LlamaType {
  std::string_view name;
  bool null_head_size = true;  // head_dim may be null
  bool whole_heads = false;    // heads share the hidden size, whatever head_dim says
  bool may_have_bias = false;  // attention_bias says whether queries, keys, values and output have one
  bool has_bias = false;       // queries, keys and values do
  bool wide_bias = false;      // mlp_bias says whether the others have one
  bool head_norms = false;     // queries and keys are normalised, each head by itself
  bool some_windows = false;   // use_sliding_window, layer_types and max_window_layers say which layers have a window
};

namespace {

constexpr std::array<LlamaType, 4> types = {{
    {.name = "llama", .whole_heads = true, .may_have_bias = true, .wide_bias = true},
    {.name = "mistral"},
    {.name = "qwen2", .null_head_size = false, .has_bias = true, .some_windows = true},
    {.name = "qwen3", .may_have_bias = true, .head_norms = true, .some_windows = true},
}};

std::int64_t read_head_size(const Member& config, const LlamaType& type, const ModelInfo& info) {
  const bool said = type.null_head_size ? config.given("head_dim") : config.has("head_dim");
  if (said && !type.whole_heads) return config["head_dim"].whole(2);
  const std::int64_t shared = whole_divided(config, info.embedding_size, info.heads);
  return said ? config["head_dim"].whole(2) : shared;
}

}  // namespace

Llama::Llama(Loading& loading, const Member& config) {
  info_.type = config["model_type"].text();
  const LlamaType& type = *std::ranges::find(types, info_.type, &LlamaType::name);
  info_.family = ModelFamily::llama;
  info_.dtype = loading.dtype();
  info_.vocabulary = config["vocab_size"].whole(1);
  info_.embedding_size = config["hidden_size"].whole(1);
  info_.layers = config["num_hidden_layers"].whole(0, 100'000);
  info_.heads = config["num_attention_heads"].whole(1);
  info_.kv_heads = config.given("num_key_value_heads") ? config["num_key_value_heads"].whole(1) : info_.heads;
  info_.head_size = read_head_size(config, type, info_);
  if (info_.heads % info_.kv_heads != 0)
    fail_at(config.place(), "{} heads are no multiple of {} key and value heads", info_.heads, info_.kv_heads);
  if (info_.heads > Member::most / info_.head_size)
    fail_at(config.place(), "{} heads of {} numbers are more than a matrix can have", info_.heads, info_.head_size);
  info_.longest = config["max_position_embeddings"].whole(1);
  info_.end = end_ids(config);
  wide_size_ = config["intermediate_size"].whole(1);
  activation_ = read_activation(config["hidden_act"]);
  eps_ = number_from_0(config["rms_norm_eps"]);
  const Rotary rotary = read_rotary(config, {}, info_.longest, info_.head_size);

  const std::int64_t E = info_.embedding_size;
  words_ = loading.matrix("embed_tokens.weight", info_.vocabulary, E);
  for (std::int64_t n = 0; n < info_.layers; ++n) layers_.push_back(read_layer(loading, n, type, config));
  read_windows(type, config);
  norm_ = loading.rms_norm("norm", E, eps_);
  output_ = loading.head("embed_tokens.weight", words_, E, info_.vocabulary, config["tie_word_embeddings"].truth());
  loading.ignore_ending(".rotary_emb.inv_freq");
  loading.ignore_beginning("score.");
  // Its table is as large as the configuration says a head is: a layer's tensors have shown that by now.
  if (!loading.checking() && !layers_.empty()) rotary_.emplace(rotary.size, rotary.options);
}

// Mistral's window is every layer's, whatever layer_types says: its code does not look at them. Of Qwen's, where
// windows are used at all, those of layer_types, or in older files the layers from max_window_layers on.
void Llama::read_windows(const LlamaType& type, const Member& config) {
  const bool some = type.some_windows, used = !some || config["use_sliding_window"].truth();
  const std::int64_t said = config.given("sliding_window") ? config["sliding_window"].whole(used ? 1 : 0) : 0;
  const std::int64_t window = used ? said : 0;
  windows_.assign(static_cast<std::size_t>(info_.layers), window);
  const auto first = static_cast<std::size_t>(some ? config["max_window_layers"].whole(0) : 0);
  for (std::size_t n = 0; n < std::min(first, windows_.size()); ++n) windows_[n] = 0;
  if (!config.given("layer_types")) return;
  const std::vector<Member> kinds = config["layer_types"].list();
  if (std::ssize(kinds) != info_.layers)
    fail_at(config["layer_types"].place(), "{} types, expected one for each of {} layers", kinds.size(), info_.layers);
  for (std::size_t n = 0; n < kinds.size(); ++n) {
    const std::string kind = kinds[n].text();
    const bool sliding = kind == "sliding_attention";
    if (!sliding && kind != "full_attention")
      fail_at(kinds[n].place(), "{} is not known here; full_attention and sliding_attention are", quote(kind));
    if (sliding && window == 0) fail_at(kinds[n].place(), "{}, and there is no sliding_window", quote(kind));
    if (some) windows_[n] = sliding ? window : 0;
  }
}

Llama::Layer Llama::read_layer(Loading& loading, std::int64_t n, const LlamaType& type, const Member& config) const {
  const std::int64_t E = info_.embedding_size, q = info_.heads * info_.head_size, kv = info_.kv_heads * info_.head_size;
  const bool output_bias = type.may_have_bias && config["attention_bias"].truth(), bias = output_bias || type.has_bias;
  const bool wide_bias = type.wide_bias && config["mlp_bias"].truth();
  const std::string at = fmt::format("layers.{}.", n), self = at + "self_attn.", mlp = at + "mlp.";
  Layer layer{loading.rms_norm(at + "input_layernorm", E, eps_),
              loading.linear(self + "q_proj", E, q, bias),
              loading.linear(self + "k_proj", E, kv, bias),
              loading.linear(self + "v_proj", E, kv, bias),
              loading.linear(self + "o_proj", q, E, output_bias),
              {},
              {},
              loading.rms_norm(at + "post_attention_layernorm", E, eps_),
              loading.linear(mlp + "gate_proj", E, wide_size_, wide_bias),
              loading.linear(mlp + "up_proj", E, wide_size_, wide_bias),
              loading.linear(mlp + "down_proj", wide_size_, E, wide_bias)};
  if (type.head_norms) {
    layer.query_norm = loading.rms_norm(self + "q_norm", info_.head_size, eps_);
    layer.key_norm = loading.rms_norm(self + "k_norm", info_.head_size, eps_);
  }
  return layer;
}

void Llama::attend_layer(const Batch& batch, std::size_t n, Tensor& x, const RotaryAngles& angles) const {
  const Layer& layer = layers_[n];
  const AttentionStep step{.layer = static_cast<std::int64_t>(n),
                           .heads = info_.heads,
                           .kv_heads = info_.kv_heads,
                           .causal = true,
                           .window = windows_[n],
                           .output = &layer.output};
  const std::int64_t N = x.size(0), D = info_.head_size;
  // [N,heads * D], each head normalised where there is a norm, and rotated
  const auto rotate = [&](Tensor& rows, const std::optional<RmsNorm>& norm, std::int64_t heads) {
    const Dims by_heads{N, heads, D};
    if (norm) rows = norm->forward(rows.view().reshape(by_heads), info_.dtype);
    RotaryEmbedding::rotate(rows.view().reshape(by_heads), angles);
  };
  std::vector<Tensor> qkv =
      Linear::forward_each({&layer.query, &layer.key, &layer.value}, layer.attention_norm.forward(x, info_.dtype));
  rotate(qkv[0], layer.query_norm, info_.heads);
  rotate(qkv[1], layer.key_norm, info_.kv_heads);
  Tensor z = attend(batch, step, qkv[0].view().reshape({N, info_.heads * D}),
                    qkv[1].view().reshape({N, info_.kv_heads * D}), qkv[2]);
  batch.at(ModelPlace::z, n, z);
  add_to(x, batch.seen(ModelPlace::attention, n, layer.output.forward(z)));
}

Tensor Llama::embed(const Batch& batch) const {
  Tensor x({std::ssize(batch.ids), info_.embedding_size});
  add_embeddings(x, words_, batch.ids);
  return x;
}

void Llama::run(const Batch& batch, Tensor& x, std::int64_t first, std::int64_t last) const {
  RotaryAngles angles;
  if (rotary_) angles = rotary_->angles(batch.positions, batch.starts);
  for (auto n = static_cast<std::size_t>(first); n < static_cast<std::size_t>(last); ++n) {
    batch.at(ModelPlace::residual, n, x);
    attend_layer(batch, n, x, angles);

    const Layer& layer = layers_[n];
    const Tensor rows = layer.norm.forward(x, info_.dtype);
    std::vector<Tensor> wide = Linear::forward_each({&layer.gate, &layer.up}, rows);
    activate(activation_, wide[0].view(), wide[1]);
    add_to(x, batch.seen(ModelPlace::mlp, n, layer.down.forward(wide[0])));
  }
}

}  // namespace attend::models
