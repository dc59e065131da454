// Where everything in a picture of heat maps stands, for SVG and PNG alike: computed once, in CSS pixels (96 an inch),
// y downwards.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "attend/picture.h"
#include "picture/colour.h"
#include "picture/font.h"

namespace attend::inline v1 {

struct Rect {
  double x = 0;
  double y = 0;
  double width = 0;
  double height = 0;
};

struct FilledRect {
  Rect area;
  Colour colour;
};

// One value of a map.
struct Cell {
  Rect area;
  Colour colour;
  bool hatched = false;  // hidden: nothing to show
  std::u32string text;   // what a pointer resting on the cell reads; empty in large pictures
};

// A map with too many cells for one shape each: a grid of equal pixels, `density` to a CSS pixel.
struct Image {
  static constexpr int density = 2;

  Rect area;
  int columns = 0;
  int rows = 0;
  std::vector<Colour> pixels;
};

// A straight line, which lets what is behind it through.
struct Stroke {
  double x0 = 0;
  double y0 = 0;
  double x1 = 0;  // beyond x0
  double y1 = 0;
  double width = 0;
  Colour colour;
  double opacity = 1;
  std::u32string text;   // what a pointer resting on it reads
  bool upright = false;  // y1 is beyond y0, in place of x1 beyond x0
};

enum class Anchor { start, middle, end };

struct Text {
  double x = 0;  // of the anchor, on the baseline
  double y = 0;
  double size = 0;
  Anchor anchor = Anchor::start;
  int degrees = 0;  // counterclockwise, about the anchor
  Colour colour;
  std::u32string text;
};

struct Layout {
  double width = 0;
  double height = 0;
  std::u32string kind = U"Heat map";
  std::u32string title;        // whole, on one line
  std::u32string caption;      // before the note below
  std::u32string description;  // one sentence for who can't see the picture
  // In the order in which they are painted, on white.
  std::vector<FilledRect> marks;  // frames, the colour scale and its ticks
  std::vector<Cell> cells;
  std::vector<Image> images;
  std::vector<Stroke> strokes;
  std::vector<Text> texts;
};

// Hatching is the lines x + y = n * hatch_distance, of this width and colour, over a cell's own colour.
inline constexpr double hatch_distance = 6;
inline constexpr double hatch_width = 1;
inline constexpr Colour hatch_colour{0xc8, 0xc8, 0xc8};

// Each throws as svg_heat_map and its like do, naming `function`.
Layout lay_out(const TokenStrip& strip, const Font& font, const char* function);
Layout lay_out(const HeadGrid& grid, const Font& font, const char* function);
Layout lay_out(const TokenLinks& links, const Font& font, const char* function);
Layout lay_out(const LayeredGraph& graph, const Font& font, const char* function);
Layout lay_out(const PictureStack& stack, const Font& font, const char* function);
Layout lay_out(const std::vector<HeatMap>& maps, std::string_view title, const Font& font, const char* function);

}  // namespace attend::inline v1
