#include "models/families/bert.h"

#include <array>

#include "core/message.h"
#include "layers/rows.h"
#include "models/families/embeddings.h"
#include "models/families/relative_positions.h"
#include "models/model_types.h"

namespace attend::inline v0::models {

// In what the types differ: nowhere else is one asked for its name.
struct BertType {
  // What config.json calls the sizes and the activation.
  struct Keys {
    const char *size = "hidden_size", *layers = "num_hidden_layers", *heads = "num_attention_heads";
    const char *wide = "intermediate_size", *activation = "hidden_act";
  };
  // What the tensors of a layer are called.
  struct Names {
    const char *query = "attention.self.query", *key = "attention.self.key", *value = "attention.self.value";
    const char *output = "attention.output.dense", *attention_norm = "attention.output.LayerNorm";
    const char *wide = "intermediate.dense", *narrow = "output.dense", *norm = "output.LayerNorm";
  };
  std::string_view name;
  Keys keys = {};
  Names names = {};
  const char* layers = "encoder.layer";
  const char* eps = "layer_norm_eps";  // null: 1e-12
  bool token_types = true;
  const char* padding = nullptr;  // the id that positions begin after; null: there is none
  bool distance_bias = false;     // what all layers add to the scores; padding is 1
  // Embeddings have a size of their own; this brings them to the layers'. Null: they have that size.
  const char* widened = nullptr;
  bool shared = false;  // groups of layers, whose embeddings are widened whatever their size is
};

namespace {

constexpr std::array<BertType, 8> types = {{
    {.name = "bert"},
    {.name = "roberta", .padding = "pad_token_id"},
    {.name = "xlm-roberta", .padding = "pad_token_id"},
    {.name = "camembert", .padding = "pad_token_id"},
    {.name = "distilbert",
     .keys = {"dim", "n_layers", "n_heads", "hidden_dim", "activation"},
     .names = {"attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin", "sa_layer_norm",
               "ffn.lin1", "ffn.lin2", "output_layer_norm"},
     .layers = "transformer.layer",
     .eps = nullptr,
     .token_types = false},
    {.name = "mpnet",
     .names = {"attention.attn.q", "attention.attn.k", "attention.attn.v", "attention.attn.o", "attention.LayerNorm"},
     .token_types = false,
     .distance_bias = true},
    {.name = "albert",
     .names = {"attention.query", "attention.key", "attention.value", "attention.dense", "attention.LayerNorm", "ffn",
               "ffn_output", "full_layer_layer_norm"},
     .layers = "encoder.albert_layer_groups",
     .widened = "encoder.embedding_hidden_mapping_in",
     .shared = true},
    {.name = "electra", .widened = "embeddings_project"},
}};

// Whatever the configuration says, but for the rows of their table.
constexpr std::int64_t mpnet_buckets = 32, mpnet_distance = 128, mpnet_padding = 1;

// No tensor says how many layers share a group's. The published models have 12 or 24.
constexpr std::int64_t most_shared_layers = 256;

}  // namespace

Bert::Bert(Loading& loading, const Member& config) {
  info_.type = config["model_type"].text();
  const BertType& type = row_of_type(types, info_.type);
  info_.family = ModelFamily::bert;
  info_.dtype = loading.dtype();
  info_.vocabulary = config["vocab_size"].whole(1);
  info_.embedding_size = config[type.keys.size].whole(1);
  info_.layers = config[type.keys.layers].whole(0, type.shared ? most_shared_layers : 100'000);
  info_.heads = info_.kv_heads = config[type.keys.heads].whole(1);
  info_.head_size = whole_divided(config, info_.embedding_size, info_.heads);
  const std::int64_t rows = config["max_position_embeddings"].whole(1);
  info_.mlp_size = config[type.keys.wide].whole(1);
  activation_ = read_activation(config[type.keys.activation]);
  eps_ = type.eps ? number_from_0(config[type.eps]) : 1e-12;
  types_ = type.token_types ? config["type_vocab_size"].whole(1) : 0;
  if (type.padding) padding_ = config[type.padding].whole(0);
  if (type.distance_bias) padding_ = mpnet_padding;
  info_.longest = rows - (padding_ ? *padding_ + 1 : 0);
  if (info_.longest < 1) fail_at(config.place(), "max_position_embeddings leaves no position after pad_token_id");

  read_embeddings(loading, type, config, rows);
  read_layers(loading, type, config);
  for (const char* end : {"embeddings.position_ids", "embeddings.token_type_ids"}) loading.ignore_ending(end);
  for (const char* at : {"", "bert.", "roberta.", "mpnet.", "albert."})
    loading.ignore_beginning(std::string(at) + "pooler.");
  for (const char* head :
       {"cls.", "lm_head.", "vocab_transform.", "vocab_layer_norm.", "vocab_projector.", "predictions.",
        "sop_classifier.", "discriminator_predictions.", "generator_predictions.", "generator_lm_head."})
    loading.ignore_head(head, false);
  for (const char* head : {"classifier.", "pre_classifier.", "qa_outputs.", "sequence_summary."})
    loading.ignore_head(head, true);
}

void Bert::read_embeddings(Loading& loading, const BertType& type, const Member& config, std::int64_t rows) {
  const std::int64_t E = info_.embedding_size, own = type.widened ? config["embedding_size"].whole(1) : E;
  info_.input_size = own;
  words_ = loading.matrix("embeddings.word_embeddings.weight", info_.vocabulary, own);
  positions_ = loading.table("embeddings.position_embeddings.weight", rows, own);
  if (types_ > 0) type_embeddings_ = loading.table("embeddings.token_type_embeddings.weight", types_, own);
  embedding_norm_ = loading.layer_norm("embeddings.LayerNorm", own, eps_);
  if (type.widened && (type.shared || own != E)) widened_ = loading.linear(type.widened, own, E);
  if (!type.distance_bias) return;
  const std::int64_t buckets = config["relative_attention_num_buckets"].whole(mpnet_buckets);
  const View biases = loading.table("encoder.relative_attention_bias.weight", buckets, info_.heads);
  if (!loading.checking()) distance_bias_ = relative_bias(biases, true, mpnet_buckets, mpnet_distance, info_.longest);
}

// ALBERT's layers come in groups of a few, which one group of as many tensors has; the groups one after another.
void Bert::read_layers(Loading& loading, const BertType& type, const Member& config) {
  if (!type.shared) {
    for (std::int64_t n = 0; n < info_.layers; ++n) {
      layers_.push_back(read_layer(loading, fmt::format("{}.{}.", type.layers, n), type));
      which_.push_back(static_cast<std::size_t>(n));
    }
    return;
  }
  const std::int64_t groups = config["num_hidden_groups"].whole(1, 100'000);
  const std::int64_t together = config["inner_group_num"].whole(0, 100'000 / std::max<std::int64_t>(1, info_.layers));
  for (std::int64_t n = 0; n < groups * together; ++n) {
    const std::string at = fmt::format("{}.{}.albert_layers.{}.", type.layers, n / together, n % together);
    layers_.push_back(read_layer(loading, at, type));
  }
  const double of_a_group = static_cast<double>(info_.layers) / static_cast<double>(groups);
  for (std::int64_t n = 0; n < info_.layers * together; ++n) {
    const std::int64_t place = n / together;
    const auto group = static_cast<std::int64_t>(static_cast<double>(place) / of_a_group);
    which_.push_back(static_cast<std::size_t>(group * together + n % together));
  }
  info_.layers *= together;
}

Bert::Layer Bert::read_layer(Loading& loading, const std::string& at, const BertType& type) const {
  const std::int64_t E = info_.embedding_size;
  return {loading.linear(at + type.names.query, E, E),
          loading.linear(at + type.names.key, E, E),
          loading.linear(at + type.names.value, E, E),
          loading.linear(at + type.names.output, E, E),
          loading.layer_norm(at + type.names.attention_norm, E, eps_),
          loading.linear(at + type.names.wide, E, info_.mlp_size),
          loading.linear(at + type.names.narrow, info_.mlp_size, E),
          loading.layer_norm(at + type.names.norm, E, eps_)};
}

// As RobertaEmbeddings counts: tokens that are padding by their id all have padding's own place.
std::vector<std::int64_t> Bert::positions(const Batch& batch) const {
  std::vector<std::int64_t> places = batch.positions;
  if (!padding_) return places;
  std::int64_t next = 0;
  for (std::size_t n = 0; n < places.size(); ++n) {
    if (batch.positions[n] == 0) next = *padding_ + 1;
    places[n] = batch.ids[n] == *padding_ ? *padding_ : next++;
  }
  return places;
}

AttentionStep Bert::step(std::size_t n) const {
  AttentionStep step{.layer = static_cast<std::int64_t>(n),
                     .heads = info_.heads,
                     .kv_heads = info_.heads,
                     .output = &layers_[which_[n]].output};
  if (distance_bias_) step.distance_bias = *distance_bias_;
  return step;
}

Tensor Bert::embed(const Batch& batch) const {
  for (const std::int64_t type : batch.types) {
    if (type < 0 || type >= std::max<std::int64_t>(types_, 1))
      fail(ErrorCode::bad_value, "Model", "types has {}, expected 0 to {}", type,
           std::max<std::int64_t>(types_, 1) - 1);
  }
  Tensor x({std::ssize(batch.ids), words_.view.size(1)});
  add_embeddings(x, words_, batch.ids);
  batch.at(ModelPlace::embeddings, 0, x);
  const std::vector<std::int64_t> first_type(types_ > 0 && batch.types.empty() ? batch.ids.size() : 0);
  if (types_ > 0) add_embeddings(x, type_embeddings_, batch.types.empty() ? first_type : batch.types);
  add_embeddings(x, positions_, positions(batch));
  batch.embedded(x);
  return widened_ ? widened_->forward(embedding_norm_->forward(x), DType::f32) : embedding_norm_->forward(x);
}

LayerParts Bert::parts(std::size_t n) const {
  const Layer& layer = layers_[which_[n]];
  return {.self = {{&layer.query}, {&layer.key}, {&layer.value}, &layer.output},
          .in = &layer.wide,
          .out = &layer.narrow,
          .norms = {{"attention_norm", &layer.attention_norm}, {"mlp_norm", &layer.norm}}};
}

void Bert::run(const Batch& batch, Tensor& x, std::int64_t first, std::int64_t last) const {
  for (auto n = static_cast<std::size_t>(first); n < static_cast<std::size_t>(last); ++n) {
    const Layer& layer = layers_[which_[n]];
    batch.at(ModelPlace::residual, n, x);
    std::vector<Tensor> qkv = Linear::forward_each({&layer.query, &layer.key, &layer.value}, x);
    batch.projected(n, qkv[0].view(), qkv[1].view(), qkv[2].view());
    Tensor z = attend(batch, step(n), qkv[0].view(), qkv[1].view(), qkv[2].view());
    batch.at(ModelPlace::z, n, z);
    add_to(x, batch.seen(ModelPlace::attention, n, layer.output.forward(z)));
    x = batch.normed(NormPlace::attention_sum, n, layer.attention_norm, x);
    batch.at(ModelPlace::residual_mid, n, x);

    Tensor copy, wide = layer.wide.forward(batch.read_by_mlp(n, x, copy));
    batch.activate(n, activation_, wide);
    batch.at(ModelPlace::mlp_hidden, n, wide);
    add_to(x, batch.seen(ModelPlace::mlp, n, layer.narrow.forward(wide)));
    x = batch.normed(NormPlace::mlp_sum, n, layer.norm, x);
  }
}

void Bert::backward(Backward& pass, Tensor& dx, std::int64_t first, std::int64_t last) const {
  for (auto n = static_cast<std::size_t>(last); n-- > static_cast<std::size_t>(first);) {
    const Layer& layer = layers_[which_[n]];
    const KeptLayer& kept = pass.kept(n);
    dx = pass.normed(layer.norm, dx, kept.before(NormPlace::mlp_sum));
    add_to(dx, pass.mlp(n, activation_, nullptr, layer.wide, layer.narrow, pass.added(ModelPlace::mlp, n, dx)));
    pass.at(ModelPlace::residual_mid, n, dx);

    dx = pass.normed(layer.attention_norm, dx, kept.before(NormPlace::attention_sum));
    Tensor d = layer.output.input_gradient(pass.added(ModelPlace::attention, n, dx));
    HeadGradients qkv = pass.attended(step(n), pass.seen(ModelPlace::z, n, std::move(d)));
    pass.projected(n, qkv);
    add_to(dx, input_gradient({{&layer.query, &qkv.q}, {&layer.key, &qkv.k}, {&layer.value, &qkv.v}}));
    pass.at(ModelPlace::residual, n, dx);
  }
}

void Bert::embed_backward(Backward& pass, Tensor& dx) const {
  if (widened_) dx = widened_->input_gradient(dx);
  dx = pass.normed(*embedding_norm_, dx, pass.kept().embedded);
  pass.at(ModelPlace::embeddings, 0, dx);
}

}  // namespace attend::inline v0::models
