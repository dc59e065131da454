#include "analysis/json.h"

#include <fmt/format.h>

#include <utility>

namespace attend::inline v1 {

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

Json Tensors::operator()(std::string_view name, const Tensor& tensor) const {
  return made_ ? Json::parse(made_(name, tensor)) : nested(tensor);
}

std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string to_json(const View& tensor) {
  return text_of(nested(tensor.dtype() == DType::i64 ? tensor : View(tensor.to(DType::f32))));
}

Json json_of(const AttributionPart& part) {
  using Kind = AttributionPart::Kind;
  constexpr std::pair<Kind, const char*> names[] = {{Kind::head, "head"},
                                                    {Kind::cross, "cross"},
                                                    {Kind::mlp, "mlp"},
                                                    {Kind::embedding, "embedding"},
                                                    {Kind::bias, "bias"}};
  Json json;
  for (const auto& [kind, name] : names)
    if (kind == part.kind) json["kind"] = name;
  if (part.layer >= 0) json["layer"] = part.layer;
  if (part.head >= 0) json["head"] = part.head;
  return json;
}

}  // namespace attend::inline v1
