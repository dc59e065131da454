// What every picture has: a title above, a note below, a margin around, and its inks.
#pragma once

#include <string>
#include <vector>

#include "picture/font.h"
#include "picture/layout.h"

namespace attend::inline v1 {

inline constexpr double margin = 24;
inline constexpr double title_size = 17;
inline constexpr double caption_size = 13;
inline constexpr double note_size = 11;

inline constexpr Colour ink{0x1f, 0x23, 0x28};
inline constexpr Colour soft_ink{0x59, 0x63, 0x6e};
inline constexpr Colour frame_colour{0xc9, 0xcd, 0xd2};
inline constexpr Colour hidden_colour{0xee, 0xee, 0xee};

// From the middle of a line of capitals and digits to its baseline.
inline double half_height(double size) {
  return size * 0.36;
}

// A layout that is being filled.
class Sheet {
 public:
  // The layout has its title; all else is empty.
  Sheet(Layout& layout, const Font& font) : layout_(layout), font_(font) {}

  // Sizes the picture for content of that size between its title and the note: the layout's caption, and
  // what else there is to say. Returns the content's place.
  Rect arrange(double width, double height, const std::u32string& about);
  void paint_title();
  void paint_note();

  const Font& font() const { return font_; }
  Layout& layout() { return layout_; }
  void write(double x, double y, double size, Anchor anchor, Colour colour, std::u32string text, int degrees = 0);
  // A line of one pixel around the area.
  void frame(const Rect& area);

 private:
  Layout& layout_;
  const Font& font_;
  std::vector<std::u32string> title_lines_;
  std::vector<std::u32string> note_lines_;
};

}  // namespace attend::inline v1
