#include "picture/ticks.h"

#include <algorithm>
#include <cmath>

#include "core/message.h"
#include "picture/grid.h"
#include "picture/text.h"

namespace attend::inline v1 {

namespace {

std::vector<Tick> linear_ticks(const ColourScale& scale) {
  // Two ends so close that a difference would be 0: values about which nothing more can be said.
  if (!(scale.high / 6 > scale.low / 6)) return {{scale.low, ascii(short_number(scale.low, 5))}};
  const double wanted = scale.high / 6 - scale.low / 6;
  const double power = std::pow(10, std::floor(std::log10(wanted)));
  double step = 10 * power;
  for (const double round : {5.0, 2.5, 2.0, 1.0}) {
    if (round * power >= wanted * (1 - 1e-9)) step = round * power;
  }
  int decimals = 0;
  for (double part = step; decimals < 5 && std::abs(part - std::round(part)) > 1e-6 * part; part *= 10) ++decimals;
  std::vector<Tick> ticks;
  const double first = std::ceil(scale.low / step - 1e-9);
  for (int i = 0; i < 8; ++i) {
    const double value = (first + i) * step;
    if (value > scale.high + step * 1e-9) break;
    ticks.push_back({value, ascii(short_number(value, decimals))});
  }
  return ticks;
}

// 1, 5 and 2 times powers of ten, the first of which are the roundest, wherever there is room for one more.
std::vector<Tick> curved_ticks(const ColourScale& scale) {
  constexpr double apart = 0.13;  // of the scale: of its 100 pixels, 13 for text of 11
  std::vector<double> values = {scale.low};
  const double top = std::floor(std::log10(scale.high));
  for (const double round : {1.0, 5.0, 2.0}) {
    for (double power = top; scale.place(5 * std::pow(10, power)) >= apart; --power) {
      const double value = round * std::pow(10, power);
      const double place = scale.place(value);
      const auto free = [&](double other) { return std::abs(scale.place(other) - place) >= apart; };
      if (value <= scale.high * (1 + 1e-9) && std::ranges::all_of(values, free)) values.push_back(value);
    }
  }
  std::ranges::sort(values);
  std::vector<Tick> ticks;
  ticks.reserve(values.size());
  for (const double value : values) ticks.push_back({value, ascii(fmt::format("{:.4g}", value))});
  // The floor of a logarithm is the colour of all that is less.
  if (scale.kind == PictureScale::log) ticks[0].text = U"≤ " + ticks[0].text;
  return ticks;
}

}  // namespace

std::vector<Tick> ticks_of(const ColourScale& scale) {
  const bool curved = scale.kind == PictureScale::sqrt || scale.kind == PictureScale::log;
  return curved ? curved_ticks(scale) : linear_ticks(scale);
}

std::u32string scale_note(const ColourScale& scale) {
  if (scale.kind == PictureScale::sqrt) return U"Colour scale: square root.";
  if (scale.kind == PictureScale::log) return U"Colour scale: logarithm.";
  return {};
}

}  // namespace attend::inline v1
