#include "models/families/bart.h"

#include <cmath>

#include "layers/rows.h"
#include "models/families/embeddings.h"
#include "models/families/encoder_decoder.h"

namespace attend::inline v1::models {

namespace {

bool is_marian(const Member& config) {
  return config["model_type"].text() == "marian";
}

// Of the two stacks' own keys, "encoder_layers" and "decoder_layers".
Member of_stack(const Member& config, bool decodes, const char* key) {
  return config[((decodes ? "decoder_" : "encoder_") + std::string(key)).c_str()];
}

}  // namespace

BartStack::BartStack(Loading& loading, const Member& config, const Matrix& words, bool decodes)
    : causal_(decodes),
      E_(config["d_model"].whole(1)),
      heads_(of_stack(config, decodes, "attention_heads").whole(1)),
      wide_size_(of_stack(config, decodes, "ffn_dim").whole(1)),
      position_offset_(is_marian(config) ? 0 : 2),  // BART's table begins with two rows that no token has
      activation_(read_activation(config["activation_function"])),
      words_(words) {
  whole_divided(config, E_, heads_);
  if (config["scale_embedding"].truth()) word_scale_ = static_cast<float>(std::sqrt(static_cast<double>(E_)));
  const std::string name = decodes ? "decoder." : "encoder.";
  const Member longest = config["max_position_embeddings"];
  positions_ = is_marian(config)
                   ? loading.sines(name + "embed_positions.weight", longest, E_)
                   : loading.table(name + "embed_positions.weight", longest.whole(1) + position_offset_, E_);
  if (!is_marian(config)) embedding_norm_ = loading.layer_norm(name + "layernorm_embedding", E_, 1e-5);
  const std::int64_t layers = of_stack(config, decodes, "layers").whole(0, 100'000);
  for (std::int64_t n = 0; n < layers; ++n)
    layers_.push_back(read_layer(loading, fmt::format("{}layers.{}.", name, n), decodes));
}

BartStack::Attention BartStack::read_attention(Loading& loading, const std::string& at) const {
  return {loading.linear(at + ".q_proj", E_, E_), loading.linear(at + ".k_proj", E_, E_),
          loading.linear(at + ".v_proj", E_, E_), loading.linear(at + ".out_proj", E_, E_),
          loading.layer_norm(at + "_layer_norm", E_, 1e-5)};
}

BartStack::Layer BartStack::read_layer(Loading& loading, const std::string& at, bool decodes) const {
  Layer layer{read_attention(loading, at + "self_attn"),
              {},
              loading.linear(at + "fc1", E_, wide_size_),
              loading.linear(at + "fc2", wide_size_, E_),
              loading.layer_norm(at + "final_layer_norm", E_, 1e-5)};
  if (decodes) layer.cross = read_attention(loading, at + "encoder_attn");
  return layer;
}

AttentionStep BartStack::step(std::size_t layer, bool cross, const Linear& output) const {
  return {.layer = static_cast<std::int64_t>(layer),
          .heads = heads_,
          .kv_heads = heads_,
          .causal = causal_ && !cross,
          .cross = cross,
          .output = &output};
}

Tensor BartStack::embed(const Batch& batch) const {
  Tensor x({std::ssize(batch.ids), E_});
  add_embeddings(x, words_, batch.ids);
  batch.at(ModelPlace::embeddings, 0, x);
  if (word_scale_ != 1) multiply(x, word_scale_);
  std::vector<std::int64_t> places = batch.positions;
  for (std::int64_t& place : places) place += position_offset_;
  add_embeddings(x, positions_, places);
  batch.embedded(x);
  return embedding_norm_ ? embedding_norm_->forward(x) : std::move(x);
}

LayerParts BartStack::parts(std::size_t n) const {
  const Layer& layer = layers_[n];
  const auto attention = [](const Attention& of) {
    return LayerParts::Attention{{&of.query}, {&of.key}, {&of.value}, &of.output};
  };
  LayerParts parts{.self = attention(layer.self),
                   .in = &layer.wide,
                   .out = &layer.narrow,
                   .norms = {{"attention_norm", &layer.self.norm}, {"mlp_norm", &layer.norm}}};
  if (!layer.cross) return parts;
  parts.cross = attention(*layer.cross);
  parts.norms.emplace_back("cross_norm", &layer.cross->norm);
  return parts;
}

void BartStack::run(const Batch& batch, Tensor& x, std::int64_t first, std::int64_t last) const {
  for (auto n = static_cast<std::size_t>(first); n < static_cast<std::size_t>(last); ++n) {
    const Layer& layer = layers_[n];
    batch.at(ModelPlace::residual, n, x);
    std::vector<Tensor> qkv = Linear::forward_each({&layer.self.query, &layer.self.key, &layer.self.value}, x);
    batch.projected(n, qkv[0].view(), qkv[1].view(), qkv[2].view());
    Tensor z = attend(batch, step(n, false, layer.self.output), qkv[0].view(), qkv[1].view(), qkv[2].view());
    batch.at(ModelPlace::z, n, z);
    add_to(x, batch.seen(ModelPlace::attention, n, layer.self.output.forward(z)));
    x = batch.normed(NormPlace::attention_sum, n, layer.self.norm, x);

    if (layer.cross) {
      batch.at(ModelPlace::cross_residual, n, x);
      const Attention& cross = *layer.cross;
      Tensor q = cross.query.forward(x);
      z = attend_memory(batch, step(n, true, cross.output), q.view(), cross.key, cross.value);
      batch.at(ModelPlace::cross_z, n, z);
      add_to(x, batch.seen(ModelPlace::cross_attention, n, cross.output.forward(z)));
      x = batch.normed(NormPlace::cross_sum, n, cross.norm, x);
    }

    batch.at(ModelPlace::residual_mid, n, x);
    Tensor copy, wide = layer.wide.forward(batch.read_by_mlp(n, x, copy));
    batch.activate(n, activation_, wide);
    batch.at(ModelPlace::mlp_hidden, n, wide);
    add_to(x, batch.seen(ModelPlace::mlp, n, layer.narrow.forward(wide)));
    x = batch.normed(NormPlace::mlp_sum, n, layer.norm, x);
  }
}

void BartStack::backward(Backward& pass, Tensor& dx, std::int64_t first, std::int64_t last) const {
  for (auto n = static_cast<std::size_t>(last); n-- > static_cast<std::size_t>(first);) {
    const Layer& layer = layers_[n];
    const KeptLayer& kept = pass.kept(n);
    dx = pass.normed(layer.norm, dx, kept.before(NormPlace::mlp_sum));
    add_to(dx, pass.mlp(n, activation_, nullptr, layer.wide, layer.narrow, pass.added(ModelPlace::mlp, n, dx)));
    pass.at(ModelPlace::residual_mid, n, dx);

    if (layer.cross) {
      const Attention& cross = *layer.cross;
      dx = pass.normed(cross.norm, dx, kept.before(NormPlace::cross_sum));
      Tensor d = cross.output.input_gradient(pass.added(ModelPlace::cross_attention, n, dx));
      pass.at(ModelPlace::cross_z, n, d);
      add_to(dx,
             cross.query.input_gradient(pass.attended_memory(step(n, true, cross.output), d, cross.key, cross.value)));
      pass.at(ModelPlace::cross_residual, n, dx);
    }

    const Attention& self = layer.self;
    dx = pass.normed(self.norm, dx, kept.before(NormPlace::attention_sum));
    Tensor d = self.output.input_gradient(pass.added(ModelPlace::attention, n, dx));
    HeadGradients qkv = pass.attended(step(n, false, self.output), pass.seen(ModelPlace::z, n, std::move(d)));
    pass.projected(n, qkv);
    add_to(dx, input_gradient({{&self.query, &qkv.q}, {&self.key, &qkv.k}, {&self.value, &qkv.v}}));
    pass.at(ModelPlace::residual, n, dx);
  }
}

void BartStack::embed_backward(Backward& pass, Tensor& dx) const {
  if (embedding_norm_) dx = pass.normed(*embedding_norm_, dx, pass.kept().embedded);
  if (word_scale_ != 1) multiply(dx, word_scale_);
  pass.at(ModelPlace::embeddings, 0, dx);
}

Bart::Bart(Loading& loading, const Member& config) : info_(read_encoder_decoder(loading, config, ModelFamily::bart)) {
  info_.longest = config["max_position_embeddings"].whole(1);

  // Marian's may have words of their own for the two languages, and so has what is not tied.
  const std::int64_t E = info_.embedding_size;
  const bool tied = config["tie_word_embeddings"].truth();
  const bool one_language = !is_marian(config) || config["share_encoder_decoder_embeddings"].truth();
  const bool shared = one_language && tied;
  if (config.given("decoder_vocab_size")) {
    const std::int64_t own = config["decoder_vocab_size"].whole(0);
    if (!one_language) info_.vocabulary = own;
  }
  const char* of_decoder = "decoder.embed_tokens.weight";
  Matrix words, decoder_words;
  if (shared) {
    loading.has_copies({"encoder.embed_tokens.weight", of_decoder}, "shared.weight");
    words = decoder_words = loading.matrix("shared.weight", info_.vocabulary, E);
  } else {
    words = loading.matrix("encoder.embed_tokens.weight", info_.encoder_vocabulary, E);
    decoder_words = loading.matrix(of_decoder, info_.vocabulary, E);
  }
  encoder_.emplace(loading, config, words, false);
  decoder_.emplace(loading, config, decoder_words, true);
  describe_stacks(*encoder_, *decoder_, info_);
  output_ = loading.head(shared ? "shared.weight" : of_decoder, decoder_words, E, info_.vocabulary, tied, nullptr,
                         "final_logits_bias");
  for (const char* other : {"encoder.version", "decoder.version"}) loading.ignore_ending(other);
  if (!shared) loading.ignore_ending("shared.weight");
  loading.ignore_head("classification_head.", true);
  loading.ignore_head("qa_outputs.", true);
}

}  // namespace attend::inline v1::models
