#include "picture/layout.h"

#include <algorithm>
#include <cmath>

#include "core/message.h"
#include "picture/colour_bar.h"
#include "picture/panel.h"
#include "picture/sheet.h"
#include "picture/text.h"
#include "picture/ticks.h"

namespace attend::inline v1 {

namespace {

constexpr std::int64_t max_pointed = 4096;  // cells in all that tell their value to a pointer
constexpr double max_width = 1360;          // of panels side by side, before they wrap
constexpr double panel_gap = 26;
constexpr double max_caption = 180;  // a panel's title or axis name that is wider than its cells

class Composer {
 public:
  Composer(const std::vector<HeatMap>& maps, std::string_view title, const Font& font, const char* function)
      : font_(font), sheet_(out_, font) {
    if (maps.empty()) fail(ErrorCode::bad_value, function, "no maps, expected at least one");
    out_.title = one_line(title, {function, "title"});
    out_.caption = one_line(maps[0].caption, {function, "caption"});
    read(maps, function);
    arrange();
    paint();
  }
  Layout take() { return std::move(out_); }

 private:
  void read(const std::vector<HeatMap>& maps, const char* function);
  void arrange();
  void arrange_head();
  void describe();
  void paint();
  void paint_panel(std::size_t index);
  void paint_cells(const Panel& panel, double x, double y);
  void paint_row_axis(const Panel& panel, double x, double y);
  void paint_column_axis(const Panel& panel, double x, double y);
  void paint_axis_names(const Panel& panel, const Rect& area);
  double text_width(const std::u32string& text, double size) const { return font_.width(text, size); }
  template <class... Args>
  void write(Args&&... args) {
    sheet_.write(std::forward<Args>(args)...);
  }

  const Font& font_;
  Layout out_;
  Sheet sheet_;
  ColourBar bar_;
  std::vector<Panel> panels_;
  bool shared_ = true;       // all panels have the same axes: labels stand at the outer edges alone
  bool pointed_ = true;      // cells tell their value to a pointer
  std::int64_t across_ = 1;  // panels in a row
  std::int64_t down_ = 1;
  // Every panel has a slot of the same size; its cells stand in the middle of it.
  double slot_width_ = 0;
  double slot_height_ = 0;
  double gutter_ = 0;   // left of a slot
  double caption_ = 0;  // above: the panel's title
  double below_ = 0;
  double left_ = 0;  // of the first gutter
  double top_ = 0;   // of the first caption
  double grid_width_ = 0;
  double grid_height_ = 0;
  double scale_height_ = 0;
};

void Composer::read(const std::vector<HeatMap>& maps, const char* function) {
  std::int64_t cells = 0;
  for (std::size_t i = 0; i < maps.size(); ++i) {
    const Place what{function, maps.size() == 1 ? "" : fmt::format("maps[{}]", i)};
    const Panel& panel = panels_.emplace_back(read_panel(maps[i], maps.size(), font_, what));
    cells += panel.grid.rows * panel.grid.columns;
    shared_ = shared_ && same(panels_[0].rows, panel.rows) && same(panels_[0].columns, panel.columns);
  }
  pointed_ = cells <= max_pointed;
  bar_ = ColourBar(scale_of(panels_, maps, function));
  if (std::ranges::any_of(panels_, &Panel::has_hidden)) bar_.sign = U"hidden";
}

void Composer::arrange() {
  for (const Panel& panel : panels_) {
    const double caption = std::max(text_width(panel.title, caption_size), text_width(panel.columns.name, label_size));
    slot_width_ = std::max({slot_width_, panel.width, std::min(caption, max_caption)});
    slot_height_ = std::max(slot_height_, panel.height);
    gutter_ = std::max(gutter_, panel.gutter);
    below_ = std::max(below_, panel.below);
    if (!panel.title.empty()) caption_ = caption_size + 9;
  }
  slot_width_ = std::ceil(slot_width_);
  slot_height_ = std::ceil(slot_height_);
  const auto count = static_cast<std::int64_t>(panels_.size());
  const double pitch = slot_width_ + panel_gap + (shared_ ? 0 : gutter_);
  const double room = max_width - (shared_ ? gutter_ : 0);
  across_ = std::clamp<std::int64_t>(static_cast<std::int64_t>(room / pitch), 1, count);
  down_ = (count + across_ - 1) / across_;
  across_ = (count + down_ - 1) / down_;
  const auto gutters = static_cast<double>(shared_ ? 1 : across_);
  const auto belows = static_cast<double>(shared_ ? 1 : down_);
  grid_width_ = static_cast<double>(across_) * (slot_width_ + panel_gap) - panel_gap + gutters * gutter_;
  grid_height_ = static_cast<double>(down_) * (caption_ + slot_height_ + panel_gap) - panel_gap + belows * below_;
  scale_height_ = std::max(slot_height_, 100.0);
  arrange_head();
}

void Composer::arrange_head() {
  const double content = grid_width_ + bar_gap + bar_.width(font_);
  const double scale_bottom = caption_ + bar_.height(scale_height_);
  const std::u32string note = sentences({note_of(panels_), scale_note(bar_.scale)});
  const Rect inner = sheet_.arrange(content, std::max(grid_height_, scale_bottom), note);
  left_ = inner.x;
  top_ = inner.y;
  describe();
}

void Composer::describe() {
  const Panel& first = panels_[0];
  const std::string size =
      shared_ ? fmt::format("{} x {} (", first.rows.indices.blocks, first.columns.indices.blocks) : "(";
  const std::string maps = panels_.size() == 1 ? "Heat map" : fmt::format("{} heat maps", panels_.size());
  out_.description = ascii(maps + (shared_ ? ", " : " ") + size) + first.rows.name + U" x " + first.columns.name +
                     ascii(fmt::format("), colours from {} to {}.", short_number(bar_.scale.low, 4),
                                       short_number(bar_.scale.high, 4))) +
                     (!bar_.sign.empty() ? U" Hidden pairs are hatched." : U"");
}

void Composer::paint() {
  sheet_.paint_title();
  for (std::size_t i = 0; i < panels_.size(); ++i) paint_panel(i);
  if (shared_) {
    const double x = left_ + gutter_;
    const double height = static_cast<double>(down_) * (caption_ + slot_height_ + panel_gap) - panel_gap - caption_;
    paint_axis_names(panels_[0], {x, top_ + caption_, grid_width_ - gutter_, height});
  }
  bar_.paint_upright(sheet_, left_ + grid_width_ + bar_gap, top_ + caption_, scale_height_);
  sheet_.paint_note();
}

void Composer::paint_panel(std::size_t index) {
  const Panel& panel = panels_[index];
  const std::int64_t row = static_cast<std::int64_t>(index) / across_;
  const std::int64_t column = static_cast<std::int64_t>(index) % across_;
  const double slot = slot_width_ + panel_gap + (shared_ ? 0 : gutter_);
  const double band = caption_ + slot_height_ + panel_gap + (shared_ ? 0 : below_);
  const double slot_x = left_ + gutter_ + static_cast<double>(column) * slot;
  const double x = slot_x + std::floor((slot_width_ - panel.width) / 2);
  const double y = top_ + caption_ + static_cast<double>(row) * band;
  const double centre = x + panel.width / 2;
  write(centre, y - 9, caption_size, Anchor::middle, ink, cut(panel.title, font_, caption_size, slot_width_));
  if (panel.has_shapes())
    paint_cells(panel, x, y);
  else
    out_.images.push_back(image_of(panel, bar_.scale, x, y));
  if (panel.gap == 0) sheet_.frame({x, y, panel.width, panel.height});
  if (!shared_ || column == 0) paint_row_axis(panel, x, y);
  const bool lowest = index + static_cast<std::size_t>(across_) >= panels_.size();
  if (!shared_ || lowest) paint_column_axis(panel, x, y + panel.height);
  if (!shared_) paint_axis_names(panel, {x, y, panel.width, panel.height});
}

void Composer::paint_cells(const Panel& panel, double x, double y) {
  for (std::int64_t i = 0; i < panel.grid.rows; ++i) {
    for (std::int64_t j = 0; j < panel.grid.columns; ++j) {
      const double value = panel.grid.at(i, j);
      const auto index = static_cast<std::size_t>(i * panel.grid.columns + j);
      Cell cell;
      cell.area = {x + static_cast<double>(j) * panel.cell_width, y + static_cast<double>(i) * panel.cell_height,
                   panel.cell_width - panel.gap, panel.cell_height - panel.gap};
      cell.hatched = Grid::hidden(value);
      cell.colour = cell.hatched ? hidden_colour : bar_.scale.at(value);
      if (pointed_) {
        cell.text = panel.rows.block_label(i) + U" → " + panel.columns.block_label(j) + U": ";
        cell.text += pointed_text(panel, index);
      }
      if (!cell.hatched && panel.value_size > 0) {
        write(cell.area.x + cell.area.width / 2, cell.area.y + cell.area.height / 2 + half_height(panel.value_size),
              panel.value_size, Anchor::middle, text_colour(cell.colour),
              cut(inside_text(panel, index), font_, panel.value_size, cell.area.width - 4));
      }
      out_.cells.push_back(std::move(cell));
    }
  }
}

void Composer::paint_row_axis(const Panel& panel, double x, double y) {
  for (std::int64_t i = 0; i < panel.rows.count; i += panel.rows.step) {
    write(x - label_gap, y + panel.rows.centre(i) + half_height(label_size), label_size, Anchor::end, ink,
          cut(panel.rows.label(i), font_, label_size, max_row_label));
  }
}

void Composer::paint_column_axis(const Panel& panel, double x, double y) {
  const Axis& axis = panel.columns;
  for (std::int64_t i = 0; i < axis.count; i += axis.step) {
    const double at = x + axis.centre(i);
    const std::u32string text = cut(axis.label(i), font_, label_size, max_column_label);
    if (axis.degrees == 0) {
      write(at, y + label_gap + label_size * 0.75, label_size, Anchor::middle, ink, text);
    } else if (axis.degrees == 45) {
      write(at + half_height(label_size), y + label_gap + label_size * 0.6, label_size, Anchor::end, ink, text, 45);
    } else {
      write(at + half_height(label_size), y + label_gap, label_size, Anchor::end, ink, text, 90);
    }
  }
}

void Composer::paint_axis_names(const Panel& panel, const Rect& area) {
  const double left = area.x - panel.gutter;
  const double room = area.height + 2 * panel_gap;
  write(left + label_size * 0.8, area.y + area.height / 2, label_size, Anchor::middle, soft_ink,
        cut(panel.rows.name, font_, label_size, room), 90);
  const double y = area.y + area.height + panel.below - label_size * 0.2;
  write(area.x + area.width / 2, y, label_size, Anchor::middle, soft_ink,
        cut(panel.columns.name, font_, label_size, std::max(area.width, slot_width_)));
}

}  // namespace

Layout lay_out(const std::vector<HeatMap>& maps, std::string_view title, const Font& font, const char* function) {
  return Composer(maps, title, font, function).take();
}

}  // namespace attend::inline v1
