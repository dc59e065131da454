// Text as pictures need it: drawable on one line, cut and broken to fit, escaped for SVG and HTML.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/message.h"
#include "picture/font.h"

namespace attend::inline v1 {

// The same characters as code points.
std::u32string ascii(std::string_view text);

// Characters as they can be drawn on one line and stand in XML: white space is a space; controls, those that turn the
// line around too, and noncharacters are U+FFFD. Throws bad_value, naming `what`, where the text is not UTF-8.
std::u32string one_line(std::string_view text, const Place& what);

// The longest beginning that fits into `width` with an ellipsis, or all of it. Never ends inside a character made of
// several code points.
std::u32string cut(const std::u32string& text, const Font& font, double size, double width);
// Without blanks at its ends: they would move it out of the middle, and XML drops them.
std::u32string trimmed(const std::u32string& text);
// Those that are not empty, with spaces between.
std::u32string sentences(const std::vector<std::u32string>& all);

// At most three lines; the last is cut.
std::vector<std::u32string> wrap(std::u32string text, const Font& font, double size, double width);

// UTF-8 with the characters escaped that mean something in XML and HTML. What XML forbids is for one_line to replace.
std::string escape_markup(std::string_view text);

}  // namespace attend::inline v1
