#include "io/names.h"

#include <set>

#include "core/utf8.h"
#include "io/file.h"

namespace attend::inline v1 {

void check_names(std::string_view function, const NamedViews& tensors) {
  std::set<std::string_view> seen;
  for (const auto& [name, tensor] : tensors) {
    const Place place{std::string(function), fmt::format("tensor {}", quote(name))};
    decode_utf8(name, place.in("the name"));
    if (name.find('\0') != std::string::npos) fail(ErrorCode::bad_value, place, "the name has a zero byte");
    if (!seen.insert(name).second) fail(ErrorCode::bad_value, place, "the name comes twice");
  }
}

NamedViews views_of(const TensorMap& tensors) {
  NamedViews out;
  for (const auto& [name, tensor] : tensors) out.emplace_back(name, tensor.view());
  return out;
}

}  // namespace attend::inline v1
