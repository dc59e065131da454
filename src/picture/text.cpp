#include "picture/text.h"

#include <algorithm>

#include "core/utf8.h"

namespace attend::inline v1 {

std::u32string ascii(std::string_view text) {
  return {text.begin(), text.end()};
}

std::u32string one_line(std::string_view text, const Place& what) {
  std::u32string line = decode_utf8(text, what);
  for (char32_t& point : line) {
    const bool space = point == '\t' || point == '\n' || point == '\r' || point == 0x2028 || point == 0x2029;
    const bool turn = (point >= 0x202a && point <= 0x202e) || (point >= 0x2066 && point <= 0x2069);
    const bool control = point < 0x20 || (point >= 0x7f && point < 0xa0) || turn;
    const bool noncharacter = (point & 0xfffe) == 0xfffe || (point >= 0xfdd0 && point < 0xfdf0);
    if (space) {
      point = ' ';
    } else if (control || noncharacter) {
      point = 0xfffd;
    }
  }
  return line;
}

std::u32string cut(const std::u32string& text, const Font& font, double size, double width) {
  if (font.width(text, size) <= width) return text;
  const double room = width - font.width(U"…", size);
  std::size_t fits = 0;
  for (std::size_t beyond = text.size(); beyond - fits > 1;) {
    const std::size_t middle = fits + (beyond - fits) / 2;
    (font.width(std::u32string_view(text).substr(0, middle), size) <= room ? fits : beyond) = middle;
  }
  while (fits > 0 && (extends_character(text[fits]) || text[fits - 1] == 0x200d)) --fits;
  while (fits > 0 && text[fits - 1] == ' ') --fits;
  return text.substr(0, fits) + U'…';
}

std::u32string trimmed(const std::u32string& text) {
  const std::size_t first = text.find_first_not_of(U' ');
  return first == std::u32string::npos ? U"" : text.substr(first, text.find_last_not_of(U' ') + 1 - first);
}

std::u32string sentences(const std::vector<std::u32string>& all) {
  std::u32string text;
  for (const std::u32string& one : all) {
    if (!text.empty() && !one.empty()) text += U' ';
    text += one;
  }
  return text;
}

std::vector<std::u32string> wrap(std::u32string text, const Font& font, double size, double width) {
  std::vector<std::u32string> lines;
  while (lines.size() < 2 && font.width(text, size) > width) {
    const std::size_t fits = cut(text, font, size, width).size() - 1;
    const std::size_t space = text.rfind(U' ', fits);
    const bool at_space = space != std::u32string::npos && space > 0;
    const std::size_t end = at_space ? space : std::max<std::size_t>(fits, 1);
    lines.push_back(text.substr(0, end));
    text.erase(0, at_space ? end + 1 : end);
  }
  lines.push_back(cut(text, font, size, width));
  return lines;
}

std::string escape_markup(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace attend::inline v1
