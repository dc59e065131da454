// The colours of every heat map: light for low, dark for high, as ink on white paper.
#pragma once

#include <cstdint>
#include <span>

#include "attend/picture.h"

namespace attend::inline v1 {

struct Colour {
  std::uint8_t red = 0;
  std::uint8_t green = 0;
  std::uint8_t blue = 0;
  friend bool operator==(const Colour&, const Colour&) = default;
};

inline constexpr Colour black{0, 0, 0};
inline constexpr Colour white{255, 255, 255};
// A cell that is NaN: orange is nowhere on the ramp, and stays apart from it for colour-blind eyes.
inline constexpr Colour nan_colour{0xee, 0x9b, 0x3a};

// The ramp from cream (0) through green and blue to midnight blue (1); values outside are clamped, NaN is nan_colour.
Colour ramp_colour(double place);

// The ramp of the diverging scale, from blue (0) through white (0.5) to brown (1), likewise. Grey is nowhere on it.
Colour diverging_colour(double place);
inline constexpr Colour diverging_nan_colour{0x8c, 0x8c, 0x8c};

// The contrast ratio of WCAG 2: from 1 (the same) to 21 (black on white).
double contrast(Colour a, Colour b);
// Black or white, whichever is easier to read on this background; the contrast is never below 4.58.
Colour text_colour(Colour background);

// Which values get which colours.
struct ColourScale {
  double low = 0;
  double high = 1;
  PictureScale kind = PictureScale::linear;
  // 0 for low and below, 1 for high and above, NaN for NaN.
  double place(double value) const;
  // Of a place on the scale, and of a value.
  Colour colour(double at) const { return kind == PictureScale::diverging ? diverging_colour(at) : ramp_colour(at); }
  Colour at(double value) const { return colour(place(value)); }
};

// The scale that the maps share. Ends that the maps leave open (low == high) are found in the values: high is the
// largest finite one, and low is lowered to the smallest one, so that no negative value hides in the lightest colour.
// A logarithm's low is above 0; a diverging scale's is -high. Throws bad_value, in `function`'s name, for low > high,
// for an end that is not finite and for kinds that differ.
ColourScale colour_scale(std::span<const HeatMap> maps, const char* function);

}  // namespace attend::inline v1
