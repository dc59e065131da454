// What is found as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "attend/analysis.h"

namespace attend::inline v1 {

using Json = nlohmann::ordered_json;

// Lists of lists.
Json nested(const View& tensor);
// A tensor under its name, as it is asked for.
class Tensors {
 public:
  explicit Tensors(const TensorJson& made) : made_(made) {}
  Json operator()(std::string_view name, const Tensor& tensor) const;  // not inline: a parser of JSON takes seconds

 private:
  const TensorJson& made_;
};

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

// kind, layer and head.
Json json_of(const AttributionPart& part);

// What is no UTF-8 is replaced.
std::string text_of(const Json& json);

}  // namespace attend::inline v1
