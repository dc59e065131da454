#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/base64.h"
#include "core/message.h"
#include "core/utf8.h"
#include "picture/layout.h"
#include "picture/png_file.h"
#include "picture/text.h"

namespace attend::inline v1 {

namespace {

std::string markup_of(std::u32string_view text) {
  return escape_markup(encode_utf8(text));
}

std::string hex(Colour colour) {
  return fmt::format("#{:02x}{:02x}{:02x}", colour.red, colour.green, colour.blue);
}

// Hundredths of a pixel, as short as they can be written, in no locale.
double short_of(double value) {
  return std::round(value * 100) / 100 + 0.0;
}

class Svg {
 public:
  explicit Svg(const Layout& layout) {
    append(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" role=\"img\" "
        "font-family=\"'DejaVu Sans', system-ui, sans-serif\">\n",
        layout.width, layout.height);
    append("<title>{}</title>\n", markup_of(layout.title.empty() ? layout.kind : layout.title));
    append("<desc>{}</desc>\n", markup_of(layout.description));
    append("<rect width=\"{}\" height=\"{}\" fill=\"#ffffff\"/>\n", layout.width, layout.height);
    out_ += "<g class=\"marks\">\n";
    for (const FilledRect& mark : layout.marks) append("<rect {} fill=\"{}\"/>\n", box(mark.area), hex(mark.colour));
    out_ += "</g>\n<g class=\"cells\">\n";
    for (const Cell& cell : layout.cells) add(cell);
    out_ += "</g>\n";
    add_hatching(layout.cells);
    for (const Image& image : layout.images) add(image);
    if (!layout.strokes.empty()) out_ += "<g class=\"links\">\n";
    for (const Stroke& stroke : layout.strokes) add(stroke);
    if (!layout.strokes.empty()) out_ += "</g>\n";
    // Text lets the pointer through to the cell behind it.
    out_ += "<g class=\"texts\" pointer-events=\"none\">\n";
    for (const Text& text : layout.texts) add(text);
    out_ += "</g>\n</svg>\n";
  }
  std::string take() { return std::move(out_); }

 private:
  template <class... Args>
  void append(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
  }

  static std::string box(const Rect& area) {
    return fmt::format("x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"", short_of(area.x), short_of(area.y),
                       short_of(area.width), short_of(area.height));
  }

  void add(const Cell& cell) {
    append("<rect class=\"cell\" {} fill=\"{}\"", box(cell.area), hex(cell.colour));
    if (cell.text.empty()) {
      out_ += "/>\n";
    } else {
      append("><title>{}</title></rect>\n", markup_of(cell.text));
    }
  }

  // One path, and no <pattern>: an id might be another picture's on the same page.
  void add_hatching(const std::vector<Cell>& cells) {
    std::string path;
    for (const Cell& cell : cells) {
      if (!cell.hatched) continue;
      const auto& [left, top, width, height] = cell.area;
      const double right = left + width;
      const double bottom = top + height;
      for (double sum = std::ceil((left + top) / hatch_distance) * hatch_distance; sum < right + bottom;
           sum += hatch_distance) {
        const double from = std::max(left, sum - bottom);
        const double to = std::min(right, sum - top);
        path += fmt::format("M{} {}L{} {}", short_of(from), short_of(sum - from), short_of(to), short_of(sum - to));
      }
    }
    if (path.empty()) return;
    append("<path class=\"hatch\" stroke=\"{}\" stroke-width=\"{}\" pointer-events=\"none\" d=\"{}\"/>\n",
           hex(hatch_colour), hatch_width, path);
  }

  // Enlarged to the size that it has on the page: not every program heeds image-rendering, and a few pixels drawn large
  // would be a blur.
  static Pixels enlarge(const Image& image) {
    const int across = std::max(1, static_cast<int>(std::ceil(image.area.width / image.columns)));
    const int down = std::max(1, static_cast<int>(std::ceil(image.area.height / image.rows)));
    Pixels pixels{image.columns * across, image.rows * down, {}};
    pixels.colours.reserve(static_cast<std::size_t>(pixels.width) * static_cast<std::size_t>(pixels.height));
    for (int y = 0; y < pixels.height; ++y) {
      const Colour* row = image.pixels.data() + static_cast<std::ptrdiff_t>(y / down) * image.columns;
      for (int x = 0; x < pixels.width; ++x) pixels.colours.push_back(row[x / across]);
    }
    return pixels;
  }

  void add(const Image& image) {
    const std::string png = encode_png(enlarge(image), "", 0);
    append(
        "<image {} preserveAspectRatio=\"none\" image-rendering=\"pixelated\" "
        "href=\"data:image/png;base64,{}\"/>\n",
        box(image.area), base64(png));
  }

  void add(const Stroke& stroke) {
    append("<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" stroke=\"{}\" stroke-width=\"{}\" stroke-opacity=\"{}\"",
           short_of(stroke.x0), short_of(stroke.y0), short_of(stroke.x1), short_of(stroke.y1), hex(stroke.colour),
           short_of(stroke.width), std::round(stroke.opacity * 1000) / 1000);
    if (stroke.text.empty()) {
      out_ += "/>\n";
    } else {
      append("><title>{}</title></line>\n", markup_of(stroke.text));
    }
  }

  void add(const Text& text) {
    const double x = short_of(text.x);
    const double y = short_of(text.y);
    append("<text x=\"{}\" y=\"{}\" font-size=\"{}\" fill=\"{}\"", x, y, short_of(text.size), hex(text.colour));
    if (text.anchor != Anchor::start) append(" text-anchor=\"{}\"", text.anchor == Anchor::end ? "end" : "middle");
    if (text.degrees != 0) append(" transform=\"rotate({} {} {})\"", -text.degrees, x, y);
    append(">{}</text>\n", markup_of(text.text));
  }

  std::string out_;
};

}  // namespace

std::string svg_heat_map(const std::vector<HeatMap>& maps, const std::string& title) {
  const Font font;
  return Svg(lay_out(maps, title, font, "svg_heat_map")).take();
}

std::string svg_token_strip(const TokenStrip& strip) {
  const Font font;
  return Svg(lay_out(strip, font, "svg_token_strip")).take();
}

std::string svg_head_grid(const HeadGrid& grid) {
  const Font font;
  return Svg(lay_out(grid, font, "svg_head_grid")).take();
}

std::string svg_token_links(const TokenLinks& links) {
  const Font font;
  return Svg(lay_out(links, font, "svg_token_links")).take();
}

std::string svg_layered_graph(const LayeredGraph& graph) {
  const Font font;
  return Svg(lay_out(graph, font, "svg_layered_graph")).take();
}

std::string svg_picture_stack(const PictureStack& stack) {
  const Font font;
  return Svg(lay_out(stack, font, "svg_picture_stack")).take();
}

}  // namespace attend::inline v1
