#include "picture/colour_bar.h"

#include <algorithm>
#include <cmath>

namespace attend::inline v1 {

namespace {

constexpr double thickness = 12;
constexpr double sign_height = 26;
constexpr int bar_steps = 100;

void paint_sign(Sheet& sheet, const std::u32string& sign, double x, double y) {
  if (sign.empty()) return;
  const std::u32string meaning = sign == U"hidden" ? U"hidden: the query does not see the key" : sign;
  sheet.layout().cells.push_back({{x, y, thickness, thickness}, hidden_colour, true, meaning});
  sheet.write(x + thickness + 7, y + thickness / 2 + half_height(note_size), note_size, Anchor::start, soft_ink, sign);
}

}  // namespace

double ColourBar::width(const Font& font) const {
  double text = sign.empty() ? 0 : font.width(sign, note_size);
  for (const Tick& tick : ticks) text = std::max(text, font.width(tick.text, note_size));
  return thickness + 8 + std::ceil(text);
}

double ColourBar::height(double bar) const {
  return bar + half_height(note_size) + (sign.empty() ? 0 : sign_height);
}

void ColourBar::paint_upright(Sheet& sheet, double x, double y, double height) const {
  Layout& out = sheet.layout();
  const Rect bar{x + 1, y + 1, thickness - 2, height - 2};
  sheet.frame(bar);
  // Each step reaches down to the bar's end and the next covers it, so that no seam shows between two.
  for (int i = 0; i < bar_steps; ++i) {
    const double from = std::floor(bar.height * i / bar_steps * 2) / 2;
    out.marks.push_back({{bar.x, bar.y + from, bar.width, bar.height - from}, colour(1 - (i + 0.5) / bar_steps)});
  }
  for (const Tick& tick : ticks) {
    const double at = bar.y + bar.height * (1 - scale.place(tick.value));
    const double line = std::clamp(std::round(at - 0.5), bar.y, bar.y + bar.height - 1);
    out.marks.push_back({{bar.x + bar.width + 1, line, 4, 1}, frame_colour});
    sheet.write(bar.x + bar.width + 8, at + half_height(note_size), note_size, Anchor::start, soft_ink, tick.text);
  }
  paint_sign(sheet, sign, bar.x - 1, bar.y + bar.height + sign_height - thickness);
}

void ColourBar::paint_level(Sheet& sheet, double x, double y, double width) const {
  Layout& out = sheet.layout();
  const Rect bar{x + 1, y + 1, width - 2, thickness - 2};
  sheet.frame(bar);
  for (int i = 0; i < bar_steps; ++i) {
    const double from = std::floor(bar.width * i / bar_steps * 2) / 2;
    out.marks.push_back({{bar.x + from, bar.y, bar.width - from, bar.height}, colour((i + 0.5) / bar_steps)});
  }
  double free = x - 100;  // where the last tick's text ends
  for (const Tick& tick : ticks) {
    const double at = bar.x + bar.width * scale.place(tick.value);
    const double line = std::clamp(std::round(at - 0.5), bar.x, bar.x + bar.width - 1);
    out.marks.push_back({{line, bar.y + bar.height + 1, 1, 3}, frame_colour});
    const double half = sheet.font().width(tick.text, note_size) / 2;
    if (at - half < free + 6) continue;
    free = at + half;
    sheet.write(at, bar.y + bar.height + 15, note_size, Anchor::middle, soft_ink, tick.text);
  }
  paint_sign(sheet, sign, x + width + 24, y);
}

}  // namespace attend::inline v1
