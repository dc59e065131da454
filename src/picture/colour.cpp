#include "picture/colour.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/element.h"
#include "core/message.h"

namespace attend::inline v1 {

namespace {

// A colour in Oklab (B. Ottosson, "A perceptual color space for image processing", 2020), where equal distances look
// equally far apart.
struct Oklab {
  double lightness;
  double a;
  double b;
};

// Lightness falls evenly from 0.985 to 0.235 while the hue turns from 105 to 282 degrees, at a chroma that stays inside
// sRGB; the anchors stand at equal steps along that path (0.075 each), so equal steps of the value are equal steps to
// the eye. Lightness alone tells the order: the ramp survives grey printing and every kind of colour blindness.
constexpr std::array<Oklab, 13> ramp = {{
    {0.985, -0.005, 0.019},
    {0.929, -0.028, 0.050},
    {0.867, -0.056, 0.059},
    {0.804, -0.080, 0.049},
    {0.741, -0.095, 0.028},
    {0.678, -0.099, 0.001},
    {0.616, -0.094, -0.028},
    {0.554, -0.081, -0.054},
    {0.493, -0.061, -0.076},
    {0.430, -0.037, -0.091},
    {0.367, -0.012, -0.098},
    {0.302, 0.009, -0.097},
    {0.235, 0.019, -0.088},
}};

// From blue through white to orange and brown: lightness falls evenly from 0.985 to 0.42 on both sides, and alone tells
// how far a value is from 0; blue and orange are told apart by every kind of colour blindness.
constexpr std::array<Oklab, 11> diverging = {{
    {0.420, -0.030, -0.121},
    {0.533, -0.041, -0.134},
    {0.646, -0.046, -0.127},
    {0.759, -0.044, -0.095},
    {0.872, -0.025, -0.043},
    {0.985, 0.000, 0.000},
    {0.872, 0.034, 0.064},
    {0.759, 0.075, 0.112},
    {0.646, 0.100, 0.119},
    {0.533, 0.098, 0.098},
    {0.420, 0.083, 0.075},
}};

std::uint8_t srgb_byte(double linear) {
  const double clipped = std::clamp(linear, 0.0, 1.0);
  const double encoded = clipped <= 0.0031308 ? 12.92 * clipped : 1.055 * std::pow(clipped, 1 / 2.4) - 0.055;
  return static_cast<std::uint8_t>(std::lround(255 * encoded));
}

double linear(std::uint8_t srgb) {
  const double encoded = srgb / 255.0;
  return encoded <= 0.04045 ? encoded / 12.92 : std::pow((encoded + 0.055) / 1.055, 2.4);
}

Colour to_srgb(const Oklab& c) {
  const auto cube = [](double x) { return x * x * x; };
  const double l = cube(c.lightness + 0.3963377774 * c.a + 0.2158037573 * c.b);
  const double m = cube(c.lightness - 0.1055613458 * c.a - 0.0638541728 * c.b);
  const double s = cube(c.lightness - 0.0894841775 * c.a - 1.2914855480 * c.b);
  return {srgb_byte(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s),
          srgb_byte(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s),
          srgb_byte(-0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s)};
}

double luminance(Colour c) {
  return 0.2126 * linear(c.red) + 0.7152 * linear(c.green) + 0.0722 * linear(c.blue);
}

template <std::size_t count>
Colour between(const std::array<Oklab, count>& anchors, double place) {
  const double at = std::clamp(place, 0.0, 1.0) * (count - 1);
  const auto below = std::min(static_cast<std::size_t>(at), count - 2);
  const double part = at - static_cast<double>(below);
  const Oklab& from = anchors[below];
  const Oklab& to = anchors[below + 1];
  return to_srgb(
      {std::lerp(from.lightness, to.lightness, part), std::lerp(from.a, to.a, part), std::lerp(from.b, to.b, part)});
}

// The smallest and largest finite value; low > high where there is none.
ColourScale finite_range(const View& values) {
  ColourScale range{std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()};
  const Tensor all = values.to(DType::f64);
  for (const double value : std::span(all.data<double>(), static_cast<std::size_t>(all.count()))) {
    if (!std::isfinite(value)) continue;
    range.low = std::min(range.low, value);
    range.high = std::max(range.high, value);
  }
  return range;
}

// The power of ten three to four decades below: a round end for the ticks. Weights below a thousandth of the largest
// one are as good as none, and more decades would leave too few colours for each.
double floor_below(double high) {
  return std::max(std::pow(10, std::ceil(std::log10(high)) - 4), std::numeric_limits<double>::denorm_min());
}

}  // namespace

std::string_view name_of(PictureScale scale) {
  switch (scale) {
    case PictureScale::sqrt:
      return "sqrt";
    case PictureScale::log:
      return "log";
    case PictureScale::diverging:
      return "diverging";
    default:
      return "linear";
  }
}

PictureScale picture_scale(std::string_view name) {
  for (const PictureScale scale :
       {PictureScale::linear, PictureScale::sqrt, PictureScale::log, PictureScale::diverging}) {
    if (name == name_of(scale)) return scale;
  }
  fail(ErrorCode::bad_value, "picture_scale", "scale: expected 'linear', 'sqrt', 'log' or 'diverging', got '{}'", name);
}

Colour ramp_colour(double place) {
  if (std::isnan(place)) return nan_colour;
  return between(ramp, place);
}

Colour diverging_colour(double place) {
  return std::isnan(place) ? diverging_nan_colour : between(diverging, place);
}

double contrast(Colour a, Colour b) {
  const auto [darker, lighter] = std::minmax({luminance(a), luminance(b)});
  return (lighter + 0.05) / (darker + 0.05);
}

Colour text_colour(Colour background) {
  return contrast(background, black) >= contrast(background, white) ? black : white;
}

double ColourScale::place(double value) const {
  if (std::isnan(value)) return value;
  if (value <= low) return 0;
  if (value >= high) return 1;
  switch (kind) {
    case PictureScale::sqrt:
      return (std::sqrt(value) - std::sqrt(low)) / (std::sqrt(high) - std::sqrt(low));
    case PictureScale::log:
      return (std::log(value) - std::log(low)) / (std::log(high) - std::log(low));
    default:
      // Halves, because high - low may overflow.
      return (value / 2 - low / 2) / (high / 2 - low / 2);
  }
}

ColourScale colour_scale(std::span<const HeatMap> maps, const char* function) {
  ColourScale scale{std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(), maps[0].scale};
  for (const HeatMap& map : maps) {
    if (map.scale != scale.kind)
      fail(ErrorCode::bad_value, function, "one map has the scale {}, another {}: they share one", name_of(scale.kind),
           name_of(map.scale));
    if (!std::isfinite(map.low) || !std::isfinite(map.high) || map.low > map.high)
      fail(ErrorCode::bad_value, function, "expected finite low <= high, got low {} and high {}", map.low, map.high);
    ColourScale own{map.low, map.high};
    if (map.low == map.high) {
      const ColourScale found = finite_range(map.values);
      own = {std::min(map.low, found.low), found.high};
    }
    scale.low = std::min(scale.low, own.low);
    scale.high = std::max(scale.high, own.high);
  }
  if (scale.kind == PictureScale::diverging) {
    scale.high = std::max(-scale.low, scale.high);
    if (!(scale.high > 0)) scale.high = 1;
    scale.low = -scale.high;
    return scale;
  }
  // Nothing above low: every cell is the lightest, and the legend still has two ends.
  if (!(scale.high > scale.low)) scale.high = scale.low + 1;
  if (scale.kind == PictureScale::log && scale.low <= 0) scale.low = floor_below(scale.high);
  return scale;
}

}  // namespace attend::inline v1
