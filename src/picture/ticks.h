// What stands beside a colour scale.
#pragma once

#include <string>
#include <vector>

#include "picture/colour.h"

namespace attend::inline v1 {

// Round values on the scale, with their text; the lowest comes first.
struct Tick {
  double value;
  std::u32string text;
};
std::vector<Tick> ticks_of(const ColourScale& scale);

// "Colour scale: square root.": what a picture says of a scale that does not spread values evenly; of others nothing.
std::u32string scale_note(const ColourScale& scale);

}  // namespace attend::inline v1
