#include "models/families/modernbert.h"

#include "core/message.h"
#include "layers/rows.h"
#include "models/families/embeddings.h"
#include "models/families/rotary.h"

namespace attend::inline v1::models {

namespace {

constexpr RotaryKeys global_rotary{.theta = "global_rope_theta", .usual_theta = 160'000, .of_layers = "full_attention"};
constexpr RotaryKeys local_rotary{.theta = "local_rope_theta", .usual_theta = 10'000, .of_layers = "sliding_attention"};

}  // namespace

// layer_types says it, or in older files how many layers come to one that sees all.
std::vector<bool> read_local_layers(const Member& config, std::int64_t layers) {
  constexpr const char* every = "global_attn_every_n_layers";
  std::vector<bool> local;
  if (!config.given("layer_types")) {
    const std::int64_t period = config.has(every) ? config[every].whole(1) : 3;
    for (std::int64_t n = 0; n < layers; ++n) local.push_back(n % period != 0);
    return local;
  }
  for (const Member& each : config["layer_types"].list()) {
    const std::string kind = each.text();
    local.push_back(kind == "sliding_attention");
    if (!local.back() && kind != "full_attention")
      fail_at(each.place(), "{} is not known here; full_attention and sliding_attention are", quote(kind));
  }
  if (std::ssize(local) != layers)
    fail_at(config["layer_types"].place(), "{} types, expected one for each of {} layers", local.size(), layers);
  return local;
}

Rotary read_modernbert_rotary(const Member& config, bool local, const ModelInfo& info) {
  return read_rotary(config, local ? local_rotary : global_rotary, info.longest, info.head_size);
}

namespace {

// An object for each of the two kinds, or one of them, and nothing else.
void check_rotary(const Member& config) {
  if (!config.given("rope_parameters")) return;
  const Member all = config["rope_parameters"];
  all.only({global_rotary.of_layers, local_rotary.of_layers});
  for (const char* kind : {global_rotary.of_layers, local_rotary.of_layers})
    if (all.has(kind) && !all[kind].value().is_object()) all[kind].refuse("an object");
}

}  // namespace

ModernBert::ModernBert(Loading& loading, const Member& config) {
  info_.type = config["model_type"].text();
  info_.family = ModelFamily::modernbert;
  info_.dtype = loading.dtype();
  info_.vocabulary = config["vocab_size"].whole(1);
  info_.embedding_size = config["hidden_size"].whole(1);
  info_.layers = config["num_hidden_layers"].whole(0, 100'000);
  info_.heads = info_.kv_heads = config["num_attention_heads"].whole(1);
  info_.head_size = whole_divided(config, info_.embedding_size, info_.heads);
  info_.longest = config["max_position_embeddings"].whole(1);
  info_.mlp_size = config["intermediate_size"].whole(1);
  window_ = config["local_attention"].whole(0) / 2 + 1;
  activation_ = read_activation(config["hidden_activation"]);
  eps_ = number_from_0(config["norm_eps"]);
  norm_bias_ = config["norm_bias"].truth();
  const std::vector<bool> local = read_local_layers(config, info_.layers);

  const std::int64_t E = info_.embedding_size;
  words_ = loading.matrix("embeddings.tok_embeddings.weight", info_.vocabulary, E);
  embedding_norm_ = loading.layer_norm("embeddings.norm", E, eps_, norm_bias_);
  for (std::int64_t n = 0; n < info_.layers; ++n)
    layers_.push_back(read_layer(loading, n, config, local[static_cast<std::size_t>(n)]));
  norm_ = loading.layer_norm("final_norm", E, eps_, norm_bias_);
  for (const char* head : {"head.", "decoder."}) loading.ignore_head(head, false);
  loading.ignore_head("classifier.", true);
  check_rotary(config);
  for (const bool each : {false, true}) {
    const Rotary rotary = read_modernbert_rotary(config, each, info_);
    // Its table is as large as the configuration says a head is: a layer's tensors have shown that by now.
    if (!loading.checking() && !layers_.empty()) rotary_[each].emplace(rotary.size, rotary.options);
  }
}

ModernBert::Layer ModernBert::read_layer(Loading& loading, std::int64_t n, const Member& config, bool local) const {
  const std::int64_t E = info_.embedding_size;
  const bool bias = config["attention_bias"].truth(), wide_bias = config["mlp_bias"].truth();
  const std::string at = fmt::format("layers.{}.", n);
  std::optional<LayerNorm> attention_norm;
  if (n > 0) attention_norm = loading.layer_norm(at + "attn_norm", E, eps_, norm_bias_);
  std::vector<Linear> qkv = loading.linear_rows(at + "attn.Wqkv", E, {E, E, E}, bias);
  std::vector<Linear> wide = loading.linear_rows(at + "mlp.Wi", E, {info_.mlp_size, info_.mlp_size}, wide_bias);
  return {local,
          std::move(attention_norm),
          std::move(qkv[0]),
          std::move(qkv[1]),
          std::move(qkv[2]),
          loading.linear(at + "attn.Wo", E, E, bias),
          loading.layer_norm(at + "mlp_norm", E, eps_, norm_bias_),
          std::move(wide[0]),
          std::move(wide[1]),
          loading.linear(at + "mlp.Wo", info_.mlp_size, E, wide_bias)};
}

Tensor ModernBert::embed(const Batch& batch) const {
  Tensor x({std::ssize(batch.ids), info_.embedding_size});
  add_embeddings(x, words_, batch.ids);
  batch.at(ModelPlace::embeddings, 0, x);
  batch.embedded(x);
  return embedding_norm_->forward(x);
}

AttentionStep ModernBert::step(std::size_t n) const {
  return {.layer = static_cast<std::int64_t>(n),
          .heads = info_.heads,
          .kv_heads = info_.heads,
          .window = layers_[n].local ? window_ : 0,
          .output = &layers_[n].output};
}

void ModernBert::attend_layer(const Batch& batch, std::size_t n, Tensor& x, const RotaryAngles& angles) const {
  const Layer& layer = layers_[n];
  std::optional<Tensor> rows;
  if (layer.attention_norm) rows = layer.attention_norm->forward(x, info_.dtype);
  std::vector<Tensor> qkv = Linear::forward_each({&layer.query, &layer.key, &layer.value}, rows ? *rows : x);
  batch.projected(n, qkv[0].view(), qkv[1].view(), qkv[2].view());
  const Dims by_heads{x.size(0), info_.heads, info_.head_size};
  RotaryEmbedding::rotate(qkv[0].view().reshape(by_heads), angles);
  RotaryEmbedding::rotate(qkv[1].view().reshape(by_heads), angles);
  Tensor z = attend(batch, step(n), qkv[0].view(), qkv[1].view(), qkv[2].view());
  batch.at(ModelPlace::z, n, z);
  add_to(x, batch.seen(ModelPlace::attention, n, layer.output.forward(z)));
}

LayerParts ModernBert::parts(std::size_t n) const {
  const Layer& layer = layers_[n];
  LayerParts parts{.self = {{&layer.query}, {&layer.key}, {&layer.value}, &layer.output},
                   .gate = &layer.wide,
                   .in = &layer.gate,
                   .out = &layer.narrow};
  if (rotary_[layer.local]) parts.self.rotary = &*rotary_[layer.local];
  if (layer.attention_norm) {
    parts.norms.emplace_back("attention_norm", &*layer.attention_norm);
    parts.self.reads_by = &*layer.attention_norm;
  }
  parts.norms.emplace_back("mlp_norm", &layer.norm);
  return parts;
}

void ModernBert::run(const Batch& batch, Tensor& x, std::int64_t first, std::int64_t last) const {
  std::array<RotaryAngles, 2> angles;
  for (const bool local : {false, true})
    if (rotary_[local]) angles[local] = rotary_[local]->angles(batch.positions, batch.starts);
  for (auto n = static_cast<std::size_t>(first); n < static_cast<std::size_t>(last); ++n) {
    const Layer& layer = layers_[n];
    batch.at(ModelPlace::residual, n, x);
    attend_layer(batch, n, x, angles[layer.local]);
    batch.at(ModelPlace::residual_mid, n, x);

    const Tensor rows = batch.seen(ModelPlace::mlp_input, n, layer.norm.forward(x, info_.dtype));
    std::vector<Tensor> wide = Linear::forward_each({&layer.wide, &layer.gate}, rows);
    batch.activate(n, activation_, wide[0], &wide[1]);
    batch.at(ModelPlace::mlp_hidden, n, wide[0]);
    add_to(x, batch.seen(ModelPlace::mlp, n, layer.narrow.forward(wide[0])));
  }
}

void ModernBert::attend_layer_backward(Backward& pass, std::size_t n, Tensor& dx, const RotaryAngles& back) const {
  const Layer& layer = layers_[n];
  Tensor d = layer.output.input_gradient(pass.added(ModelPlace::attention, n, dx));
  HeadGradients qkv = pass.attended(step(n), pass.seen(ModelPlace::z, n, std::move(d)));
  pass.rotated(qkv.q, info_.heads, back);
  pass.rotated(qkv.k, info_.heads, back);
  pass.projected(n, qkv);
  d = input_gradient({{&layer.query, &qkv.q}, {&layer.key, &qkv.k}, {&layer.value, &qkv.v}});
  add_to(dx, layer.attention_norm ? pass.normed(*layer.attention_norm, d, pass.kept(n).residual) : std::move(d));
  pass.at(ModelPlace::residual, n, dx);
}

void ModernBert::backward(Backward& pass, Tensor& dx, std::int64_t first, std::int64_t last) const {
  std::array<RotaryAngles, 2> back;
  for (const bool local : {false, true}) {
    if (rotary_[local]) back[local] = rotary_[local]->angles(pass.batch().positions, pass.batch().starts).back();
  }
  for (auto n = static_cast<std::size_t>(last); n-- > static_cast<std::size_t>(first);) {
    const Layer& layer = layers_[n];
    const Tensor d =
        pass.mlp(n, activation_, &layer.wide, layer.gate, layer.narrow, pass.added(ModelPlace::mlp, n, dx));
    add_to(dx, pass.normed(layer.norm, d, pass.kept(n).residual_mid));
    pass.at(ModelPlace::residual_mid, n, dx);
    attend_layer_backward(pass, n, dx, back[layer.local]);
  }
}

void ModernBert::embed_backward(Backward& pass, Tensor& dx) const {
  dx = pass.normed(*embedding_norm_, dx, pass.kept().embedded);
  pass.at(ModelPlace::embeddings, 0, dx);
}

}  // namespace attend::inline v1::models
