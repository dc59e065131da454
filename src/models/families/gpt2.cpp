#include "models/families/gpt2.h"

#include <cmath>

#include "layers/rows.h"
#include "models/families/embeddings.h"

namespace attend::inline v1::models {

Gpt2::Gpt2(Loading& loading, const Member& config) {
  info_.type = config["model_type"].text();
  info_.family = ModelFamily::gpt2;
  info_.dtype = loading.dtype();
  info_.vocabulary = config["vocab_size"].whole(1);
  info_.embedding_size = config["n_embd"].whole(1);
  info_.layers = config["n_layer"].whole(0, 100'000);
  info_.heads = info_.kv_heads = config["n_head"].whole(1);
  info_.head_size = whole_divided(config, info_.embedding_size, info_.heads);
  info_.longest = config["n_positions"].whole(1);
  info_.end = end_ids(config);
  info_.mlp_size = config.given("n_inner") ? config["n_inner"].whole(1) : 4 * info_.embedding_size;
  activation_ = read_activation(config["activation_function"]);
  eps_ = number_from_0(config["layer_norm_epsilon"]);
  scaled_ = config["scale_attn_weights"].truth();
  scaled_by_layer_ = config["scale_attn_by_inverse_layer_idx"].truth();

  const std::int64_t E = info_.embedding_size;
  words_ = loading.matrix("wte.weight", info_.vocabulary, E);
  positions_ = loading.table("wpe.weight", info_.longest, E);
  for (std::int64_t n = 0; n < info_.layers; ++n) layers_.push_back(read_layer(loading, n));
  norm_ = loading.layer_norm("ln_f", E, eps_);
  output_ = loading.head("wte.weight", words_, E, info_.vocabulary, config["tie_word_embeddings"].truth());
  for (const char* mask : {".attn.bias", ".attn.masked_bias"}) loading.ignore_ending(mask);
  loading.ignore_head("score.", true);
}

Gpt2::Layer Gpt2::read_layer(Loading& loading, std::int64_t n) const {
  const std::int64_t E = info_.embedding_size;
  const std::string at = fmt::format("h.{}.", n);
  return {loading.layer_norm(at + "ln_1", E, eps_),
          loading.linear_in_out(at + "attn.c_attn", E, 3 * E),
          loading.linear_in_out(at + "attn.c_proj", E, E),
          loading.layer_norm(at + "ln_2", E, eps_),
          loading.linear_in_out(at + "mlp.c_fc", E, info_.mlp_size),
          loading.linear_in_out(at + "mlp.c_proj", info_.mlp_size, E)};
}

AttentionStep Gpt2::step(std::int64_t layer) const {
  double scale = scaled_ ? 1 / std::sqrt(static_cast<double>(info_.head_size)) : 1;
  if (scaled_by_layer_) scale /= static_cast<double>(layer + 1);
  return {.layer = layer,
          .heads = info_.heads,
          .kv_heads = info_.heads,
          .causal = true,
          .scale = scale,
          .output = &layers_[static_cast<std::size_t>(layer)].output};
}

Tensor Gpt2::embed(const Batch& batch) const {
  Tensor x({std::ssize(batch.ids), info_.embedding_size});
  add_embeddings(x, words_, batch.ids);
  batch.at(ModelPlace::embeddings, 0, x);
  add_embeddings(x, positions_, batch.positions);
  return x;
}

LayerParts Gpt2::parts(std::size_t n) const {
  const Layer& layer = layers_[n];
  const Linear* all = &layer.query_key_value;
  const std::int64_t E = info_.embedding_size;
  return {.self = {{all}, {all, E}, {all, 2 * E}, &layer.output, &layer.attention_norm},
          .in = &layer.wide,
          .out = &layer.narrow,
          .mlp_reads_by = &layer.norm,
          .norms = {{"attention_norm", &layer.attention_norm}, {"mlp_norm", &layer.norm}}};
}

void Gpt2::run(const Batch& batch, Tensor& x, std::int64_t first, std::int64_t last) const {
  const std::int64_t E = info_.embedding_size;
  for (auto n = static_cast<std::size_t>(first); n < static_cast<std::size_t>(last); ++n) {
    const Layer& layer = layers_[n];
    batch.at(ModelPlace::residual, n, x);
    Tensor all = layer.query_key_value.forward(layer.attention_norm.forward(x, info_.dtype));
    const auto part = [&](std::int64_t i) { return all.view().slice(1, i * E, (i + 1) * E); };
    batch.projected(n, part(0), part(1), part(2));
    Tensor z = attend(batch, step(static_cast<std::int64_t>(n)), part(0), part(1), part(2));
    batch.at(ModelPlace::z, n, z);
    add_to(x, batch.seen(ModelPlace::attention, n, layer.output.forward(z)));
    batch.at(ModelPlace::residual_mid, n, x);

    Tensor wide = layer.wide.forward(batch.seen(ModelPlace::mlp_input, n, layer.norm.forward(x, info_.dtype)));
    batch.activate(n, activation_, wide);
    batch.at(ModelPlace::mlp_hidden, n, wide);
    add_to(x, batch.seen(ModelPlace::mlp, n, layer.narrow.forward(wide)));
  }
}

void Gpt2::backward(Backward& pass, Tensor& dx, std::int64_t first, std::int64_t last) const {
  const std::int64_t E = info_.embedding_size;
  for (auto n = static_cast<std::size_t>(last); n-- > static_cast<std::size_t>(first);) {
    const Layer& layer = layers_[n];
    const KeptLayer& kept = pass.kept(n);
    Tensor d = pass.mlp(n, activation_, nullptr, layer.wide, layer.narrow, pass.added(ModelPlace::mlp, n, dx));
    add_to(dx, pass.normed(layer.norm, d, kept.residual_mid));
    pass.at(ModelPlace::residual_mid, n, dx);

    d = layer.output.input_gradient(pass.added(ModelPlace::attention, n, dx));
    HeadGradients qkv = pass.attended(step(static_cast<std::int64_t>(n)), pass.seen(ModelPlace::z, n, std::move(d)));
    pass.projected(n, qkv);
    Tensor all = Tensor::uninitialized({dx.size(0), 3 * E});
    std::int64_t i = 0;
    for (const Tensor* each : {&qkv.q, &qkv.k, &qkv.v}) {
      all.view().slice(1, i, i + E).copy_from(*each);
      i += E;
    }
    add_to(dx, pass.normed(layer.attention_norm, layer.query_key_value.input_gradient(all), kept.residual));
    pass.at(ModelPlace::residual, n, dx);
  }
}

}  // namespace attend::inline v1::models
