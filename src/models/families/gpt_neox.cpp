#include "models/families/gpt_neox.h"

#include "layers/rows.h"
#include "models/families/embeddings.h"

namespace attend::inline v1::models {

GptNeox::GptNeox(Loading& loading, const Member& config) : info_(read_decoder(loading, config, ModelFamily::gpt_neox)) {
  info_.head_size = whole_divided(config, info_.embedding_size, info_.heads);
  if (config.given("head_dim") && config["head_dim"].value() != info_.head_size)
    fail_at(config["head_dim"].place(), "only {} is known here, the hidden size by the heads", info_.head_size);
  info_.mlp_size = config["intermediate_size"].whole(1);
  activation_ = read_activation(config["hidden_act"]);
  eps_ = number_from_0(config["layer_norm_eps"]);
  info_.parallel = config["use_parallel_residual"].truth();
  const RotaryKeys keys{.theta = "rotary_emb_base", .share = "rotary_pct", .usual_share = 0.25};
  const Rotary rotary = read_rotary(config, keys, info_.longest, info_.head_size);

  const std::int64_t E = info_.embedding_size;
  const bool bias = config["attention_bias"].truth();
  words_ = loading.matrix("embed_in.weight", info_.vocabulary, E);
  for (std::int64_t n = 0; n < info_.layers; ++n) layers_.push_back(read_layer(loading, n, bias));
  norm_ = loading.layer_norm("final_layer_norm", E, eps_);
  output_ = loading.head("embed_in.weight", words_, E, info_.vocabulary, config["tie_word_embeddings"].truth(),
                         "embed_out.weight");
  for (const char* made : {".attention.bias", ".attention.masked_bias", ".attention.rotary_emb.inv_freq"})
    loading.ignore_ending(made);
  loading.ignore_head("score.", true);
  // Its table is as large as the configuration says a head is: a layer's tensors have shown that by now.
  if (!loading.checking() && !layers_.empty()) rotary_.emplace(rotary.size, rotary.options);
}

GptNeox::Layer GptNeox::read_layer(Loading& loading, std::int64_t n, bool attention_bias) const {
  const std::int64_t E = info_.embedding_size;
  const std::string at = fmt::format("layers.{}.", n);
  return {loading.layer_norm(at + "input_layernorm", E, eps_),
          loading.linear(at + "attention.query_key_value", E, 3 * E, attention_bias),
          loading.linear(at + "attention.dense", E, E, attention_bias),
          loading.layer_norm(at + "post_attention_layernorm", E, eps_),
          loading.linear(at + "mlp.dense_h_to_4h", E, info_.mlp_size),
          loading.linear(at + "mlp.dense_4h_to_h", info_.mlp_size, E)};
}

AttentionStep GptNeox::step(std::size_t n) const {
  return {.layer = static_cast<std::int64_t>(n),
          .heads = info_.heads,
          .kv_heads = info_.heads,
          .causal = true,
          .output = &layers_[n].output};
}

Tensor GptNeox::attention(const Batch& batch, std::size_t n, const Tensor& x, const RotaryAngles& angles) const {
  const Layer& layer = layers_[n];
  const std::int64_t D = info_.head_size;
  Tensor all = layer.query_key_value.forward(layer.attention_norm.forward(x, info_.dtype));
  // Each head has its three side by side: [N,H,3D].
  const MutableView heads = all.view().reshape({x.size(0), info_.heads, 3 * D});
  const auto part = [&](std::int64_t i) { return heads.slice(2, i * D, (i + 1) * D); };
  batch.projected(n, part(0), part(1), part(2));
  for (const std::int64_t turned : {0, 1}) RotaryEmbedding::rotate(part(turned), angles);
  Tensor z = attend(batch, step(n), part(0), part(1), part(2));
  batch.at(ModelPlace::z, n, z);
  return batch.seen(ModelPlace::attention, n, layer.output.forward(z));
}

Tensor GptNeox::embed(const Batch& batch) const {
  Tensor x({std::ssize(batch.ids), info_.embedding_size});
  add_embeddings(x, words_, batch.ids);
  batch.at(ModelPlace::embeddings, 0, x);
  return x;
}

LayerParts GptNeox::parts(std::size_t n) const {
  const Layer& layer = layers_[n];
  const Linear* all = &layer.query_key_value;
  const std::int64_t D = info_.head_size;
  return {.self = {{all, 0, 3 * D},
                   {all, D, 3 * D},
                   {all, 2 * D, 3 * D},
                   &layer.output,
                   &layer.attention_norm,
                   rotary_ ? &*rotary_ : nullptr},
          .in = &layer.wide,
          .out = &layer.narrow,
          .mlp_reads_by = &layer.norm,
          .norms = {{"attention_norm", &layer.attention_norm}, {"mlp_norm", &layer.norm}}};
}

void GptNeox::run(const Batch& batch, Tensor& x, std::int64_t first, std::int64_t last) const {
  RotaryAngles angles;
  if (rotary_) angles = rotary_->angles(batch.positions, batch.starts);
  for (auto n = static_cast<std::size_t>(first); n < static_cast<std::size_t>(last); ++n) {
    const Layer& layer = layers_[n];
    batch.at(ModelPlace::residual, n, x);
    const Tensor attended = attention(batch, n, x, angles);
    if (!info_.parallel) {
      add_to(x, attended);
      batch.at(ModelPlace::residual_mid, n, x);
    }

    Tensor wide = layer.wide.forward(batch.seen(ModelPlace::mlp_input, n, layer.norm.forward(x, info_.dtype)));
    batch.activate(n, activation_, wide);
    batch.at(ModelPlace::mlp_hidden, n, wide);
    if (info_.parallel) add_to(x, attended);
    add_to(x, batch.seen(ModelPlace::mlp, n, layer.narrow.forward(wide)));
  }
}

// What comes back through a layer's attention, to the stream that it reads.
Tensor GptNeox::attention_backward(Backward& pass, std::size_t n, const Tensor& dx, const RotaryAngles& back) const {
  const Layer& layer = layers_[n];
  const std::int64_t H = info_.heads, D = info_.head_size;
  Tensor d = layer.output.input_gradient(pass.added(ModelPlace::attention, n, dx));
  HeadGradients qkv = pass.attended(step(n), pass.seen(ModelPlace::z, n, std::move(d)));
  pass.rotated(qkv.q, H, back);
  pass.rotated(qkv.k, H, back);
  pass.projected(n, qkv);
  Tensor all = Tensor::uninitialized({dx.size(0), 3 * H * D});
  const MutableView heads = all.view().reshape({dx.size(0), H, 3 * D});
  std::int64_t i = 0;
  for (const Tensor* each : {&qkv.q, &qkv.k, &qkv.v}) {
    heads.slice(2, i, i + D).copy_from(each->view().reshape({dx.size(0), H, D}));
    i += D;
  }
  return pass.normed(layer.attention_norm, layer.query_key_value.input_gradient(all), pass.kept(n).residual);
}

void GptNeox::backward(Backward& pass, Tensor& dx, std::int64_t first, std::int64_t last) const {
  RotaryAngles back;
  if (rotary_) back = rotary_->angles(pass.batch().positions, pass.batch().starts).back();
  for (auto n = static_cast<std::size_t>(last); n-- > static_cast<std::size_t>(first);) {
    const Layer& layer = layers_[n];
    const KeptLayer& kept = pass.kept(n);
    Tensor d = pass.mlp(n, activation_, nullptr, layer.wide, layer.narrow, pass.added(ModelPlace::mlp, n, dx));
    d = pass.normed(layer.norm, d, info_.parallel ? kept.residual : kept.residual_mid);
    if (info_.parallel) {
      add_to(d, attention_backward(pass, n, dx, back));
      add_to(dx, d);
    } else {
      add_to(dx, d);
      pass.at(ModelPlace::residual_mid, n, dx);
      add_to(dx, attention_backward(pass, n, dx, back));
    }
    pass.at(ModelPlace::residual, n, dx);
  }
}

}  // namespace attend::inline v1::models
