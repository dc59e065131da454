#include "models/families/t5.h"

#include <cmath>
#include <limits>

#include "layers/rows.h"
#include "models/families/embeddings.h"
#include "models/families/encoder_decoder.h"
#include "models/families/relative_positions.h"

namespace attend::inline v1::models {

namespace {

constexpr std::int64_t any_length = std::numeric_limits<std::int64_t>::max();

}  // namespace

T5Stack::T5Stack(Loading& loading, const Member& config, const Matrix& words, bool decodes)
    : causal_(decodes),
      dtype_(loading.dtype()),
      E_(config["d_model"].whole(1)),
      D_(config["d_kv"].whole(1)),
      heads_(config["num_heads"].whole(1)),
      wide_size_(config["d_ff"].whole(1)),
      eps_(number_from_0(config["layer_norm_epsilon"])),
      words_(words) {
  if (heads_ > Member::most / D_)
    fail_at(config.place(), "{} heads of {} numbers are more than a matrix can have", heads_, D_);
  read_activation_of(config);
  const std::string name = decodes ? "decoder." : "encoder.";
  const bool own = decodes && config.given("num_decoder_layers");
  const std::int64_t layers = config[own ? "num_decoder_layers" : "num_layers"].whole(0, 100'000);
  for (std::int64_t n = 0; n < layers; ++n)
    layers_.push_back(read_layer(loading, fmt::format("{}block.{}.layer.", name, n), decodes));
  norm_ = loading.rms_norm(name + "final_layer_norm", E_, eps_);
  if (layers_.empty()) return;

  const Member said = config["relative_attention_num_buckets"], far = config["relative_attention_max_distance"];
  const std::int64_t buckets = said.whole(decodes ? 2 : 4, 1 << 20);
  const std::int64_t most = far.whole(near_distances(!decodes, buckets) + 1, 1 << 20);
  const View table =
      loading.table(name + "block.0.layer.0.SelfAttention.relative_attention_bias.weight", buckets, heads_);
  loading.check_made(far, 2 * most + 1, heads_);
  if (!loading.checking()) distance_bias_ = relative_bias(table, !decodes, buckets, most, any_length);
}

// dense_act_fn and is_gated_act, which files have beside feed_forward_proj of late, go first.
void T5Stack::read_activation_of(const Member& config) {
  const Member said = config["feed_forward_proj"];
  const std::string text = said.text();
  const std::size_t dash = text.find('-');
  if (dash != std::string::npos && (text.substr(0, dash) != "gated" || text.find('-', dash + 1) != std::string::npos))
    said.refuse("an activation, or gated- and one");
  gated_ = config.has("is_gated_act") ? config["is_gated_act"].truth() : dash != std::string::npos;
  const nlohmann::json name = text == "gated-gelu" ? "gelu_new" : text.substr(dash == std::string::npos ? 0 : dash + 1);
  activation_ = read_activation(config.has("dense_act_fn") ? config["dense_act_fn"] : Member(said.place(), name));
}

T5Stack::Attention T5Stack::read_attention(Loading& loading, const std::string& at, const char* name) const {
  const std::int64_t heads = heads_ * D_;
  const std::string of = at + name;
  return {loading.rms_norm(at + "layer_norm", E_, eps_), loading.linear(of + ".q", E_, heads, false),
          loading.linear(of + ".k", E_, heads, false), loading.linear(of + ".v", E_, heads, false),
          loading.linear(of + ".o", heads, E_, false)};
}

T5Stack::Layer T5Stack::read_layer(Loading& loading, const std::string& at, bool decodes) const {
  const std::string last = at + (decodes ? "2." : "1."), mlp = last + "DenseReluDense.";
  Layer layer{read_attention(loading, at + "0.", "SelfAttention"),
              {},
              loading.rms_norm(last + "layer_norm", E_, eps_),
              {},
              loading.linear(mlp + (gated_ ? "wi_1" : "wi"), E_, wide_size_, false),
              loading.linear(mlp + "wo", wide_size_, E_, false)};
  if (gated_) layer.gate = loading.linear(mlp + "wi_0", E_, wide_size_, false);
  if (decodes) layer.cross = read_attention(loading, at + "1.", "EncDecAttention");
  return layer;
}

AttentionStep T5Stack::step(std::size_t layer, bool cross, const Linear& output) const {
  AttentionStep step{.layer = static_cast<std::int64_t>(layer),
                     .heads = heads_,
                     .kv_heads = heads_,
                     .causal = causal_ && !cross,
                     .cross = cross,
                     .scale = 1,
                     .output = &output};
  if (!cross) step.distance_bias = distance_bias_->view();
  return step;
}

Tensor T5Stack::embed(const Batch& batch) const {
  Tensor x({std::ssize(batch.ids), E_});
  add_embeddings(x, words_, batch.ids);
  batch.at(ModelPlace::embeddings, 0, x);
  return x;
}

LayerParts T5Stack::parts(std::size_t n) const {
  const Layer& layer = layers_[n];
  const auto attention = [](const Attention& of) {
    return LayerParts::Attention{{&of.query}, {&of.key}, {&of.value}, &of.output, &of.norm};
  };
  LayerParts parts{.self = attention(layer.self),
                   .in = &layer.wide,
                   .out = &layer.narrow,
                   .norms = {{"attention_norm", &layer.self.norm}, {"mlp_norm", &layer.norm}}};
  if (layer.gate) parts.gate = &*layer.gate;
  if (!layer.cross) return parts;
  parts.cross = attention(*layer.cross);
  parts.norms.emplace_back("cross_norm", &layer.cross->norm);
  return parts;
}

void T5Stack::run(const Batch& batch, Tensor& x, std::int64_t first, std::int64_t last) const {
  for (auto n = static_cast<std::size_t>(first); n < static_cast<std::size_t>(last); ++n) {
    const Layer& layer = layers_[n];
    batch.at(ModelPlace::residual, n, x);
    std::vector<Tensor> qkv = Linear::forward_each({&layer.self.query, &layer.self.key, &layer.self.value},
                                                   layer.self.norm.forward(x, dtype_));
    batch.projected(n, qkv[0].view(), qkv[1].view(), qkv[2].view());
    Tensor z = attend(batch, step(n, false, layer.self.output), qkv[0].view(), qkv[1].view(), qkv[2].view());
    batch.at(ModelPlace::z, n, z);
    add_to(x, batch.seen(ModelPlace::attention, n, layer.self.output.forward(z)));

    if (layer.cross) {
      batch.at(ModelPlace::cross_residual, n, x);
      const Attention& cross = *layer.cross;
      Tensor q = cross.query.forward(cross.norm.forward(x, dtype_));
      z = attend_memory(batch, step(n, true, cross.output), q.view(), cross.key, cross.value);
      batch.at(ModelPlace::cross_z, n, z);
      add_to(x, batch.seen(ModelPlace::cross_attention, n, cross.output.forward(z)));
    }

    batch.at(ModelPlace::residual_mid, n, x);
    const Tensor rows = batch.seen(ModelPlace::mlp_input, n, layer.norm.forward(x, dtype_));
    Tensor wide;
    if (layer.gate) {
      std::vector<Tensor> both = Linear::forward_each({&*layer.gate, &layer.wide}, rows);
      batch.activate(n, activation_, both[0], &both[1]);
      wide = std::move(both[0]);
    } else {
      wide = layer.wide.forward(rows);
      batch.activate(n, activation_, wide);
    }
    batch.at(ModelPlace::mlp_hidden, n, wide);
    add_to(x, batch.seen(ModelPlace::mlp, n, layer.narrow.forward(wide)));
  }
}

void T5Stack::backward(Backward& pass, Tensor& dx, std::int64_t first, std::int64_t last) const {
  for (auto n = static_cast<std::size_t>(last); n-- > static_cast<std::size_t>(first);) {
    const Layer& layer = layers_[n];
    const KeptLayer& kept = pass.kept(n);
    const Linear* gate = layer.gate ? &*layer.gate : nullptr;
    Tensor d = pass.mlp(n, activation_, gate, layer.wide, layer.narrow, pass.added(ModelPlace::mlp, n, dx));
    add_to(dx, pass.normed(layer.norm, d, kept.residual_mid));
    pass.at(ModelPlace::residual_mid, n, dx);

    if (layer.cross) {
      const Attention& cross = *layer.cross;
      d = cross.output.input_gradient(pass.added(ModelPlace::cross_attention, n, dx));
      pass.at(ModelPlace::cross_z, n, d);
      d = cross.query.input_gradient(pass.attended_memory(step(n, true, cross.output), d, cross.key, cross.value));
      add_to(dx, pass.normed(cross.norm, d, kept.cross_residual));
      pass.at(ModelPlace::cross_residual, n, dx);
    }

    const Attention& self = layer.self;
    d = self.output.input_gradient(pass.added(ModelPlace::attention, n, dx));
    HeadGradients qkv = pass.attended(step(n, false, self.output), pass.seen(ModelPlace::z, n, std::move(d)));
    pass.projected(n, qkv);
    d = input_gradient({{&self.query, &qkv.q}, {&self.key, &qkv.k}, {&self.value, &qkv.v}});
    add_to(dx, pass.normed(self.norm, d, kept.residual));
    pass.at(ModelPlace::residual, n, dx);
  }
}

bool is_t5_encoder(const Member& config) {
  const std::string named = class_of_model(config);
  if (!named.empty()) return named == "T5EncoderModel";
  return config.given("is_encoder_decoder") && !config["is_encoder_decoder"].truth();
}

T5Encoder::T5Encoder(Loading& loading, const Member& config) {
  info_.type = config["model_type"].text();
  info_.family = ModelFamily::t5_encoder;
  info_.dtype = loading.dtype();
  info_.embedding_size = config["d_model"].whole(1);
  info_.vocabulary = config["vocab_size"].whole(1);
  info_.longest = any_length;
  (void)end_ids(config);  // an encoder has none, and the class takes what ids there can be
  loading.has_copies({"encoder.embed_tokens.weight"}, "shared.weight");
  stack_.emplace(loading, config, loading.matrix("shared.weight", info_.vocabulary, info_.embedding_size), false);
  info_.layers = stack_->layers();
  info_.heads = info_.kv_heads = stack_->heads();
  info_.head_size = stack_->head_size();
  info_.mlp_size = stack_->mlp_size();
  for (const char* of_decoder : {"decoder.", "lm_head."}) loading.ignore_beginning(of_decoder);
}

T5::T5(Loading& loading, const Member& config) : info_(read_encoder_decoder(loading, config, ModelFamily::t5)) {
  if (config.has("is_encoder_decoder") && !config["is_encoder_decoder"].truth())
    fail_at(config["is_encoder_decoder"].place(), "false is not known here but of a T5EncoderModel; true is");
  info_.longest = any_length;

  const std::int64_t E = info_.embedding_size;
  loading.has_copies({"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"}, "shared.weight");
  const Matrix words = loading.matrix("shared.weight", info_.vocabulary, E);
  encoder_.emplace(loading, config, words, false);
  decoder_.emplace(loading, config, words, true);
  describe_stacks(*encoder_, *decoder_, info_);
  output_ = loading.head("shared.weight", words, E, info_.vocabulary, true);
  // Whether its output layer was tied says whether a T5 was scaled in training (Raffel et al. 2020's was).
  const bool said = config.has("scale_decoder_outputs");
  const bool scaled = said ? config.given("scale_decoder_outputs") && config["scale_decoder_outputs"].truth()
                           : !config.given("tie_word_embeddings") || config["tie_word_embeddings"].truth();
  if (scaled && output_) output_->scale = 1 / std::sqrt(static_cast<double>(E));
  loading.ignore_ending("EncDecAttention.relative_attention_bias.weight");
  loading.ignore_head("classification_head.", true);
}

}  // namespace attend::inline v1::models
