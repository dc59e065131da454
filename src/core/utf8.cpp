#include "core/utf8.h"

#include "core/width_table.h"

namespace attend::inline v1 {

namespace {

struct Form {
  int length;         // bytes
  char32_t lead;      // bits of the first byte that belong to the code point
  char32_t smallest;  // a smaller code point in this length is overlong
};

Form form_of(unsigned char first) {
  if (first < 0x80) return {1, 0x7f, 0};
  if ((first & 0xe0) == 0xc0) return {2, 0x1f, 0x80};
  if ((first & 0xf0) == 0xe0) return {3, 0x0f, 0x800};
  if ((first & 0xf8) == 0xf0) return {4, 0x07, 0x10000};
  return {0, 0, 0};
}

// Appends the code points up to the first byte that begins none; which one it is, or the text's size.
std::size_t decode(std::string_view text, std::u32string& to) {
  to.reserve(text.size());
  std::size_t at = 0;
  while (at < text.size()) {
    const auto first = static_cast<unsigned char>(text[at]);
    const Form form = form_of(first);
    bool valid = form.length > 0 && at + static_cast<std::size_t>(form.length) <= text.size();
    char32_t point = first & form.lead;
    for (int i = 1; valid && i < form.length; ++i) {
      const auto next = static_cast<unsigned char>(text[at + static_cast<std::size_t>(i)]);
      valid = !begins_character(static_cast<char>(next));
      point = point << 6 | (next & 0x3f);
    }
    valid = valid && point >= form.smallest && point <= 0x10ffff && !(point >= 0xd800 && point < 0xe000);
    if (!valid) break;
    to.push_back(point);
    at += static_cast<std::size_t>(form.length);
  }
  return at;
}

int columns_of(char32_t point) {
  if (point < zero_width_ranges.front().first) return 1;
  if (holds(zero_width_ranges, point)) return 0;
  return holds(wide_ranges, point) ? 2 : 1;
}

}  // namespace

std::u32string decode_utf8(std::string_view text, const Place& what) {
  std::u32string out;
  const std::size_t end = decode(text, out);
  if (end != text.size()) {
    fail(ErrorCode::bad_value, what.function, "{} is not UTF-8: byte {} is 0x{:02x}", what.part, end,
         static_cast<unsigned char>(text[end]));
  }
  return out;
}

bool is_utf8(std::string_view text) {
  std::u32string points;
  return decode(text, points) == text.size();
}

std::string encode_utf8(std::u32string_view code_points) {
  std::string out;
  const auto tail = [&](char32_t point, int shift) {
    out.push_back(static_cast<char>(0x80 | (point >> shift & 0x3f)));
  };
  for (const char32_t point : code_points) {
    if (point < 0x80) {
      out.push_back(static_cast<char>(point));
    } else if (point < 0x800) {
      out.push_back(static_cast<char>(0xc0 | point >> 6));
      tail(point, 0);
    } else if (point < 0x10000) {
      out.push_back(static_cast<char>(0xe0 | point >> 12));
      tail(point, 6);
      tail(point, 0);
    } else {
      out.push_back(static_cast<char>(0xf0 | point >> 18));
      tail(point, 12);
      tail(point, 6);
      tail(point, 0);
    }
  }
  return out;
}

int display_width(std::u32string_view text) {
  int width = 0;
  for (const char32_t point : text) width += columns_of(point);
  return width;
}

std::u32string fit_to_columns(std::u32string_view text, int columns) {
  if (columns <= 0) return {};
  int width = 0;
  std::size_t kept = 0;  // characters that leave a column for the '…'
  for (std::size_t i = 0; i < text.size(); ++i) {
    width += columns_of(text[i]);
    if (width < columns) kept = i + 1;
    if (width > columns) return std::u32string(text.substr(0, kept)) + U'…';
  }
  return std::u32string(text);
}

}  // namespace attend::inline v1
