// The colour scale as it stands beside a picture: a bar with ticks, and the sign for what is hatched.
#pragma once

#include <string>
#include <vector>

#include "picture/font.h"
#include "picture/sheet.h"
#include "picture/ticks.h"

namespace attend::inline v1 {

inline constexpr double bar_gap = 24;  // between a picture and its bar

struct ColourBar {
  ColourScale scale;
  std::vector<Tick> ticks;
  std::u32string sign = {};                // "hidden": what is hatched; empty where nothing is
  Colour (*colour)(double) = ramp_colour;  // of a place on the scale

  ColourBar() = default;
  explicit ColourBar(const ColourScale& of)
      : scale(of), ticks(ticks_of(of)), colour(of.kind == PictureScale::diverging ? diverging_colour : ramp_colour) {}

  // Upright, with its ticks on the right and the sign below.
  double width(const Font& font) const;
  double height(double bar) const;
  // `height` is the bar's own, with its frame.
  void paint_upright(Sheet& sheet, double x, double y, double height) const;

  // Level, with its ticks below and the sign on the right.
  static constexpr double level_height = 26;
  void paint_level(Sheet& sheet, double x, double y, double width) const;
};

}  // namespace attend::inline v1
