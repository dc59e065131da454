// One array of weights as the maps of its heads.
#include <memory>

#include "attend/picture.h"
#include "core/element.h"
#include "core/message.h"

namespace attend::inline v1 {

namespace {

constexpr const char* heat_maps_function = "heat_maps";

View without_leading_ones(View view) {
  while (view.rank() > 2 && view.size(0) == 1) view = view.select(0, 0);
  return view;
}

std::function<bool(std::int64_t, std::int64_t)> seen_in(const View& mask) {
  return [mask](std::int64_t row, std::int64_t column) {
    const std::int64_t offset = row * mask.strides()[0] + column * mask.strides()[1];
    return load_element(mask.dtype(), element_at(mask.raw(), mask.dtype(), offset)) != 0;
  };
}

}  // namespace

std::vector<HeatMap> heat_maps(const View& weights, const HeatMap& like, const std::optional<View>& mask,
                               const std::vector<std::string>& titles) {
  const View all = without_leading_ones(weights);
  if (all.rank() < 2 || all.rank() > 3) {
    fail(ErrorCode::bad_shape, heat_maps_function, "weights have shape {}, expected [Tq,Tk] or [H,Tq,Tk]",
         weights.shape());
  }
  const std::int64_t heads = all.rank() == 3 ? all.size(0) : 1;
  if (heads == 0)
    fail(ErrorCode::bad_shape, heat_maps_function, "weights have shape {}, expected a head", weights.shape());
  if (!titles.empty() && std::ssize(titles) != heads) {
    fail(ErrorCode::bad_shape, heat_maps_function, "{} titles for {} heads (weights {})", titles.size(), heads,
         weights.shape());
  }
  std::optional<View> seen;
  if (mask) {
    if (mask->dtype() != DType::boolean)
      fail(ErrorCode::bad_dtype, heat_maps_function, "mask is {}, expected bool", mask->dtype());
    try {
      seen = without_leading_ones(*mask).broadcast_to(all.shape());
    } catch (const Error&) {
      fail(ErrorCode::bad_shape, heat_maps_function, "mask {} does not broadcast to weights {}", mask->shape(),
           weights.shape());
    }
  }
  std::vector<HeatMap> maps;
  for (std::int64_t head = 0; head < heads; ++head) {
    HeatMap map = like;
    map.values = all.rank() == 3 ? all.select(0, head) : all;
    map.nan_is_hidden = true;
    if (seen) map.visible = seen_in(all.rank() == 3 ? seen->select(0, head) : *seen);
    if (!titles.empty()) {
      map.title = titles[static_cast<std::size_t>(head)];
    } else if (heads > 1) {
      map.title = fmt::format("head {}", head);
    }
    maps.push_back(std::move(map));
  }
  return maps;
}

}  // namespace attend::inline v1
