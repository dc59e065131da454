#include "models/families/opt.h"

#include <algorithm>

#include "layers/rows.h"
#include "models/families/embeddings.h"

namespace attend::inline v1::models {

namespace {

constexpr double eps = 1e-5;
constexpr std::int64_t offset = 2;  // rows of the table of positions before the first one's

}  // namespace

Opt::Opt(Loading& loading, const Member& config) : info_(read_decoder(loading, config, ModelFamily::opt)) {
  info_.head_size = whole_divided(config, info_.embedding_size, info_.heads);
  const std::int64_t E = info_.embedding_size;
  info_.mlp_size = config["ffn_dim"].whole(1);
  info_.input_size = config.given("word_embed_proj_dim") ? config["word_embed_proj_dim"].whole(1) : E;
  activation_ = read_activation(config["activation_function"]);
  norms_before_ = config["do_layer_norm_before"].truth();
  affine_ = config["layer_norm_elementwise_affine"].truth();

  const std::string at = "decoder.";
  words_ = loading.matrix(at + "embed_tokens.weight", info_.vocabulary, info_.input_size);
  positions_ = loading.table(at + "embed_positions.weight", info_.longest + offset, E);
  if (info_.input_size != E) project_in_ = loading.linear(at + "project_in", info_.input_size, E, false);
  for (std::int64_t n = 0; n < info_.layers; ++n)
    layers_.push_back(read_layer(loading, n, config["enable_bias"].truth()));
  if (norms_before_ && !config["_remove_final_layer_norm"].truth()) norm_ = read_norm(loading, at + "final_layer_norm");
  output_ = loading.head(at + "embed_tokens.weight", words_, info_.input_size, info_.vocabulary,
                         config["tie_word_embeddings"].truth());
  if (info_.input_size != E) project_out_ = loading.linear(at + "project_out", E, info_.input_size, false);
  loading.ignore_head("score.", true);
  loading.ignore_head("qa_outputs.", true);
}

LayerNorm Opt::read_norm(Loading& loading, const std::string& name) const {
  const std::int64_t E = info_.embedding_size;
  return affine_ ? loading.layer_norm(name, E, eps) : loading.plain_layer_norm(E, eps);
}

Opt::Layer Opt::read_layer(Loading& loading, std::int64_t n, bool bias) const {
  const std::int64_t E = info_.embedding_size;
  const std::string at = fmt::format("decoder.layers.{}.", n), self = at + "self_attn.";
  return {read_norm(loading, at + "self_attn_layer_norm"),     loading.linear(self + "q_proj", E, E, bias),
          loading.linear(self + "k_proj", E, E, bias),         loading.linear(self + "v_proj", E, E, bias),
          loading.linear(self + "out_proj", E, E, bias),       read_norm(loading, at + "final_layer_norm"),
          loading.linear(at + "fc1", E, info_.mlp_size, bias), loading.linear(at + "fc2", info_.mlp_size, E, bias)};
}

AttentionStep Opt::step(std::size_t n) const {
  return {.layer = static_cast<std::int64_t>(n),
          .heads = info_.heads,
          .kv_heads = info_.heads,
          .causal = true,
          .output = &layers_[n].output};
}

Tensor Opt::embed(const Batch& batch) const {
  Tensor words({std::ssize(batch.ids), info_.input_size});
  add_embeddings(words, words_, batch.ids);
  batch.at(ModelPlace::embeddings, 0, words);
  Tensor x = project_in_ ? project_in_->forward(words, DType::f32) : std::move(words);
  std::vector<std::int64_t> places = batch.positions;
  for (std::int64_t& place : places) place += offset;
  add_embeddings(x, positions_, places);
  return x;
}

LayerParts Opt::parts(std::size_t n) const {
  const Layer& layer = layers_[n];
  LayerParts parts{.self = {{&layer.query}, {&layer.key}, {&layer.value}, &layer.output},
                   .in = &layer.wide,
                   .out = &layer.narrow,
                   .norms = {{"attention_norm", &layer.attention_norm}, {"mlp_norm", &layer.norm}}};
  if (norms_before_) parts.self.reads_by = &layer.attention_norm, parts.mlp_reads_by = &layer.norm;
  parts.norms_after_sums = !norms_before_;
  return parts;
}

void Opt::run(const Batch& batch, Tensor& x, std::int64_t first, std::int64_t last) const {
  for (auto n = static_cast<std::size_t>(first); n < static_cast<std::size_t>(last); ++n) {
    const Layer& layer = layers_[n];
    const auto read = [&](const LayerNorm& norm) {
      return norms_before_ ? norm.forward(x, info_.dtype) : converted(x, info_.dtype);
    };
    batch.at(ModelPlace::residual, n, x);
    std::vector<Tensor> qkv =
        Linear::forward_each({&layer.query, &layer.key, &layer.value}, read(layer.attention_norm));
    batch.projected(n, qkv[0].view(), qkv[1].view(), qkv[2].view());
    Tensor z = attend(batch, step(n), qkv[0].view(), qkv[1].view(), qkv[2].view());
    batch.at(ModelPlace::z, n, z);
    add_to(x, batch.seen(ModelPlace::attention, n, layer.output.forward(z)));
    if (!norms_before_) x = batch.normed(NormPlace::attention_sum, n, layer.attention_norm, x);
    batch.at(ModelPlace::residual_mid, n, x);

    Tensor wide = layer.wide.forward(batch.seen(ModelPlace::mlp_input, n, read(layer.norm)));
    batch.activate(n, activation_, wide);
    batch.at(ModelPlace::mlp_hidden, n, wide);
    add_to(x, batch.seen(ModelPlace::mlp, n, layer.narrow.forward(wide)));
    if (!norms_before_) x = batch.normed(NormPlace::mlp_sum, n, layer.norm, x);
  }
}

Tensor Opt::finish(Tensor x) const {
  if (norm_) x = norm_->forward(x);
  return project_out_ ? project_out_->forward(x, DType::f32) : std::move(x);
}

void Opt::backward(Backward& pass, Tensor& dx, std::int64_t first, std::int64_t last) const {
  for (auto n = static_cast<std::size_t>(last); n-- > static_cast<std::size_t>(first);) {
    const Layer& layer = layers_[n];
    const KeptLayer& kept = pass.kept(n);
    if (!norms_before_) dx = pass.normed(layer.norm, dx, kept.before(NormPlace::mlp_sum));
    Tensor d = pass.mlp(n, activation_, nullptr, layer.wide, layer.narrow, pass.added(ModelPlace::mlp, n, dx));
    add_to(dx, norms_before_ ? pass.normed(layer.norm, d, kept.residual_mid) : std::move(d));
    pass.at(ModelPlace::residual_mid, n, dx);

    if (!norms_before_) dx = pass.normed(layer.attention_norm, dx, kept.before(NormPlace::attention_sum));
    d = layer.output.input_gradient(pass.added(ModelPlace::attention, n, dx));
    HeadGradients qkv = pass.attended(step(n), pass.seen(ModelPlace::z, n, std::move(d)));
    pass.projected(n, qkv);
    d = input_gradient({{&layer.query, &qkv.q}, {&layer.key, &qkv.k}, {&layer.value, &qkv.v}});
    add_to(dx, norms_before_ ? pass.normed(layer.attention_norm, d, kept.residual) : std::move(d));
    pass.at(ModelPlace::residual, n, dx);
  }
}

void Opt::embed_backward(Backward& pass, Tensor& dx) const {
  if (project_in_) dx = project_in_->input_gradient(dx);
  pass.at(ModelPlace::embeddings, 0, dx);
}

Tensor Opt::finish_backward(const Backward& pass, const Tensor& d) const {
  Tensor dx = project_out_ ? project_out_->input_gradient(d) : d.clone();
  return norm_ ? pass.normed(*norm_, dx, pass.kept().last) : std::move(dx);
}

}  // namespace attend::inline v1::models
