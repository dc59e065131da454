// Text as shapes: how wide a line is, and which pixels it covers. There is no shaping: one glyph a code point, left to
// right, with kerning.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace attend::inline v1 {

class Font {
 public:
  // DejaVu Sans, which is part of the library.
  Font();
  // A file with outlines (.ttf, .otf). Throws bad_file, naming it, when it can't be used.
  explicit Font(const std::string& path);
  ~Font();

  // Whether it has a shape for the character, or needs none.
  bool has(char32_t point) const;
  // In the unit of `size` (the height of an em).
  double width(std::u32string_view text, double size) const;

  // `count` pixels of one row from (x, y) on are covered to coverage/255.
  using Span = std::function<void(int x, int y, int count, int coverage)>;
  // A picture of width x height pixels, y downwards.
  struct Canvas {
    int width;
    int height;
  };
  // A line of text that starts at (x, y) on its baseline and rises by `degrees`. Only pixels on the canvas are
  // reported. A character that the font lacks is a hollow box.
  void draw(std::u32string_view text, double x, double y, double size, double degrees, const Canvas& canvas,
            const Span& span) const;

 private:
  struct Face;
  std::unique_ptr<Face> face_;
};

// Takes no room of its own and stays with the character before it: combining marks, joiners, variation selectors, skin
// tones, direction marks.
bool extends_character(char32_t point);

}  // namespace attend::inline v1
