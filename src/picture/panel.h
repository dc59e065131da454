// One map of a picture: its numbers, its axes, and the room that they take, in CSS pixels.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attend/picture.h"
#include "picture/font.h"
#include "picture/grid.h"
#include "picture/layout.h"

namespace attend::inline v1 {

inline constexpr double label_size = 12;
inline constexpr double label_gap = 7;  // between cells and labels, labels and axis name
inline constexpr double max_row_label = 150;
inline constexpr double max_column_label = 120;

// The rows or the columns of one panel, and their labels.
struct Axis {
  std::u32string name;
  std::vector<std::u32string> labels;  // empty: indices
  Indices indices;
  std::int64_t count = 0;  // of the indices
  double pitch = 0;        // pixels from one to the next
  double inset = 0;        // the gap after each cell, which is not part of it
  std::int64_t step = 1;   // one label in every `step`
  int degrees = 0;
  double widest = 0;  // of the labels, as they are cut

  std::u32string label(std::int64_t i) const;
  // Of all that a block of the map stands for.
  std::u32string block_label(std::int64_t block) const;
  double centre(std::int64_t i) const { return (static_cast<double>(i) + 0.5) * pitch - inset / 2; }
  // How far column labels reach below the cells, and to the left of their cell's centre.
  double depth() const;
  double overhang() const;

  friend bool same(const Axis& a, const Axis& b) {
    return a.name == b.name && a.labels == b.labels && a.indices == b.indices;
  }
};

// One map.
struct Panel {
  Grid grid;
  std::u32string title;
  std::u32string note;  // what a value is
  Axis rows;
  Axis columns;
  bool wide = false;
  double least = 0;                   // see least_written()
  std::vector<std::u32string> texts;  // of the cells, in place of their values; none: these
  double cell_width = 0;              // with the gap that follows
  double cell_height = 0;
  double gap = 0;
  double value_size = 0;  // of what stands inside the cells; 0: nothing
  double width = 0;       // of the cells
  double height = 0;
  double gutter = 0;  // left of the cells: axis name and row labels
  double below = 0;   // column labels and axis name

  bool has_hidden() const;
  // Each cell is a shape; else they are one image.
  bool has_shapes() const;
};

// The map as one of so many panels: its cells sized, its axes arranged. Throws as svg_heat_map does, in messages that
// begin with `what`.
Panel read_panel(const HeatMap& map, std::size_t panels, const Font& font, const Place& what);

// The cells as an image at that place, hatched where pairs are hidden.
Image image_of(const Panel& panel, const ColourScale& scale, double x, double y);

// The scale that reaches as far as what is drawn: means of blocks would all be pale on the scale of single values.
ColourScale scale_of(const std::vector<Panel>& panels, const std::vector<HeatMap>& maps, const char* function);

// What a cell is, and how many are one point.
std::u32string note_of(const std::vector<Panel>& panels);

// What stands inside a cell, if there is room, and what a pointer reads of it.
std::u32string inside_text(const Panel& panel, std::size_t cell);
std::u32string pointed_text(const Panel& panel, std::size_t cell);

}  // namespace attend::inline v1
