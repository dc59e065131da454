// A strip of tokens, read and checked, as the terminal and the pictures draw it.
#pragma once

#include <string>
#include <vector>

#include "attend/picture.h"
#include "picture/colour.h"
#include "picture/grid.h"

namespace attend::inline v1 {

struct ReadStrip {
  std::vector<std::u32string> tokens;  // one line each
  std::vector<double> values;          // one each; -inf: none
  std::u32string title;
  std::u32string name;
  ColourScale scale;
};

// Throws as svg_token_strip does, naming `function`.
ReadStrip read_strip(const TokenStrip& strip, const char* function);

}  // namespace attend::inline v1
