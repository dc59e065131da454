// Pixels as the bytes of a PNG file.
#pragma once

#include <string>
#include <vector>

#include "picture/colour.h"

namespace attend::inline v1 {

struct Pixels {
  int width = 0;
  int height = 0;
  std::vector<Colour> colours;  // row-major
};

// 8-bit sRGB. The title (UTF-8) is left out where it is empty; so is the density where it is 0.
std::string encode_png(const Pixels& pixels, const std::string& title, int pixels_per_metre);

}  // namespace attend::inline v1
