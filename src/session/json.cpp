// What a model is and what was found of it, as JSON.
#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "attend/session.h"

namespace attend::inline v0 {

namespace {

using Json = nlohmann::ordered_json;

// Of f32 the shortest decimals that read back as the same.
Json nested(const View& x) {
  Json list = Json::array();
  if (x.rank() > 1) {
    for (std::int64_t n = 0; n < x.size(0); ++n) list.push_back(nested(x.select(0, n)));
    return list;
  }
  const Tensor row = x.clone();
  for (std::int64_t n = 0; n < row.count(); ++n)
    if (row.dtype() == DType::i64)
      list.push_back(row.data<std::int64_t>()[n]);
    else
      list.push_back(std::stod(fmt::format("{}", row.data<float>()[n])));
  return list;
}

// A tensor under its name, as it is asked for.
class Tensors {
 public:
  explicit Tensors(const TensorJson& made) : made_(made) {}
  Json operator()(std::string_view name, const Tensor& tensor) const {
    return made_ ? Json::parse(made_(name, tensor)) : nested(tensor);
  }

 private:
  const TensorJson& made_;
};

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string to_json(const View& tensor) {
  return text_of(nested(tensor.dtype() == DType::i64 ? tensor : View(tensor.to(DType::f32))));
}

std::string to_json(const ModelInfo& x) {
  return text_of({{"type", x.type},
                  {"family", name_of(x.family)},
                  {"head", x.head.empty() ? Json() : Json(x.head)},
                  {"layers", x.layers},
                  {"heads", x.heads},
                  {"kv_heads", x.kv_heads},
                  {"head_size", x.head_size},
                  {"embedding_size", x.embedding_size},
                  {"vocabulary", x.vocabulary},
                  {"longest", x.longest == std::numeric_limits<std::int64_t>::max() ? Json() : Json(x.longest)},
                  {"encoder_layers", x.encoder_layers},
                  {"encoder_heads", x.encoder_heads},
                  {"parameters", x.parameters},
                  {"dtype", name_of(x.dtype)},
                  {"formats", x.formats},
                  {"weight_bytes", x.weight_bytes}});
}

std::string to_json(std::span<const NextToken> next) {
  Json list = Json::array();
  for (const NextToken& each : next)
    list.push_back({{"id", each.id}, {"token", each.token}, {"probability", each.probability}});
  return text_of(list);
}

std::string to_json(const Attribution& x, const TensorJson& tensor) {
  const Tensors json(tensor);
  Json why = {{"token", x.token},
              {"against", or_null(x.against)},
              {"logit", x.logit},
              {"capped_logit", x.capped_logit},
              {"heads", json("heads", x.heads)}};
  if (x.cross.count() > 0) why["cross"] = json("cross", x.cross);
  why.update({{"mlps", json("mlps", x.mlps)}, {"embedding", x.embedding}, {"bias", x.bias}, {"rounding", x.rounding}});
  return text_of(why);
}

std::string to_json(const Lens& x, std::span<const std::int64_t> positions, const TensorJson& tensor) {
  const Tensors json(tensor);
  return text_of({{"positions", positions},
                  {"ids", json("ids", x.ids)},
                  {"log_probabilities", json("log_probabilities", x.log_probabilities)},
                  {"rank", json("rank", x.rank)}});
}

std::string to_json(const Ablation& x, const TensorJson& tensor) {
  const Tensors json(tensor);
  if (x.cosine_distance.count() > 0) return text_of({{"cosine_distance", json("cosine_distance", x.cosine_distance)}});
  return text_of({{"token", or_null(x.token)},
                  {"against", or_null(x.against)},
                  {"logit", json("logit", x.logit)},
                  {"log_probability", json("log_probability", x.log_probability)},
                  {"kl", json("kl", x.kl)}});
}

std::string to_json(const Patching& x, const TensorJson& tensor) {
  return text_of({{"token", x.token},
                  {"against", x.against},
                  {"clean_difference", x.clean},
                  {"corrupt_difference", x.corrupt},
                  {"recovered", Tensors(tensor)("recovered", x.recovered)}});
}

}  // namespace attend::inline v0
