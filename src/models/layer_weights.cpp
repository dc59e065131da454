// A model's weights as arrays: of a layer by what they do, and all by the names that Transformers has for them.
#include <algorithm>
#include <numeric>

#include "core/from_end.h"
#include "core/message.h"
#include "models/layer_parts.h"
#include "models/model.h"

namespace attend::inline v1 {

namespace {

using models::HeadRows;
using models::LayerParts;

constexpr const char* layer_weights_function = "Model.weights";

using Weights = std::map<std::string, Tensor>;

// [H,D,E], and the bias [H,D].
void add_heads(Weights& all, const std::string& name, const HeadRows& rows, std::int64_t heads, std::int64_t size) {
  const std::int64_t E = rows.of->in_size(), step = rows.step > 0 ? rows.step : size;
  Tensor weight = Tensor::uninitialized({heads, size, E});
  Tensor bias = Tensor::uninitialized({heads, size});
  for (std::int64_t h = 0; h < heads; ++h) {
    const std::int64_t first = rows.first + h * step;
    weight.view().select(0, h).copy_from(rows.of->weight_rows(first, first + size));
    if (rows.of->bias()) bias.view().select(0, h).copy_from(rows.of->bias()->view().slice(0, first, first + size));
  }
  all.emplace("W_" + name, std::move(weight));
  if (rows.of->bias()) all.emplace("b_" + name, std::move(bias));
}

// [out,in], and the bias [out].
void add_linear(Weights& all, const std::string& name, const Linear* layer) {
  if (layer == nullptr) return;
  all.emplace("W_" + name, layer->weight_rows(0, layer->out_size()));
  if (layer->bias()) all.emplace("b_" + name, layer->bias()->clone());
}

// What a head's z is written by: [H,E,D].
void add_output(Weights& all, const std::string& name, const Linear& layer, std::int64_t heads) {
  const std::int64_t E = layer.out_size(), size = layer.in_size() / heads;
  const Tensor rows = layer.weight_rows(0, E);
  all.emplace("W_" + name, rows.view().reshape({E, heads, size}).permute({1, 0, 2}).clone());
  if (layer.bias()) all.emplace("b_" + name, layer.bias()->clone());
}

void add_norm(Weights& all, const std::string& name, const models::Norm& norm) {
  std::visit(
      [&](const auto* of) {
        all.emplace(name, of->weight().clone());
        if constexpr (requires { of->bias(); })
          if (of->bias()) all.emplace(name + "_bias", of->bias()->clone());
      },
      norm);
}

struct Sizes {
  std::int64_t heads, kv_heads, size;
};

void add_attention(Weights& all, const std::string& prefix, const LayerParts::Attention& of, const Sizes& sizes) {
  Weights own;
  add_heads(own, "Q", of.q, sizes.heads, sizes.size);
  add_heads(own, "K", of.k, sizes.kv_heads, sizes.size);
  add_heads(own, "V", of.v, sizes.kv_heads, sizes.size);
  add_output(own, "O", *of.output, sizes.heads);
  for (auto& [name, tensor] : own) all.emplace(prefix + name, std::move(tensor));
}

std::vector<std::int64_t> all_ids(std::int64_t vocabulary) {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(vocabulary));
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

}  // namespace

std::map<std::string, Tensor> Model::weights(std::int64_t layer, bool encoder) const {
  const ModelInfo& info = parts_->info;
  if (encoder && !info.encoder_decoder())
    fail(ErrorCode::bad_value, layer_weights_function, "encoder needs an encoder-decoder; the model is of type {}",
         info.type);
  const auto n = static_cast<std::size_t>(
      from_end(layer_weights_function, "layer", layer, encoder ? info.encoder_layers : info.layers));
  const LayerParts parts = models::parts_of_layer(*parts_, n, encoder);
  const Sizes sizes = encoder ? Sizes{info.encoder_heads, info.encoder_heads, info.encoder_head_size}
                              : Sizes{info.heads, info.kv_heads, info.head_size};
  Weights all;
  add_attention(all, "", parts.self, sizes);
  if (parts.cross) add_attention(all, "cross_", *parts.cross, {sizes.heads, sizes.heads, sizes.size});
  add_linear(all, "gate", parts.gate), add_linear(all, "in", parts.in), add_linear(all, "out", parts.out);
  for (const auto& [name, norm] : parts.norms) add_norm(all, std::string(name), norm);
  return all;
}

std::map<std::string, Tensor> Model::weights() const {
  Weights all;
  std::visit(
      [&](const auto& family) {
        if constexpr (requires { models::layers_of(family).words(); })
          all.emplace("embeddings", models::numbers(models::layers_of(family).words()));
        else
          all.emplace("embeddings", family.rows(all_ids(parts_->info.vocabulary)));
        if constexpr (requires { family.last_norm(); })
          if (const std::optional<models::Norm> norm = family.last_norm()) add_norm(all, "norm", *norm);
        if constexpr (requires { family.output(); })
          if (family.output()) add_linear(all, "output", &family.output()->layer);
      },
      parts_->family);
  return all;
}

std::vector<std::string> Model::weight_names() const {
  std::vector<std::string> names;
  for (const auto& [name, matrix] : parts_->kept.weights.all()) names.push_back(name);
  return names;
}

Tensor Model::weight(std::string_view name) const {
  if (const models::Matrix* found = parts_->kept.weights.find(name)) return models::numbers(*found);
  fail(ErrorCode::bad_value, "Model.weight", "the model has no tensor '{}'", name);
}

namespace models {

LayerParts parts_of_layer(const Model::Parts& parts, std::size_t n, bool encoder) {
  return std::visit(
      [&](const auto& family) {
        if constexpr (requires { family.encoder(); })
          if (encoder) return family.encoder().parts(n);
        return layers_of(family).parts(n);
      },
      parts.family);
}

std::optional<Norm> last_norm_of_encoder(const Model::Parts& parts) {
  return std::visit(
      [](const auto& family) -> std::optional<Norm> {
        if constexpr (requires { family.encoder().last_norm(); }) return &family.encoder().last_norm();
        return std::nullopt;
      },
      parts.family);
}

}  // namespace models

}  // namespace attend::inline v1
