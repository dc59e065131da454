#include "analysis/json.h"

#include <fmt/format.h>

namespace attend::inline v0 {

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

std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string to_json(const View& tensor) {
  return text_of(nested(tensor.dtype() == DType::i64 ? tensor : View(tensor.to(DType::f32))));
}

}  // namespace attend::inline v0
