#include "models/families/bert.h"

#include "core/message.h"
#include "layers/rows.h"
#include "models/families/bert_types.h"
#include "models/families/embeddings.h"
#include "models/families/relative_positions.h"

namespace attend::inline v1::models {

namespace {

// Whatever the configuration says, but for the rows of their table.
constexpr std::int64_t mpnet_buckets = 32, mpnet_distance = 128, mpnet_padding = 1;

// No tensor says how many layers share a group's. The published models have 12 or 24.
constexpr std::int64_t most_shared_layers = 256;

std::int64_t read_head_size(const Member& config, const BertType& type, const ModelInfo& info) {
  const bool said = type.null_head_size ? config.given("head_dim") : config.has("head_dim");
  if (type.positions != BertType::Positions::rotary || !said)
    return whole_divided(config, info.embedding_size, info.heads);
  const std::int64_t size = config["head_dim"].whole(2);
  if (info.heads > Member::most / size)
    fail_at(config.place(), "{} heads of {} numbers are more than a matrix can have", info.heads, size);
  return size;
}

// What the tensors of this file are called.
const BertType::Names& names_in(const Loading& loading, const BertType& type) {
  if (!type.other_names) return type.names;
  const std::string first = fmt::format("{}.0.{}.weight", type.other_names->layers, type.other_names->output);
  return loading.has(first) ? *type.other_names : type.names;
}

}  // namespace

Bert::Bert(Loading& loading, const Member& config) {
  info_.type = config["model_type"].text();
  const BertType& type = bert_type(info_.type);
  info_.family = ModelFamily::bert;
  info_.dtype = loading.dtype();
  info_.vocabulary = config["vocab_size"].whole(1);
  info_.embedding_size = config[type.keys.size].whole(1);
  info_.layers = config[type.keys.layers].whole(0, type.shared ? most_shared_layers : 100'000);
  info_.heads = info_.kv_heads = config[type.keys.heads].whole(1);
  info_.head_size = read_head_size(config, type, info_);
  const std::int64_t rows = config["max_position_embeddings"].whole(1);
  info_.mlp_size = config[type.keys.wide].whole(1);
  activation_ = read_activation(config[type.keys.activation]);
  eps_ = type.eps ? number_from_0(config[type.eps]) : 1e-12;
  types_ = type.token_types ? config["type_vocab_size"].whole(type.may_lack_types ? 0 : 1) : 0;
  if (type.padding) padding_ = config[type.padding].whole(0);
  if (type.distance_bias) padding_ = mpnet_padding;
  info_.longest = rows - (padding_ ? *padding_ + 1 : 0);
  if (info_.longest < 1) fail_at(config.place(), "max_position_embeddings leaves no position after pad_token_id");

  const BertType::Names& names = names_in(loading, type);
  read_embeddings(loading, type, names, config, rows);
  read_layers(loading, type, names, config);
  if (type.positions == BertType::Positions::rotary) read_rotary_positions(loading, type, config);
  for (const char* end : {"embeddings.position_ids", "embeddings.token_type_ids", "rotary_emb.inv_freq"})
    loading.ignore_ending(end);
  for (const char* at : {"", "bert.", "roberta.", "mpnet.", "albert.", "nomic_bert.", "gte.", "new."})
    loading.ignore_beginning(std::string(at) + "pooler.");
  for (const char* head :
       {"cls.", "lm_head.", "vocab_transform.", "vocab_layer_norm.", "vocab_projector.", "predictions.",
        "sop_classifier.", "discriminator_predictions.", "generator_predictions.", "generator_lm_head."})
    loading.ignore_head(head, false);
  for (const char* head : {"classifier.", "pre_classifier.", "qa_outputs.", "sequence_summary."})
    loading.ignore_head(head, true);
}

void Bert::read_embeddings(Loading& loading, const BertType& type, const BertType::Names& names, const Member& config,
                           std::int64_t rows) {
  const std::int64_t E = info_.embedding_size, own = type.widened ? config["embedding_size"].whole(1) : E;
  info_.input_size = own;
  words_ = loading.matrix("embeddings.word_embeddings.weight", info_.vocabulary, own);
  if (type.positions == BertType::Positions::learned)
    positions_ = loading.table("embeddings.position_embeddings.weight", rows, own);
  if (types_ > 0) type_embeddings_ = loading.table("embeddings.token_type_embeddings.weight", types_, own);
  embedding_norm_ = loading.layer_norm(names.embedding_norm, own, eps_);
  if (type.widened && (type.shared || own != E)) widened_ = loading.linear(type.widened, own, E);
  if (type.positions == BertType::Positions::alibi) {
    loading.check_made(config["max_position_embeddings"], 2 * rows - 1, info_.heads);
    if (!loading.checking()) distance_bias_ = alibi_bias(info_.heads, rows);
  }
  if (!type.distance_bias) return;
  const std::int64_t buckets = config["relative_attention_num_buckets"].whole(mpnet_buckets);
  const View biases = loading.table("encoder.relative_attention_bias.weight", buckets, info_.heads);
  if (!loading.checking()) distance_bias_ = relative_bias(biases, true, mpnet_buckets, mpnet_distance, info_.longest);
}

// ALBERT's layers come in groups of a few, which one group of as many tensors has; the groups one after another.
void Bert::read_layers(Loading& loading, const BertType& type, const BertType::Names& names, const Member& config) {
  if (!type.shared) {
    for (std::int64_t n = 0; n < info_.layers; ++n) {
      layers_.push_back(read_layer(loading, fmt::format("{}.{}.", names.layers, n), type, names));
      which_.push_back(static_cast<std::size_t>(n));
    }
    return;
  }
  const std::int64_t groups = config["num_hidden_groups"].whole(1, 100'000);
  const std::int64_t together = config["inner_group_num"].whole(0, 100'000 / std::max<std::int64_t>(1, info_.layers));
  for (std::int64_t n = 0; n < groups * together; ++n) {
    const std::string at = fmt::format("{}.{}.albert_layers.{}.", names.layers, n / together, n % together);
    layers_.push_back(read_layer(loading, at, type, names));
  }
  const double of_a_group = static_cast<double>(info_.layers) / static_cast<double>(groups);
  for (std::int64_t n = 0; n < info_.layers * together; ++n) {
    const std::int64_t place = n / together;
    const auto group = static_cast<std::int64_t>(static_cast<double>(place) / of_a_group);
    which_.push_back(static_cast<std::size_t>(group * together + n % together));
  }
  info_.layers *= together;
}

void Bert::read_rotary_positions(const Loading& loading, const BertType& type, const Member& config) {
  const Rotary rotary = read_rotary(config, type.rotary, info_.longest, info_.head_size);
  // Its table is as large as the configuration says a head is: a layer's tensors have shown that by now.
  if (!loading.checking() && !layers_.empty()) rotary_.emplace(rotary.size, rotary.options);
}

Bert::Layer Bert::read_layer(Loading& loading, const std::string& at, const BertType& type,
                             const BertType::Names& names) const {
  const std::int64_t E = info_.embedding_size, rows = info_.heads * info_.head_size, F = info_.mlp_size;
  std::vector<Linear> qkv =
      names.key ? loading.linears(at, {names.query, names.key, names.value}, E, {rows, rows, rows}, type.attention_bias)
                : loading.linear_rows(at + names.query, E, {rows, rows, rows}, type.attention_bias);
  Linear output = loading.linear(at + names.output, rows, E, type.attention_bias);
  LayerNorm attention_norm = loading.layer_norm(at + names.attention_norm, E, eps_);
  const BertType::Gate rows_of = names.gate ? BertType::Gate::none : type.gate;
  std::vector<Linear> wide = loading.linear_rows(
      at + names.wide, E, rows_of == BertType::Gate::none ? std::vector{F} : std::vector{F, F}, type.wide_bias);
  if (rows_of == BertType::Gate::first_rows) std::swap(wide[0], wide[1]);
  std::optional<Linear> gate;
  if (names.gate)
    gate = loading.linear(at + names.gate, E, F, type.wide_bias);
  else if (wide.size() > 1)
    gate = std::move(wide[1]);
  return {std::move(qkv[0]),
          std::move(qkv[1]),
          std::move(qkv[2]),
          std::move(output),
          std::move(attention_norm),
          std::move(gate),
          std::move(wide[0]),
          loading.linear(at + names.narrow, F, E, type.narrow_bias),
          loading.layer_norm(at + names.norm, E, eps_)};
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
  if (positions_) add_embeddings(x, *positions_, positions(batch));
  batch.embedded(x);
  return widened_ ? widened_->forward(embedding_norm_->forward(x), DType::f32) : embedding_norm_->forward(x);
}

LayerParts Bert::parts(std::size_t n) const {
  const Layer& layer = layers_[which_[n]];
  LayerParts parts{.self = {{&layer.query}, {&layer.key}, {&layer.value}, &layer.output},
                   .gate = layer.gate ? &*layer.gate : nullptr,
                   .in = &layer.wide,
                   .out = &layer.narrow,
                   .norms = {{"attention_norm", &layer.attention_norm}, {"mlp_norm", &layer.norm}}};
  if (rotary_) parts.self.rotary = &*rotary_;
  return parts;
}

Tensor Bert::attended(const Batch& batch, std::size_t n, const Tensor& x, const RotaryAngles& angles) const {
  const Layer& layer = layers_[which_[n]];
  std::vector<Tensor> qkv = Linear::forward_each({&layer.query, &layer.key, &layer.value}, x);
  batch.projected(n, qkv[0].view(), qkv[1].view(), qkv[2].view());
  const Dims by_heads{x.size(0), info_.heads, info_.head_size};
  if (rotary_)
    for (Tensor* each : {&qkv[0], &qkv[1]}) RotaryEmbedding::rotate(each->view().reshape(by_heads), angles);
  return attend(batch, step(n), qkv[0].view(), qkv[1].view(), qkv[2].view());
}

Tensor Bert::attended_first(const Batch& batch, std::size_t n, Tensor& x) const {
  const Layer& layer = layers_[which_[n]];
  const std::vector<Tensor> kv = Linear::forward_each({&layer.key, &layer.value}, x);
  const FirstRows rows(batch);
  Tensor z = attend_first(batch, step(n), rows, layer.query.forward(rows_at(x, rows.rows)), kv[0], kv[1]);
  x = rows_at(x, batch.begins());
  return rows_at(z, std::span(rows.starts).first(rows.starts.size() - 1));
}

void Bert::run(const Batch& batch, Tensor& x, std::int64_t first, std::int64_t last) const {
  const RotaryAngles angles = rotary_ ? rotary_->angles(batch.positions, batch.starts) : RotaryAngles();
  for (auto n = static_cast<std::size_t>(first); n < static_cast<std::size_t>(last); ++n) {
    const Layer& layer = layers_[which_[n]];
    batch.at(ModelPlace::residual, n, x);
    const bool narrows = batch.first_rows && n + 1 == which_.size();
    Tensor z = narrows ? attended_first(batch, n, x) : attended(batch, n, x, angles);
    batch.at(ModelPlace::z, n, z);
    add_to(x, batch.seen(ModelPlace::attention, n, layer.output.forward(z)));
    x = batch.normed(NormPlace::attention_sum, n, layer.attention_norm, x);
    batch.at(ModelPlace::residual_mid, n, x);

    Tensor copy;
    const View read = batch.read_by_mlp(n, x, copy);
    std::vector<Tensor> hidden = layer.gate ? Linear::forward_each({&*layer.gate, &layer.wide}, read)
                                            : Linear::forward_each({&layer.wide}, read);
    batch.activate(n, activation_, hidden[0], layer.gate ? &hidden[1] : nullptr);
    batch.at(ModelPlace::mlp_hidden, n, hidden[0]);
    add_to(x, batch.seen(ModelPlace::mlp, n, layer.narrow.forward(hidden[0])));
    x = batch.normed(NormPlace::mlp_sum, n, layer.norm, x);
  }
}

void Bert::backward(Backward& pass, Tensor& dx, std::int64_t first, std::int64_t last) const {
  RotaryAngles back;
  if (rotary_) back = rotary_->angles(pass.batch().positions, pass.batch().starts).back();
  for (auto n = static_cast<std::size_t>(last); n-- > static_cast<std::size_t>(first);) {
    const Layer& layer = layers_[which_[n]];
    const KeptLayer& kept = pass.kept(n);
    dx = pass.normed(layer.norm, dx, kept.before(NormPlace::mlp_sum));
    add_to(dx, pass.mlp(n, activation_, layer.gate ? &*layer.gate : nullptr, layer.wide, layer.narrow,
                        pass.added(ModelPlace::mlp, n, dx)));
    pass.at(ModelPlace::residual_mid, n, dx);

    dx = pass.normed(layer.attention_norm, dx, kept.before(NormPlace::attention_sum));
    Tensor d = layer.output.input_gradient(pass.added(ModelPlace::attention, n, dx));
    HeadGradients qkv = pass.attended(step(n), pass.seen(ModelPlace::z, n, std::move(d)));
    if (rotary_)
      for (Tensor* each : {&qkv.q, &qkv.k}) pass.rotated(*each, info_.heads, back);
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

}  // namespace attend::inline v1::models
