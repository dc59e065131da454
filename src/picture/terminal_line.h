// A line of a terminal's text, coloured or plain.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/message.h"
#include "core/utf8.h"
#include "picture/colour.h"

namespace attend::inline v1 {

// One line of the terminal, never wider than it.
class Line {
 public:
  explicit Line(const TerminalStyle& style) : style_(style) {}

  int room() const { return style_.width - column_; }
  void write(std::u32string_view text) { put(text, ""); }
  void write_bold(std::u32string_view text) { put(text, "\x1b[1m"); }
  // In colour, the text stands on the background; else it stands alone.
  void write_on(Colour background, std::u32string_view text) { put(text, look(text_colour(background), background)); }
  // Two cells in one character, the upper half ink and the lower half paper; one that is none stays unpainted.
  void write_halves(const std::optional<Colour>& upper, const std::optional<Colour>& lower) {
    if (!upper && !lower) return write_hidden(1);
    upper ? put(U"▀", look(*upper, lower)) : put(U"▄", look(*lower, std::nullopt));
  }
  // Where a query does not see the key: hatched, and in colour on the terminal's own background.
  void write_hidden(int columns) {
    put(std::u32string(static_cast<std::size_t>(columns), U'╱'), look({128, 128, 128}, std::nullopt));
  }
  void skip_to(int column) {
    if (column > column_) write(std::u32string(static_cast<std::size_t>(column - column_), U' '));
  }
  std::string end() {
    set_look("");
    if (!style_.colour) text_.erase(text_.find_last_not_of(' ') + 1);
    return text_ + '\n';
  }

 private:
  static std::string look(Colour ink, const std::optional<Colour>& paper) {
    const std::string background = paper ? fmt::format("8;2;{};{};{}", paper->red, paper->green, paper->blue) : "9";
    return fmt::format("\x1b[38;2;{};{};{};4{}m", ink.red, ink.green, ink.blue, background);
  }
  void put(std::u32string_view text, const std::string& look) {
    const std::u32string fitting = fit_to_columns(text, room());
    if (fitting.empty()) return;
    set_look(look);
    text_ += encode_utf8(fitting);
    column_ += display_width(fitting);
  }
  void set_look(const std::string& look) {
    if (!style_.colour || look == look_) return;
    if (look.empty() || look_.find("[1m") != std::string::npos) text_ += "\x1b[0m";
    text_ += look;
    look_ = look;
  }

  TerminalStyle style_;
  std::string text_;
  std::string look_;
  int column_ = 0;
};

}  // namespace attend::inline v1
