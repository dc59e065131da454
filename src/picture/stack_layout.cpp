// Pictures one below the other.
#include <algorithm>
#include <cmath>

#include "core/message.h"
#include "picture/layout.h"
#include "picture/sheet.h"

namespace attend::inline v1 {

namespace {

template <class Shape>
void move(std::vector<Shape>& shapes, double x, double y) {
  for (Shape& shape : shapes) {
    if constexpr (requires { shape.area; }) {
      shape.area.x += x, shape.area.y += y;
    } else {
      shape.x += x, shape.y += y;
    }
  }
}

template <class Shape>
void append(std::vector<Shape>& to, std::vector<Shape> shapes, double x, double y) {
  move(shapes, x, y);
  to.insert(to.end(), std::make_move_iterator(shapes.begin()), std::make_move_iterator(shapes.end()));
}

Layout lay_out_part(const HeatMaps& maps, const Font& font, const char* function) {
  return lay_out(maps.maps, maps.title, font, function);
}

Layout lay_out_part(const TokenStrip& strip, const Font& font, const char* function) {
  return lay_out(strip, font, function);
}

}  // namespace

Layout lay_out(const PictureStack& stack, const Font& font, const char* function) {
  if (stack.parts.empty()) fail(ErrorCode::bad_value, function, "no parts, expected at least one");
  std::vector<Layout> parts;
  Layout out;
  for (const auto& part : stack.parts) {
    parts.push_back(std::visit([&](const auto& drawing) { return lay_out_part(drawing, font, function); }, part));
    out.width = std::max(out.width, parts.back().width);
  }
  out.kind = parts[0].kind, out.title = parts[0].title;
  for (Layout& part : parts) {
    const double x = std::floor((out.width - part.width) / 2);
    const double y = out.height == 0 ? 0 : out.height - margin;  // one margin between two parts
    append(out.marks, std::move(part.marks), x, y);
    append(out.cells, std::move(part.cells), x, y);
    append(out.images, std::move(part.images), x, y);
    append(out.texts, std::move(part.texts), x, y);
    out.height = y + part.height;
    out.description += (out.description.empty() ? U"" : U" ") + part.description;
  }
  return out;
}

}  // namespace attend::inline v1
