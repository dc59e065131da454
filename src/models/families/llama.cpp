#include "models/families/llama.h"

#include <cmath>

#include "layers/rows.h"
#include "models/families/embeddings.h"
#include "models/families/llama_types.h"

namespace attend::inline v1::models {

namespace {

std::int64_t read_head_size(const Member& config, const LlamaType& type, const ModelInfo& info) {
  const bool said = type.null_head_size ? config.given("head_dim") : config.has("head_dim");
  if (said && !type.whole_heads) return config["head_dim"].whole(2);
  const std::int64_t shared = whole_divided(config, info.embedding_size, info.heads);
  return said ? config["head_dim"].whole(2) : shared;
}

// The class takes no whole number.
double read_softcap(const Member& config, const char* key) {
  if (!config.given(key)) return 0;
  if (!config[key].value().is_number_float()) config[key].refuse("a number with a decimal point");
  return number_above_0(config[key]);
}

// x, through the norm where there is one; `made` holds that.
View read_through(const std::optional<RmsNorm>& norm, const Tensor& x, DType dtype, Tensor& made) {
  if (!norm) return x;
  return made = norm->forward(x, dtype);
}

// Back through what attention or MLP reads by, or writes through.
Tensor back_through(const Backward& pass, const std::optional<RmsNorm>& norm, Tensor d, const Tensor& x) {
  return norm ? pass.normed(*norm, d, x) : std::move(d);
}

// What attention or MLP writes, likewise.
Tensor write_through(const Batch& batch, NormPlace place, std::size_t n, const std::optional<RmsNorm>& norm, Tensor x) {
  return norm ? batch.normed(place, n, *norm, x) : std::move(x);
}

}  // namespace

Llama::Llama(Loading& loading, const Member& config) : info_(read_decoder(loading, config, ModelFamily::llama)) {
  const LlamaType& type = llama_type(info_.type);
  if (config.given("num_key_value_heads")) info_.kv_heads = config["num_key_value_heads"].whole(1);
  info_.head_size = read_head_size(config, type, info_);
  if (info_.heads % info_.kv_heads != 0)
    fail_at(config.place(), "{} heads are not a multiple of {} key and value heads", info_.heads, info_.kv_heads);
  if (info_.heads > Member::most / info_.head_size)
    fail_at(config.place(), "{} heads of {} numbers are more than a matrix can have", info_.heads, info_.head_size);
  info_.mlp_size = config["intermediate_size"].whole(1);
  activation_ = read_activation(config[type.gemma ? "hidden_activation" : "hidden_act"]);
  eps_ = number_from_0(config["rms_norm_eps"]);
  heads_apart_ = type.head_norms;
  if (type.gemma) read_scales(config);
  constexpr const char* both_sides = "use_bidirectional_attention";
  causal_ = !type.may_encode || !config.given(both_sides) || !config[both_sides].truth();
  if (!causal_) {
    info_.family = ModelFamily::llama_encoder;
    info_.end.clear();
  }

  const std::int64_t E = info_.embedding_size;
  words_ = loading.matrix("embed_tokens.weight", info_.vocabulary, E);
  for (std::int64_t n = 0; n < info_.layers; ++n) layers_.push_back(read_layer(loading, n, type, config));
  read_positions(loading, type, config);
  norm_ = loading.rms_norm("norm", E, eps_, type.gemma ? 1 : 0);
  if (causal_)
    output_ = loading.head("embed_tokens.weight", words_, E, info_.vocabulary, config["tie_word_embeddings"].truth());
  else
    loading.ignore_head("lm_head.", false);
  const double softcap = type.gemma ? read_softcap(config, "final_logit_softcapping") : 0;
  if (output_) output_->softcap = softcap;
  loading.ignore_ending(".rotary_emb.inv_freq");
  loading.ignore_head("score.", true);
}

void Llama::read_scales(const Member& config) {
  const auto words = static_cast<float>(std::sqrt(static_cast<double>(info_.embedding_size)));
  words_scale_ = View(&words, DType::f32, {1}).to(info_.dtype).view().to(DType::f32).data<float>()[0];
  scale_ = 1 / std::sqrt(static_cast<double>(config["query_pre_attn_scalar"].whole(1)));
  softcap_ = read_softcap(config, "attn_logit_softcapping");
}

void Llama::read_positions(const Loading& loading, const LlamaType& type, const Member& config) {
  windows_ = read_windows(config, type.windows, info_.layers);
  for (std::int64_t& window : windows_)  // Gemma 3's is of both sides together
    if (!causal_ && window > 0) window = window / 2 + 1;
  std::vector<Rotary> rotary{read_rotary(config, type.rotary, info_.longest, info_.head_size)};
  if (type.window_rotary) rotary.push_back(read_rotary(config, *type.window_rotary, info_.longest, info_.head_size));
  if (type.rotary.longrope_alone) computed_again_after_ = rotary[0].options.original_length;
  const std::vector<bool> turning = type.some_turn ? turning_layers(config, info_.layers) : std::vector<bool>();
  for (std::size_t n = 0; n < layers_.size(); ++n)
    if (!type.some_turn || turning[n]) layers_[n].rotary = type.window_rotary && windows_[n] > 0 ? 1 : 0;
  // Its table is as large as the configuration says a head is: a layer's tensors have shown that by now.
  if (loading.checking() || layers_.empty()) return;
  for (const Rotary& each : rotary) rotary_.emplace_back(each.size, each.options);
}

Llama::Layer Llama::read_layer(Loading& loading, std::int64_t n, const LlamaType& type, const Member& config) const {
  const std::int64_t E = info_.embedding_size, q = info_.heads * info_.head_size, kv = info_.kv_heads * info_.head_size;
  const bool output_bias = type.may_have_bias && config["attention_bias"].truth(), bias = output_bias || type.has_bias;
  const bool wide_bias = type.wide_bias && config["mlp_bias"].truth();
  const std::string at = fmt::format("layers.{}.", n), self = at + "self_attn.", mlp = at + "mlp.";
  std::vector<Linear> in = type.fused ? loading.linear_rows(self + "qkv_proj", E, {q, kv, kv})
                                      : loading.linears(self, {"q_proj", "k_proj", "v_proj"}, E, {q, kv, kv}, bias);
  Linear output = loading.linear(self + "o_proj", q, E, output_bias);
  const std::vector<std::int64_t> both{info_.mlp_size, info_.mlp_size};
  std::vector<Linear> wide = type.fused ? loading.linear_rows(mlp + "gate_up_proj", E, both)
                                        : loading.linears(mlp, {"gate_proj", "up_proj"}, E, both, wide_bias);
  Layer layer{std::move(in[0]),
              std::move(in[1]),
              std::move(in[2]),
              std::move(output),
              std::move(wide[0]),
              std::move(wide[1]),
              loading.linear(mlp + "down_proj", info_.mlp_size, E, wide_bias)};
  read_norms(loading, at, type, layer);
  return layer;
}

void Llama::read_norms(Loading& loading, const std::string& at, const LlamaType& type, Layer& layer) const {
  const auto norm = [&](std::string_view name, std::int64_t size) {
    return loading.rms_norm(fmt::format("{}{}", at, name), size, eps_, type.gemma ? 1 : 0);
  };
  const std::int64_t E = info_.embedding_size, D = info_.head_size;
  if (type.norms_before) {
    layer.attention_norm = norm("input_layernorm", E);
    layer.norm = norm(type.norms_after ? "pre_feedforward_layernorm" : "post_attention_layernorm", E);
  }
  if (type.norms_after) {
    layer.attention_output_norm = norm("post_attention_layernorm", E);
    layer.mlp_output_norm = norm("post_feedforward_layernorm", E);
  }
  if (type.head_norms || type.row_norms) {
    layer.query_norm = norm("self_attn.q_norm", type.row_norms ? info_.heads * D : D);
    layer.key_norm = norm("self_attn.k_norm", type.row_norms ? info_.kv_heads * D : D);
  }
}

AttentionStep Llama::step(std::size_t n) const {
  return {.layer = static_cast<std::int64_t>(n),
          .heads = info_.heads,
          .kv_heads = info_.kv_heads,
          .causal = causal_,
          .window = windows_[n],
          .scale = scale_,
          .softcap = softcap_,
          .output = &layers_[n].output};
}

void Llama::attend_layer(const Batch& batch, std::size_t n, Tensor& x, const std::vector<RotaryAngles>& angles) const {
  const Layer& layer = layers_[n];
  Tensor normed;
  std::vector<Tensor> qkv = Linear::forward_each({&layer.query, &layer.key, &layer.value},
                                                 read_through(layer.attention_norm, x, info_.dtype, normed));
  batch.projected(n, qkv[0].view(), qkv[1].view(), qkv[2].view());
  // [N,heads * D], normalised where there is a norm, and turned
  const auto place = [&](Tensor& rows, const std::optional<RmsNorm>& norm, std::int64_t heads) {
    const Dims flat = rows.shape(), by_heads{x.size(0), heads, info_.head_size};
    if (KeptLayer* to = norm ? batch.keeps(n) : nullptr) (&norm == &layer.query_norm ? to->q : to->k) = rows.clone();
    if (norm) rows = norm->forward(rows.view().reshape(heads_apart_ ? by_heads : flat), info_.dtype);
    if (layer.rotary) RotaryEmbedding::rotate(rows.view().reshape(by_heads), angles[*layer.rotary]);
    return rows.view().reshape(flat);
  };
  const MutableView q = place(qkv[0], layer.query_norm, info_.heads), k = place(qkv[1], layer.key_norm, info_.kv_heads);
  Tensor z = attend(batch, step(n), q, k, qkv[2].view());
  batch.at(ModelPlace::z, n, z);
  Tensor written =
      write_through(batch, NormPlace::attention_output, n, layer.attention_output_norm, layer.output.forward(z));
  add_to(x, batch.seen(ModelPlace::attention, n, std::move(written)));
}

Tensor Llama::embed(const Batch& batch) const {
  Tensor x({std::ssize(batch.ids), info_.embedding_size});
  add_embeddings(x, words_, batch.ids);
  batch.at(ModelPlace::embeddings, 0, x);
  if (words_scale_ != 1) multiply(x, words_scale_);
  return x;
}

LayerParts Llama::parts(std::size_t n) const {
  const Layer& layer = layers_[n];
  LayerParts parts{.self = {{&layer.query}, {&layer.key}, {&layer.value}, &layer.output},
                   .gate = &layer.gate,
                   .in = &layer.up,
                   .out = &layer.down};
  for (const auto& [name, norm] :
       {std::pair("attention_norm", &layer.attention_norm), std::pair("mlp_norm", &layer.norm),
        std::pair("query_norm", &layer.query_norm), std::pair("key_norm", &layer.key_norm),
        std::pair("attention_output_norm", &layer.attention_output_norm),
        std::pair("mlp_output_norm", &layer.mlp_output_norm)})
    if (*norm) parts.norms.emplace_back(name, &**norm);
  if (layer.attention_norm) parts.self.reads_by = &*layer.attention_norm;
  if (layer.norm) parts.mlp_reads_by = &*layer.norm;
  if (layer.attention_output_norm) parts.attention_writes_by = &*layer.attention_output_norm;
  if (layer.rotary) parts.self.rotary = &rotary_[*layer.rotary];
  return parts;
}

void Llama::run(const Batch& batch, Tensor& x, std::int64_t first, std::int64_t last) const {
  std::vector<RotaryAngles> angles;
  angles.reserve(rotary_.size());
  for (const RotaryEmbedding& rotary : rotary_) angles.push_back(rotary.angles(batch.positions, batch.starts));
  for (auto n = static_cast<std::size_t>(first); n < static_cast<std::size_t>(last); ++n) {
    batch.at(ModelPlace::residual, n, x);
    attend_layer(batch, n, x, angles);
    batch.at(ModelPlace::residual_mid, n, x);

    const Layer& layer = layers_[n];
    Tensor rows;
    if (layer.norm) rows = batch.seen(ModelPlace::mlp_input, n, layer.norm->forward(x, info_.dtype));
    std::vector<Tensor> wide =
        Linear::forward_each({&layer.gate, &layer.up}, layer.norm ? rows : batch.read_by_mlp(n, x, rows));
    batch.activate(n, activation_, wide[0], &wide[1]);
    batch.at(ModelPlace::mlp_hidden, n, wide[0]);
    Tensor written = write_through(batch, NormPlace::mlp_output, n, layer.mlp_output_norm, layer.down.forward(wide[0]));
    add_to(x, batch.seen(ModelPlace::mlp, n, std::move(written)));
  }
}

void Llama::attend_layer_backward(Backward& pass, std::size_t n, Tensor& dx,
                                  const std::vector<RotaryAngles>& back) const {
  const Layer& layer = layers_[n];
  const KeptLayer& kept = pass.kept(n);
  Tensor d = back_through(pass, layer.attention_output_norm, pass.added(ModelPlace::attention, n, dx),
                          kept.before(NormPlace::attention_output));
  HeadGradients qkv = pass.attended(step(n), pass.seen(ModelPlace::z, n, layer.output.input_gradient(d)));
  const auto place = [&](Tensor& d_rows, const std::optional<RmsNorm>& norm, const Tensor& before, std::int64_t heads) {
    if (layer.rotary) pass.rotated(d_rows, heads, back[*layer.rotary]);
    if (norm) d_rows = pass.normed_heads(*norm, d_rows, before, heads_apart_ ? heads : 1);
  };
  place(qkv.q, layer.query_norm, kept.q, info_.heads);
  place(qkv.k, layer.key_norm, kept.k, info_.kv_heads);
  pass.projected(n, qkv);
  d = input_gradient({{&layer.query, &qkv.q}, {&layer.key, &qkv.k}, {&layer.value, &qkv.v}});
  add_to(dx, back_through(pass, layer.attention_norm, std::move(d), kept.residual));
  pass.at(ModelPlace::residual, n, dx);
}

void Llama::backward(Backward& pass, Tensor& dx, std::int64_t first, std::int64_t last) const {
  std::vector<RotaryAngles> back;
  back.reserve(rotary_.size());
  for (const RotaryEmbedding& rotary : rotary_)
    back.push_back(rotary.angles(pass.batch().positions, pass.batch().starts).back());
  for (auto n = static_cast<std::size_t>(last); n-- > static_cast<std::size_t>(first);) {
    const Layer& layer = layers_[n];
    const KeptLayer& kept = pass.kept(n);
    Tensor d = back_through(pass, layer.mlp_output_norm, pass.added(ModelPlace::mlp, n, dx),
                            kept.before(NormPlace::mlp_output));
    d = pass.mlp(n, activation_, &layer.gate, layer.up, layer.down, d);
    add_to(dx, back_through(pass, layer.norm, std::move(d), kept.residual_mid));
    pass.at(ModelPlace::residual_mid, n, dx);
    attend_layer_backward(pass, n, dx, back);
  }
}

void Llama::embed_backward(Backward& pass, Tensor& dx) const {
  if (words_scale_ != 1) multiply(dx, words_scale_);
  pass.at(ModelPlace::embeddings, 0, dx);
}

}  // namespace attend::inline v1::models
