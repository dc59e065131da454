#include "picture/panel.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/message.h"
#include "picture/sheet.h"
#include "picture/text.h"

namespace attend::inline v1 {

namespace {

constexpr std::int64_t max_side = 512;       // cells; more are averaged
constexpr std::int64_t max_shape_side = 64;  // more are one image
constexpr double min_panel = 28;

double down_to_half(double value) {
  return std::floor(value * 2) / 2;
}

// 1, 2, 5, 10, 20, 50, ...: the first that is not below `least`.
std::int64_t round_step(double least) {
  std::int64_t power = 1;
  while (static_cast<double>(power) * 10 < least) power *= 10;
  for (const std::int64_t step : {power, 2 * power, 5 * power}) {
    if (static_cast<double>(step) >= least) return step;
  }
  return 10 * power;
}

// What one panel may take, so that one map is large and many are still legible: 512 cells are at least half a pixel
// (one of a PNG's) each.
struct Budget {
  double panel;
  double cell;
};
Budget budget_of(std::size_t panels) {
  if (panels == 1) return {520, 52};
  if (panels == 2) return {400, 46};
  if (panels == 3) return {340, 44};
  return {264, 44};
}

// Of the widest text in a cell, for an em of 1; 0 where cells are an image.
double inside_width(const Panel& panel, const Font& font) {
  double width = 0;
  for (std::size_t cell = 0; panel.has_shapes() && cell < panel.grid.values.size(); ++cell)
    width = std::max(width, font.width(inside_text(panel, cell), 1));
  return width;
}

// A line high, and as wide as the panel has room for: texts are cut, numbers left out.
void size_wide_cells(Panel& panel, const Font& font) {
  constexpr double line = 20, most = 1320, least = 24, size = 10.5;
  const auto columns = static_cast<double>(panel.grid.columns);
  const double wanted = std::ceil(inside_width(panel, font) * size + 8);
  panel.cell_width = std::clamp(wanted, least, std::max(least, std::floor(most / columns)));
  panel.cell_height = line;
  panel.gap = 1;
  panel.width = columns * panel.cell_width - panel.gap;
  panel.height = static_cast<double>(panel.grid.rows) * panel.cell_height - panel.gap;
  panel.value_size = !panel.texts.empty() || wanted <= panel.cell_width ? size : 0;
}

void size_cells(Panel& panel, const Budget& budget, const Font& font) {
  const Grid& grid = panel.grid;
  if (panel.wide && panel.has_shapes()) return size_wide_cells(panel, font);
  const auto columns = static_cast<double>(grid.columns);
  const auto rows = static_cast<double>(grid.rows);
  const bool few = panel.has_shapes();
  const double value_width = inside_width(panel, font);
  const double wanted = std::clamp(value_width * 11 + 14, budget.cell, 72.0);
  double side = std::min(wanted, budget.panel / std::max(columns, rows));
  side = side >= 4 ? std::floor(side) : down_to_half(side);
  // Cells are square unless the panel would be a mere line.
  panel.cell_width = std::max(side, std::min(wanted, down_to_half(min_panel / columns)));
  panel.cell_height = std::max(side, std::min(wanted, down_to_half(min_panel / rows)));
  const double smaller = std::min(panel.cell_width, panel.cell_height);
  panel.gap = smaller >= 30 ? 2 : smaller >= 9 ? 1 : 0;
  panel.width = columns * panel.cell_width - panel.gap;
  panel.height = rows * panel.cell_height - panel.gap;
  const double size = std::clamp(smaller / 4, 9.0, 12.5);
  const bool fits = value_width * size + 5 <= panel.cell_width - panel.gap && size + 6 <= panel.cell_height;
  panel.value_size = few && fits ? size : 0;
}

void measure(Axis& axis, const Font& font, double limit) {
  if (axis.labels.empty()) axis.widest = font.width(axis.label(axis.count - 1), label_size);
  for (const std::u32string& text : axis.labels) axis.widest = std::max(axis.widest, font.width(text, label_size));
  axis.widest = std::min(axis.widest, limit);
}

void arrange_rows(Axis& axis, const Font& font) {
  measure(axis, font, max_row_label);
  axis.step = round_step(13 / axis.pitch);
}

// Level where they fit, else slanting, else upright; indices stay level and are thinned.
void arrange_columns(Axis& axis, const Font& font) {
  measure(axis, font, max_column_label);
  if (axis.labels.empty()) {
    axis.step = round_step((axis.widest + 8) / axis.pitch);
  } else if (axis.widest + 6 > axis.pitch) {
    axis.degrees = axis.pitch >= 17 ? 45 : 90;
    axis.step = round_step(13 / axis.pitch);
  }
}

void arrange_axes(Panel& panel, const Font& font) {
  const auto pitch = [](const Axis& axis, double cell, std::int64_t block) {
    const double row = cell / static_cast<double>(block);
    return axis.indices.single() ? row
                                 : row * static_cast<double>(axis.indices.blocks) / static_cast<double>(axis.count);
  };
  panel.rows.pitch = pitch(panel.rows, panel.cell_height, panel.grid.row_block);
  panel.columns.pitch = pitch(panel.columns, panel.cell_width, panel.grid.column_block);
  panel.rows.inset = panel.columns.inset = panel.gap;
  arrange_rows(panel.rows, font);
  arrange_columns(panel.columns, font);
  const auto room = [](const Axis& axis) { return axis.name.empty() ? 0 : label_size + label_gap; };
  const double overhang = panel.columns.overhang() - panel.cell_width / 2 - label_gap;
  panel.gutter = std::ceil(room(panel.rows) + std::max(panel.rows.widest, overhang) + label_gap);
  panel.below = std::ceil(label_gap + panel.columns.depth() + room(panel.columns));
}

Axis read_axis(const std::string& name, const std::vector<std::string>& labels, const Indices& indices,
               const Place& what, const char* which) {
  Axis axis;
  axis.name = one_line(name, what.in(fmt::format("{}_axis", which)));
  axis.indices = indices;
  axis.count = indices.count;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    axis.labels.push_back(one_line(labels[i], what.in(fmt::format("{}_labels[{}]", which, i))));
  }
  return axis;
}

std::u32string averages(const std::vector<Panel>& panels) {
  const Panel* averaged = nullptr;
  bool alike = true;
  for (const Panel& panel : panels) {
    if (!panel.grid.averaged()) continue;
    if (averaged == nullptr) averaged = &panel;
    alike = alike && panel.grid.row_block == averaged->grid.row_block &&
            panel.grid.column_block == averaged->grid.column_block;
  }
  if (averaged == nullptr) return {};
  if (!alike) return U"Large maps are shown as means of blocks of cells.";
  std::u32string text = ascii(fmt::format("Each point is the mean of {}", averaged->grid.row_block));
  return text + U" × " + ascii(fmt::format("{} cells.", averaged->grid.column_block));
}

}  // namespace

std::u32string Axis::label(std::int64_t i) const {
  return labels.empty() ? ascii(fmt::format("{}", indices.first + i)) : labels[static_cast<std::size_t>(i)];
}

std::u32string Axis::block_label(std::int64_t block) const {
  const std::int64_t first = indices.start(block);
  const std::int64_t last = indices.start(block + 1) - 1;
  return first == last ? label(first) : label(first) + U"–" + label(last);
}

double Axis::depth() const {
  const double slant = degrees * std::numbers::pi / 180;
  return std::sin(slant) * widest + std::cos(slant) * label_size * 0.9;
}

double Axis::overhang() const {
  return degrees == 45 ? widest * std::numbers::sqrt2 / 2 : 0;
}

bool Panel::has_hidden() const {
  return std::ranges::any_of(grid.values, Grid::hidden);
}

bool Panel::has_shapes() const {
  return !texts.empty() || std::max(grid.rows, grid.columns) <= max_shape_side;
}

Panel read_panel(const HeatMap& map, std::size_t panels, const Font& font, const Place& what) {
  Panel panel;
  panel.grid = read_grid(map, max_side, what);
  panel.title = one_line(map.title, what.in("title"));
  panel.note = cell_note(map, what);
  panel.wide = map.wide || !map.texts.empty();
  panel.least = least_written(map, panel.grid);
  for (std::size_t i = 0; i < map.texts.size() && !panel.grid.averaged(); ++i)
    panel.texts.push_back(one_line(map.texts[i], what.in(fmt::format("texts[{}]", i))));
  panel.rows = read_axis(map.row_axis, map.row_labels, row_indices(map), what, "row");
  panel.columns = read_axis(map.column_axis, map.column_labels, column_indices(map), what, "column");
  size_cells(panel, budget_of(panels), font);
  arrange_axes(panel, font);
  return panel;
}

Image image_of(const Panel& panel, const ColourScale& scale, double x, double y) {
  const auto pixels = [](double length) { return static_cast<int>(std::lround(length * Image::density)); };
  const int cell_width = pixels(panel.cell_width), cell_height = pixels(panel.cell_height);
  const int hatch = pixels(hatch_distance), line = pixels(hatch_width);
  Image image{{x, y, panel.width, panel.height}, pixels(panel.width), pixels(panel.height), {}};
  image.pixels.reserve(static_cast<std::size_t>(image.columns) * static_cast<std::size_t>(image.rows));
  for (int row = 0; row < image.rows; ++row) {
    for (int column = 0; column < image.columns; ++column) {
      const double value = panel.grid.at(row / cell_height, column / cell_width);
      const Colour hatched = (row + column) % hatch < line ? hatch_colour : hidden_colour;
      image.pixels.push_back(Grid::hidden(value) ? hatched : scale.at(value));
    }
  }
  return image;
}

ColourScale scale_of(const std::vector<Panel>& panels, const std::vector<HeatMap>& maps, const char* function) {
  std::vector<HeatMap> drawn(maps.size());
  for (std::size_t i = 0; i < maps.size(); ++i) {
    const Grid& grid = panels[i].grid;
    drawn[i].values = View(grid.values.data(), DType::f64, {grid.rows, grid.columns});
    drawn[i].low = maps[i].low;
    drawn[i].high = maps[i].high;
    drawn[i].scale = maps[i].scale;
  }
  return colour_scale(drawn, function);
}

std::u32string note_of(const std::vector<Panel>& panels) {
  const auto as_first = [&](const Panel& panel) { return panel.note == panels[0].note; };
  const bool alike = std::ranges::all_of(panels, as_first);
  return sentences({alike ? panels[0].note : U"Cells are not alike from map to map.", averages(panels)});
}

std::u32string inside_text(const Panel& panel, std::size_t cell) {
  const double value = panel.grid.values[cell];
  if (Grid::hidden(value)) return {};
  if (!panel.texts.empty()) return trimmed(panel.texts[cell]);
  return std::abs(value) < panel.least ? U"" : ascii(short_number(value, 2));
}

std::u32string pointed_text(const Panel& panel, std::size_t cell) {
  const double value = panel.grid.values[cell];
  const std::u32string number = Grid::hidden(value) ? U"hidden" : ascii(short_number(value, 4));
  return panel.texts.empty() ? number : panel.texts[cell] + U", " + number;
}

}  // namespace attend::inline v1
