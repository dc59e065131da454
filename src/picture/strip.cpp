#include "picture/strip.h"

#include "core/message.h"
#include "picture/text.h"

namespace attend::inline v1 {

ReadStrip read_strip(const TokenStrip& strip, const char* function) {
  const View& values = strip.values;
  if (values.rank() != 1 || values.count() == 0) {
    fail(ErrorCode::bad_shape, function, "values have shape {}, expected [tokens], at least one", values.shape());
  }
  if (std::ssize(strip.tokens) != values.size(0)) {
    fail(ErrorCode::bad_shape, function, "{} tokens for {} values", strip.tokens.size(), values.size(0));
  }
  // One row of a heat map: what holds for its values holds for these.
  HeatMap map;
  map.values = values.reshape({1, values.size(0)});
  map.low = strip.low;
  map.high = strip.high;
  map.scale = strip.scale;
  map.nan_is_hidden = true;
  check_heat_map(map, {function});
  ReadStrip read{{},
                 read_grid(map, 1, 1).values,
                 one_line(strip.title, {function, "title"}),
                 one_line(strip.name, {function, "name"}),
                 colour_scale(std::span(&map, 1), function)};
  for (std::size_t i = 0; i < strip.tokens.size(); ++i) {
    read.tokens.push_back(one_line(strip.tokens[i], {function, fmt::format("tokens[{}]", i)}));
  }
  return read;
}

}  // namespace attend::inline v1
