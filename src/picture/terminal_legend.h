// What the colours and shades of a terminal's picture stand for.
#pragma once

#include <string>
#include <string_view>

#include "picture/colour.h"

namespace attend::inline v1 {

// The shade that stands for a colour where there are none; '?' for NaN. Of a diverging scale, what is below 0 is
// strokes.
char32_t shade_of(const ColourScale& scale, double place);

// What is seen besides the scale.
struct LegendSigns {
  bool nan = false;
  std::u32string_view hidden = {};  // what a hatched cell is; empty where there is none
};

// "0 ░░░▒▒▒▓▓▓███ 0.73", from that column on or before it where there is no room, and a line for a scale that is not
// linear.
std::string terminal_legend(const ColourScale& scale, const LegendSigns& signs, int left, const TerminalStyle& style);

}  // namespace attend::inline v1
