#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <new>
#include <numbers>

#include "core/message.h"
#include "core/utf8.h"
#include "picture/layout.h"
#include "picture/png_file.h"
#include "picture/text.h"

namespace attend::inline v1 {

namespace {

constexpr int density = 2;              // pixels to a CSS pixel
constexpr int pixels_per_metre = 7559;  // 192 an inch: programs that heed it show the picture at the SVG's size

std::uint8_t mix(std::uint8_t under, std::uint8_t over, double part) {
  return static_cast<std::uint8_t>(std::lround(under + (over - under) * part));
}

class Canvas {
 public:
  Canvas(const Layout& layout, const Font& font) : font_(font) {
    pixels_.width = static_cast<int>(std::ceil(layout.width * density));
    pixels_.height = static_cast<int>(std::ceil(layout.height * density));
    try {
      pixels_.colours.assign(static_cast<std::size_t>(pixels_.width) * static_cast<std::size_t>(pixels_.height), white);
    } catch (const std::bad_alloc&) {
      fail(ErrorCode::out_of_memory, "png", "no memory for {} x {} pixels", pixels_.width, pixels_.height);
    }
    for (const FilledRect& mark : layout.marks) fill(mark.area, [&](int, int) { return mark.colour; });
    for (const Cell& cell : layout.cells) draw(cell);
    for (const Image& image : layout.images) draw(image);
    for (const Stroke& stroke : layout.strokes) draw(stroke);
    for (const Text& text : layout.texts) draw(text);
  }
  Pixels take() { return std::move(pixels_); }

 private:
  Colour& at(int x, int y) {
    return pixels_
        .colours[static_cast<std::size_t>(y) * static_cast<std::size_t>(pixels_.width) + static_cast<std::size_t>(x)];
  }
  void blend(Colour& pixel, Colour over, double part) {
    pixel = {mix(pixel.red, over.red, part), mix(pixel.green, over.green, part), mix(pixel.blue, over.blue, part)};
  }

  // The layout stands on half CSS pixels, so a rectangle has sharp edges; colour(x, y) in pixels.
  template <class Paint>
  void fill(const Rect& area, Paint colour) {
    const auto edge = [](double value, int limit) {
      return std::clamp(static_cast<int>(std::lround(value * density)), 0, limit);
    };
    const int right = edge(area.x + area.width, pixels_.width);
    const int bottom = edge(area.y + area.height, pixels_.height);
    for (int y = edge(area.y, pixels_.height); y < bottom; ++y) {
      for (int x = edge(area.x, pixels_.width); x < right; ++x) at(x, y) = colour(x, y);
    }
  }

  void draw(const Cell& cell) {
    fill(cell.area, [&](int x, int y) {
      Colour colour = cell.colour;
      if (!cell.hatched) return colour;
      // How far the pixel's centre is from the nearest line, across the line.
      const double sum = static_cast<double>(x + y + 1) / density;
      const double along = std::abs(std::remainder(sum, hatch_distance)) / std::numbers::sqrt2;
      blend(colour, hatch_colour, std::clamp((hatch_width / 2 - along) * density + 0.5, 0.0, 1.0));
      return colour;
    });
  }

  void draw(const Image& image) {
    const auto index = [](int pixel, double start, double extent, int count) {
      const double part = ((pixel + 0.5) / density - start) / extent;
      return static_cast<std::size_t>(std::clamp(static_cast<int>(part * count), 0, count - 1));
    };
    fill(image.area, [&](int x, int y) {
      const std::size_t row = index(y, image.area.y, image.area.height, image.rows);
      const std::size_t column = index(x, image.area.x, image.area.width, image.columns);
      return image.pixels[row * static_cast<std::size_t>(image.columns) + column];
    });
  }

  // Column by column: how much of a pixel is nearer to the line than half its width, measured across the line.
  // Along its longer way: by columns, or where it is upright by rows.
  void draw(const Stroke& stroke) {
    const bool rows = stroke.upright;
    const double a0 = (rows ? stroke.y0 : stroke.x0) * density, a1 = (rows ? stroke.y1 : stroke.x1) * density;
    const double b0 = (rows ? stroke.x0 : stroke.y0) * density, b1 = (rows ? stroke.x1 : stroke.y1) * density;
    const int most_a = rows ? pixels_.height : pixels_.width, most_b = rows ? pixels_.width : pixels_.height;
    const double slope = (b1 - b0) / (a1 - a0);
    const double across = 1 / std::hypot(1, slope);  // of a step to the side
    const double reach = (stroke.width * density / 2 + 0.5) / across;
    const int end = std::clamp(static_cast<int>(std::lround(a1)), 0, most_a);
    for (int a = std::clamp(static_cast<int>(std::lround(a0)), 0, most_a); a < end; ++a) {
      const double middle = b0 + (a + 0.5 - a0) * slope;
      const int last = std::clamp(static_cast<int>(std::ceil(middle + reach)), 0, most_b);
      for (int b = std::clamp(static_cast<int>(std::floor(middle - reach)), 0, most_b); b < last; ++b) {
        const double distance = std::abs(b + 0.5 - middle) * across;
        const double covered = std::clamp(stroke.width * density / 2 + 0.5 - distance, 0.0, 1.0);
        blend(rows ? at(b, a) : at(a, b), stroke.colour, covered * stroke.opacity);
      }
    }
  }

  void draw(const Text& text) {
    const double width = font_.width(text.text, text.size);
    const double before = text.anchor == Anchor::start ? 0 : text.anchor == Anchor::middle ? width / 2 : width;
    const double slant = text.degrees * std::numbers::pi / 180;
    const double x = text.x - before * std::cos(slant);
    const double y = text.y + before * std::sin(slant);
    // 16 steps of grey are enough to the eye, and halve the file: equal edges then have equal bytes.
    const Font::Span span = [&](int from, int row, int count, int coverage) {
      for (int i = 0; i < count; ++i) blend(at(from + i, row), text.colour, std::round(coverage / 17.0) / 15);
    };
    font_.draw(text.text, x * density, y * density, text.size * density, text.degrees, {pixels_.width, pixels_.height},
               span);
  }

  const Font& font_;
  Pixels pixels_;
};

std::string png_of(const Layout& layout, const Font& font) {
  return encode_png(Canvas(layout, font).take(), encode_utf8(layout.title), pixels_per_metre);
}

Font chosen_font() {
  const char* file = std::getenv("ATTEND_FONT");
  return file == nullptr || *file == '\0' ? Font() : Font(std::string(file));
}

}  // namespace

std::string missing_characters(std::string_view text) {
  const Font font = chosen_font();
  std::u32string missing;
  for (const char32_t point : one_line(text, {"missing_characters", "text"})) {
    if (!font.has(point) && missing.find(point) == missing.npos) missing += point;
  }
  return encode_utf8(missing);
}

std::string png_heat_map(const std::vector<HeatMap>& maps, const std::string& title) {
  const Font font = chosen_font();
  return png_of(lay_out(maps, title, font, "png_heat_map"), font);
}

std::string png_token_strip(const TokenStrip& strip) {
  const Font font = chosen_font();
  return png_of(lay_out(strip, font, "png_token_strip"), font);
}

std::string png_head_grid(const HeadGrid& grid) {
  const Font font = chosen_font();
  return png_of(lay_out(grid, font, "png_head_grid"), font);
}

std::string png_token_links(const TokenLinks& links) {
  const Font font = chosen_font();
  return png_of(lay_out(links, font, "png_token_links"), font);
}

std::string png_layered_graph(const LayeredGraph& graph) {
  const Font font = chosen_font();
  return png_of(lay_out(graph, font, "png_layered_graph"), font);
}

std::string png_picture_stack(const PictureStack& stack) {
  const Font font = chosen_font();
  return png_of(lay_out(stack, font, "png_picture_stack"), font);
}

}  // namespace attend::inline v1
