// A strip of tokens in the terminal.
#include <algorithm>

#include "core/message.h"
#include "core/utf8.h"
#include "picture/strip.h"
#include "picture/terminal_legend.h"
#include "picture/terminal_line.h"
#include "picture/text.h"

namespace attend::inline v1 {

namespace {

// In colour the token stands on it; else a shade stands before the token.
void write_token(Line& line, const ReadStrip& strip, std::size_t i, bool colour) {
  const double value = strip.values[i];
  const std::u32string& text = strip.tokens[i];
  if (colour && !Grid::hidden(value)) {
    // A token of nothing but marks that take no column would not be seen.
    return line.write_on(strip.scale.at(value), display_width(text) == 0 ? U" " : text);
  }
  if (Grid::hidden(value)) {
    line.write_hidden(1);
  } else {
    line.write(std::u32string(1, shade_of(strip.scale, strip.scale.place(value))));
  }
  line.write(text);
}

}  // namespace

std::string terminal_token_strip(const TokenStrip& given, const TerminalStyle& style) {
  constexpr const char* function = "terminal_token_strip";
  if (style.width < 1) fail(ErrorCode::bad_value, function, "expected a width of 1 or more, got {}", style.width);
  const ReadStrip strip = read_strip(given, function);
  const auto width_of = [&](std::size_t i) {
    const int shade = !style.colour || Grid::hidden(strip.values[i]) ? 1 : 0;
    return std::max(1, display_width(strip.tokens[i]) + shade);
  };
  int whole = 0;
  for (std::size_t i = 0; i < strip.tokens.size(); ++i) whole += width_of(i) + 1;
  // Lines that follow one another begin with the index of their first token.
  const int digits = display_width(ascii(fmt::format("{}", strip.tokens.size() - 1)));
  const bool wraps = whole - 1 > style.width && style.width >= 4 * digits;
  const int gutter = wraps && given.has_indices ? digits + 2 : 0;

  std::string out;
  if (!strip.title.empty()) {
    Line title(style);
    title.write_bold(strip.title);
    out += title.end();
  }
  Line line(style);
  bool begun = false;
  for (std::size_t i = 0; i < strip.tokens.size(); ++i) {
    if (begun && width_of(i) + 1 > line.room()) {
      out += line.end();
      line = Line(style);
      begun = false;
    }
    if (!begun && gutter > 0) {
      const std::u32string index = ascii(fmt::format("{:>{}}", i, digits));
      line.write(index);
      line.skip_to(gutter);
    } else if (begun) {
      line.write(U" ");
    }
    write_token(line, strip, i, style.colour);
    begun = true;
  }
  out += line.end();
  if (!given.has_scale) return out;
  if (!strip.name.empty()) {
    Line name(style);
    name.write(strip.name + U":");
    out += name.end();
  }
  const bool hidden = std::ranges::any_of(strip.values, Grid::hidden);
  const LegendSigns signs{.nan = false, .hidden = hidden ? U"no value" : U""};
  return out + terminal_legend(strip.scale, signs, gutter, style);
}

}  // namespace attend::inline v1
