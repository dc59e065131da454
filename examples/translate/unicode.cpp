#include "unicode.h"

#include <cstddef>
#include <cstdint>

namespace translate {
namespace {

constexpr char32_t replacement = 0xFFFD;

struct Lead {
  std::size_t length;
  char32_t bits;
  char32_t smallest;  // that needs so many bytes
};

Lead lead_of(unsigned char byte) {
  if (byte < 0x80) return {1, byte, 0};
  if (byte >= 0xC0 && byte < 0xE0) return {2, byte & 0x1Fu, 0x80};
  if (byte >= 0xE0 && byte < 0xF0) return {3, byte & 0x0Fu, 0x800};
  if (byte >= 0xF0 && byte < 0xF8) return {4, byte & 0x07u, 0x10000};
  return {0, 0, 0};
}

}  // namespace

std::u32string code_points(std::string_view text) {
  std::u32string points;
  for (std::size_t at = 0; at < text.size();) {
    const Lead lead = lead_of(static_cast<unsigned char>(text[at]));
    char32_t point = lead.bits;
    bool good = lead.length > 0 && at + lead.length <= text.size();
    for (std::size_t i = 1; good && i < lead.length; ++i) {
      const auto byte = static_cast<unsigned char>(text[at + i]);
      good = (byte & 0xC0u) == 0x80;
      point = point << 6 | (byte & 0x3Fu);
    }
    good = good && point >= lead.smallest && point <= 0x10FFFF && (point < 0xD800 || point > 0xDFFF);
    points.push_back(good ? point : replacement);
    at += good ? lead.length : 1;
  }
  return points;
}

std::string to_utf8(std::u32string_view points) {
  std::string text;
  const auto add = [&text](char32_t byte) { text.push_back(static_cast<char>(static_cast<unsigned char>(byte))); };
  for (const char32_t point : points) {
    if (point < 0x80) {
      add(point);
    } else if (point < 0x800) {
      add(0xC0 | point >> 6);
      add(0x80 | (point & 0x3F));
    } else if (point < 0x10000) {
      add(0xE0 | point >> 12);
      add(0x80 | (point >> 6 & 0x3F));
      add(0x80 | (point & 0x3F));
    } else {
      add(0xF0 | point >> 18);
      add(0x80 | (point >> 12 & 0x3F));
      add(0x80 | (point >> 6 & 0x3F));
      add(0x80 | (point & 0x3F));
    }
  }
  return text;
}

}  // namespace translate
