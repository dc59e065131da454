#include "picture/terminal_legend.h"

#include <algorithm>
#include <cmath>

#include "core/utf8.h"
#include "picture/terminal_line.h"
#include "picture/text.h"
#include "picture/ticks.h"

namespace attend::inline v1 {

namespace {

constexpr std::u32string_view shades = U" ░▒▓█";
constexpr std::u32string_view strokes = U" ·-=≡";
constexpr int ramp_steps = 20;

void write_ramp(Line& line, const ColourScale& scale, const TerminalStyle& style) {
  if (!style.colour) line.write(U"│");
  for (int i = 0; i < ramp_steps; ++i) {
    const double place = i / (ramp_steps - 1.0);
    if (style.colour) line.write_on(scale.colour(place), U" ");
    if (!style.colour) line.write(std::u32string(1, shade_of(scale, place)));
  }
  if (!style.colour) line.write(U"│");
}

}  // namespace

char32_t shade_of(const ColourScale& scale, double place) {
  if (std::isnan(place)) return U'?';
  if (scale.kind == PictureScale::diverging) {
    const double side = 2 * place - 1;
    return (side < 0 ? strokes : shades)[static_cast<std::size_t>(std::lround(std::abs(side) * 4))];
  }
  return shades[static_cast<std::size_t>(std::lround(place * static_cast<double>(shades.size() - 1)))];
}

std::string terminal_legend(const ColourScale& scale, const LegendSigns& signs, int left, const TerminalStyle& style) {
  Line line(style);
  const bool floor = scale.kind == PictureScale::log;  // the colour of all that is less
  const std::u32string low = (floor ? U"≤ " : U"") + ascii(fmt::format("{:.4g} ", scale.low));
  const std::u32string high = ascii(fmt::format(" {:.4g}", scale.high));
  const std::u32string_view nan_text = style.colour ? U" nan " : U"? nan";
  const int frame = style.colour ? 0 : 2;
  const int beside =
      (signs.nan ? 2 + display_width(nan_text) : 0) + (signs.hidden.empty() ? 0 : 5 + display_width(signs.hidden));
  const int wanted = display_width(low) + ramp_steps + frame + display_width(high) + beside;
  line.skip_to(std::min(left, std::max(0, style.width - wanted)));
  line.write(low);
  if (wanted <= style.width) write_ramp(line, scale, style);
  line.write(high);
  if (signs.nan) {
    line.write(U"  ");
    if (style.colour) line.write_on(scale.at(NAN), nan_text);
    if (!style.colour) line.write(nan_text);
  }
  if (!signs.hidden.empty()) {
    line.write(U"  ");
    line.write_hidden(2);
    line.write(U" " + std::u32string(signs.hidden));
  }
  std::string out = line.end();
  if (const std::u32string note = scale_note(scale); !note.empty()) {
    Line below(style);
    below.write(note);
    out += below.end();
  }
  return out;
}

}  // namespace attend::inline v1
