// Where the thumbnails of a grid of heads stand.
#include <algorithm>
#include <cmath>

#include "core/message.h"
#include "picture/colour_bar.h"
#include "picture/layout.h"
#include "picture/panel.h"
#include "picture/sheet.h"
#include "picture/text.h"

namespace attend::inline v1 {

namespace {

constexpr double thumbnail_gap = 6;   // between thumbnails
constexpr double whole_width = 1200;  // CSS pixels for the thumbnails of a row
constexpr int least_side = 24;        // pixels of a thumbnail's shorter side

class GridComposer {
 public:
  GridComposer(const HeadGrid& grid, const Font& font, const char* function)
      : font_(font), sheet_(out_, font), columns_(grid.columns), side_(most_grid_cells(columns_)) {
    check(grid, function);
    out_.kind = U"Heads";
    out_.title = one_line(grid.title, {function, "title"});
    out_.caption = one_line(grid.caption, {function, "caption"});
    read(grid, function);
    arrange();
    paint();
  }
  Layout take() { return std::move(out_); }

 private:
  static void check(const HeadGrid& grid, const char* function) {
    const std::int64_t maps = std::ssize(grid.maps);
    if (maps == 0) fail(ErrorCode::bad_value, function, "no maps, expected at least one");
    if (grid.columns < 1 || maps % grid.columns != 0)
      fail(ErrorCode::bad_shape, function, "{} maps are no rows of {} columns", maps, grid.columns);
    const auto labels = [&](const std::vector<std::string>& given, std::int64_t count, const char* which) {
      if (!given.empty() && std::ssize(given) != count)
        fail(ErrorCode::bad_shape, function, "{} {} labels for {} {}s of maps", given.size(), which, count, which);
    };
    labels(grid.row_labels, maps / grid.columns, "row");
    labels(grid.column_labels, grid.columns, "column");
  }

  void read(const HeadGrid& grid, const char* function) {
    for (std::size_t i = 0; i < grid.maps.size(); ++i) {
      const Place what{function, fmt::format("maps[{}]", i)};
      Panel& panel = panels_.emplace_back();
      panel.grid = read_grid(grid.maps[i], side_, what);
      panel.note = cell_note(grid.maps[i], what);
      const auto pixels = [&](std::int64_t count) {
        const std::int64_t longer = std::max(panel.grid.rows, panel.grid.columns);
        return static_cast<double>(std::max(side_ / longer, (least_side + count - 1) / count));
      };
      panel.cell_width = pixels(panel.grid.columns) / Image::density;
      panel.cell_height = pixels(panel.grid.rows) / Image::density;
      panel.width = panel.cell_width * static_cast<double>(panel.grid.columns);
      panel.height = panel.cell_height * static_cast<double>(panel.grid.rows);
      slot_width_ = std::max(slot_width_, std::ceil(panel.width));
      slot_height_ = std::max(slot_height_, std::ceil(panel.height));
    }
    rows_ = std::ssize(panels_) / columns_;
    row_labels_ = read_labels(grid.row_labels, rows_, {function, "row_labels"});
    column_labels_ = read_labels(grid.column_labels, columns_, {function, "column_labels"});
    row_axis_ = one_line(grid.row_axis, {function, "row_axis"});
    column_axis_ = one_line(grid.column_axis, {function, "column_axis"});
    bar_ = ColourBar(scale_of(panels_, grid.maps, function));
    if (std::ranges::any_of(panels_, &Panel::has_hidden)) bar_.sign = U"hidden";
  }

  static std::vector<std::u32string> read_labels(const std::vector<std::string>& given, std::int64_t count,
                                                 const Place& what) {
    std::vector<std::u32string> labels;
    for (std::int64_t i = 0; i < count; ++i) {
      labels.push_back(given.empty() ? ascii(fmt::format("{}", i))
                                     : one_line(given[static_cast<std::size_t>(i)], what));
    }
    return labels;
  }

  void arrange() {
    double widest = 0;
    for (const std::u32string& label : row_labels_) widest = std::max(widest, font_.width(label, label_size));
    gutter_ = std::ceil(std::min(widest, max_row_label)) + label_gap + (row_axis_.empty() ? 0 : label_size + label_gap);
    head_ = label_size + label_gap + (column_axis_.empty() ? 0 : label_size + label_gap);
    const auto across = static_cast<double>(columns_);
    const auto down = static_cast<double>(rows_);
    width_ = across * (slot_width_ + thumbnail_gap) - thumbnail_gap;
    height_ = down * (slot_height_ + thumbnail_gap) - thumbnail_gap;
    bar_height_ = std::clamp(height_, 100.0, 320.0);
    const std::u32string note = sentences({note_of(panels_), scale_note(bar_.scale)});
    content_ = sheet_.arrange(gutter_ + width_ + bar_gap + bar_.width(font_),
                              head_ + std::max(height_, bar_.height(bar_height_)), note);
    out_.description = ascii(fmt::format("{} x {} heat maps (", rows_, columns_)) + row_axis_ + U" x " + column_axis_ +
                       ascii(fmt::format("), colours from {} to {}.", short_number(bar_.scale.low, 4),
                                         short_number(bar_.scale.high, 4))) +
                       (bar_.sign.empty() ? U"" : U" Hidden pairs are hatched.");
  }

  void paint() {
    sheet_.paint_title();
    const double left = content_.x + gutter_;
    const double top = content_.y + head_;
    for (std::int64_t i = 0; i < rows_; ++i) {
      const double y = top + static_cast<double>(i) * (slot_height_ + thumbnail_gap);
      sheet_.write(left - label_gap, y + slot_height_ / 2 + half_height(label_size), label_size, Anchor::end, ink,
                   cut(row_labels_[static_cast<std::size_t>(i)], font_, label_size, max_row_label));
      for (std::int64_t j = 0; j < columns_; ++j) {
        const double x = left + static_cast<double>(j) * (slot_width_ + thumbnail_gap);
        paint_thumbnail(panels_[static_cast<std::size_t>(i * columns_ + j)], x, y);
      }
    }
    for (std::int64_t j = 0; j < columns_; ++j) {
      const double x = left + static_cast<double>(j) * (slot_width_ + thumbnail_gap) + slot_width_ / 2;
      sheet_.write(
          x, top - label_gap, label_size, Anchor::middle, ink,
          cut(column_labels_[static_cast<std::size_t>(j)], font_, label_size, slot_width_ + thumbnail_gap - 2));
    }
    sheet_.write(left + width_ / 2, content_.y + label_size * 0.8, label_size, Anchor::middle, soft_ink,
                 cut(column_axis_, font_, label_size, std::max(width_, 120.0)));
    sheet_.write(content_.x + label_size * 0.8, top + height_ / 2, label_size, Anchor::middle, soft_ink,
                 cut(row_axis_, font_, label_size, std::max(height_, 100.0)), 90);
    bar_.paint_upright(sheet_, left + width_ + bar_gap, top, bar_height_);
    sheet_.paint_note();
  }

  void paint_thumbnail(const Panel& panel, double slot_x, double slot_y) {
    const double x = slot_x + std::floor((slot_width_ - panel.width) / 2);
    const double y = slot_y + std::floor((slot_height_ - panel.height) / 2);
    out_.images.push_back(image_of(panel, bar_.scale, x, y));
    sheet_.frame({x, y, panel.width, panel.height});
  }

  const Font& font_;
  Layout out_;
  Sheet sheet_;
  ColourBar bar_;
  std::int64_t columns_;
  std::int64_t rows_ = 0;
  std::int64_t side_;  // pixels of a thumbnail's longer side, at the most
  std::vector<Panel> panels_;
  std::vector<std::u32string> row_labels_, column_labels_;
  std::u32string row_axis_, column_axis_;
  double slot_width_ = 0;
  double slot_height_ = 0;
  double gutter_ = 0;  // left of the thumbnails
  double head_ = 0;    // above them
  double width_ = 0;   // of the thumbnails
  double height_ = 0;
  double bar_height_ = 0;
  Rect content_;
};

}  // namespace

// 64 CSS pixels of 12 heads, less where there are more than 18.
std::int64_t most_grid_cells(std::int64_t columns) {
  const double room = whole_width / static_cast<double>(std::max<std::int64_t>(1, columns)) - thumbnail_gap;
  return static_cast<std::int64_t>(std::clamp(room, 24.0, 64.0) * Image::density);
}

Layout lay_out(const HeadGrid& grid, const Font& font, const char* function) {
  return GridComposer(grid, font, function).take();
}

}  // namespace attend::inline v1
