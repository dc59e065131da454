#include "picture/sheet.h"

#include <algorithm>
#include <cmath>

#include "picture/text.h"

namespace attend::inline v1 {

namespace {

constexpr double title_line = 23;
constexpr double note_line = 14;
constexpr double max_text_width = 540;  // a picture is not made wider for its title or its note than this

}  // namespace

Rect Sheet::arrange(double width, double height, const std::u32string& about) {
  const std::u32string note = sentences({layout_.caption, about});
  const auto wanted = [&](const std::u32string& text, double size) {
    return std::ceil(std::min(font_.width(text, size), max_text_width));
  };
  const double inner = std::max({width, wanted(layout_.title, title_size), wanted(note, note_size)});
  layout_.width = inner + 2 * margin;
  Rect content{margin + std::floor((inner - width) / 2), margin, width, height};
  if (!layout_.title.empty()) {
    title_lines_ = wrap(layout_.title, font_, title_size, inner);
    content.y += static_cast<double>(title_lines_.size()) * title_line + 12;
  }
  if (!note.empty()) note_lines_ = wrap(note, font_, note_size, inner);
  const double foot = note_lines_.empty() ? 0 : static_cast<double>(note_lines_.size()) * note_line - 3 + 12;
  layout_.height = std::ceil(content.y + height + foot + margin);
  return content;
}

void Sheet::paint_title() {
  for (std::size_t i = 0; i < title_lines_.size(); ++i) {
    write(layout_.width / 2, margin + title_size - 2 + static_cast<double>(i) * title_line, title_size, Anchor::middle,
          ink, title_lines_[i]);
  }
}

void Sheet::paint_note() {
  for (std::size_t i = 0; i < note_lines_.size(); ++i) {
    const double up = static_cast<double>(note_lines_.size() - 1 - i) * note_line;
    write(layout_.width / 2, layout_.height - margin - up, note_size, Anchor::middle, soft_ink, note_lines_[i]);
  }
}

void Sheet::write(double x, double y, double size, Anchor anchor, Colour colour, std::u32string text, int degrees) {
  if (!text.empty()) layout_.texts.push_back({x, y, size, anchor, degrees, colour, std::move(text)});
}

void Sheet::frame(const Rect& area) {
  layout_.marks.push_back({{area.x - 1, area.y - 1, area.width + 2, 1}, frame_colour});
  layout_.marks.push_back({{area.x - 1, area.y + area.height, area.width + 2, 1}, frame_colour});
  layout_.marks.push_back({{area.x - 1, area.y, 1, area.height}, frame_colour});
  layout_.marks.push_back({{area.x + area.width, area.y, 1, area.height}, frame_colour});
}

}  // namespace attend::inline v1
