#include "models/bert.h"

#include <algorithm>

#include "core/message.h"
#include "layers/rows.h"
#include "models/embeddings.h"

namespace attend::models {

namespace {

bool is_roberta(const std::string& type) {
  return type == "roberta" || type == "xlm-roberta" || type == "camembert";
}

}  // namespace

Bert::Bert(Loading& loading, const Member& config) {
  info_.type = config["model_type"].text();
  info_.family = ModelFamily::bert;
  info_.dtype = loading.dtype();
  distil_ = info_.type == "distilbert";
  info_.vocabulary = config["vocab_size"].whole(1);
  info_.embedding_size = config[distil_ ? "dim" : "hidden_size"].whole(1);
  info_.layers = config[distil_ ? "n_layers" : "num_hidden_layers"].whole(0, 100'000);
  info_.heads = info_.kv_heads = config[distil_ ? "n_heads" : "num_attention_heads"].whole(1);
  info_.head_size = whole_divided(config, info_.embedding_size, info_.heads);
  const std::int64_t rows = config["max_position_embeddings"].whole(1);
  wide_size_ = config[distil_ ? "hidden_dim" : "intermediate_size"].whole(1);
  activation_ = read_activation(config[distil_ ? "activation" : "hidden_act"]);
  eps_ = distil_ ? 1e-12 : number_from_0(config["layer_norm_eps"]);
  types_ = distil_ ? 0 : config["type_vocab_size"].whole(1);
  if (is_roberta(info_.type)) padding_ = config["pad_token_id"].whole(0);
  info_.longest = rows - (padding_ ? *padding_ + 1 : 0);
  if (info_.longest < 1) fail_at(config.place(), "max_position_embeddings leaves no position after pad_token_id");

  const std::int64_t E = info_.embedding_size;
  words_ = loading.matrix("embeddings.word_embeddings.weight", info_.vocabulary, E);
  positions_ = loading.matrix("embeddings.position_embeddings.weight", rows, E);
  if (types_ > 0) type_embeddings_ = loading.matrix("embeddings.token_type_embeddings.weight", types_, E);
  embedding_norm_ = loading.layer_norm("embeddings.LayerNorm", E, eps_);
  for (std::int64_t n = 0; n < info_.layers; ++n) layers_.push_back(read_layer(loading, n));
  for (const char* end : {"embeddings.position_ids", "embeddings.token_type_ids"}) loading.ignore_ending(end);
  for (const char* head :
       {"pooler.", "bert.pooler.", "roberta.pooler.", "cls.", "classifier.", "lm_head.", "qa_outputs.",
        "pre_classifier.", "vocab_transform.", "vocab_layer_norm.", "vocab_projector."}) {
    loading.ignore_beginning(head);
  }
}

Bert::Layer Bert::read_layer(Loading& loading, std::int64_t n) const {
  const std::int64_t E = info_.embedding_size;
  const std::string at = fmt::format("{}layer.{}.", distil_ ? "transformer." : "encoder.", n);
  if (distil_) {
    return {loading.linear(at + "attention.q_lin", E, E),      loading.linear(at + "attention.k_lin", E, E),
            loading.linear(at + "attention.v_lin", E, E),      loading.linear(at + "attention.out_lin", E, E),
            loading.layer_norm(at + "sa_layer_norm", E, eps_), loading.linear(at + "ffn.lin1", E, wide_size_),
            loading.linear(at + "ffn.lin2", wide_size_, E),    loading.layer_norm(at + "output_layer_norm", E, eps_)};
  }
  return {loading.linear(at + "attention.self.query", E, E),
          loading.linear(at + "attention.self.key", E, E),
          loading.linear(at + "attention.self.value", E, E),
          loading.linear(at + "attention.output.dense", E, E),
          loading.layer_norm(at + "attention.output.LayerNorm", E, eps_),
          loading.linear(at + "intermediate.dense", E, wide_size_),
          loading.linear(at + "output.dense", wide_size_, E),
          loading.layer_norm(at + "output.LayerNorm", E, eps_)};
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

Tensor Bert::embed(const Batch& batch) const {
  for (const std::int64_t type : batch.types) {
    if (type < 0 || type >= std::max<std::int64_t>(types_, 1))
      fail(ErrorCode::bad_value, "Model", "types has {}, expected 0 to {}", type,
           std::max<std::int64_t>(types_, 1) - 1);
  }
  Tensor x({std::ssize(batch.ids), info_.embedding_size});
  add_embeddings(x, words_, batch.ids);
  const std::vector<std::int64_t> first_type(types_ > 0 && batch.types.empty() ? batch.ids.size() : 0);
  if (types_ > 0) add_embeddings(x, type_embeddings_, batch.types.empty() ? first_type : batch.types);
  add_embeddings(x, positions_, positions(batch));
  return embedding_norm_->forward(x);
}

void Bert::run(const Batch& batch, Tensor& x, std::int64_t first, std::int64_t last) const {
  for (auto n = static_cast<std::size_t>(first); n < static_cast<std::size_t>(last); ++n) {
    const Layer& layer = layers_[n];
    const AttentionStep step{
        .layer = static_cast<std::int64_t>(n), .heads = info_.heads, .kv_heads = info_.heads, .output = &layer.output};
    batch.at(ModelPlace::residual, n, x);
    const std::vector<Tensor> qkv = Linear::forward_each({&layer.query, &layer.key, &layer.value}, x);
    Tensor z = attend(batch, step, qkv[0], qkv[1], qkv[2]);
    batch.at(ModelPlace::z, n, z);
    add_to(x, batch.seen(ModelPlace::attention, n, layer.output.forward(z)));
    x = batch.normed(NormPlace::attention_sum, n, layer.attention_norm, x);

    Tensor wide = layer.wide.forward(x);
    activate(activation_, wide.view());
    add_to(x, batch.seen(ModelPlace::mlp, n, layer.narrow.forward(wide)));
    x = batch.normed(NormPlace::mlp_sum, n, layer.norm, x);
  }
}

}  // namespace attend::models
