// Where nodes stand in rows, and the lines between them.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "core/message.h"
#include "picture/layout.h"
#include "picture/panel.h"
#include "picture/sheet.h"
#include "picture/text.h"

namespace attend::inline v1 {

namespace {

constexpr double name_size = 12, box_height = 22, box_margin = 7, row_pitch = 50;
constexpr double item_gap = 10;    // between what stands side by side
constexpr double widest_line = 5;  // of a line
constexpr double least = 0.8;      // likewise
constexpr int sweeps = 24;
constexpr Colour box_colour{0xf6, 0xf8, 0xfa};
constexpr Colour joining_colour{0x8c, 0x95, 0x9f};

// What stands in a row: a node, or a place where a line passes by.
struct Item {
  std::int64_t node = -1;  // -1: a line
  double width = 0, x = 0;
  std::vector<std::size_t> below = {}, above = {};  // the items of the rows beside that it is joined to
};

// A line by the items that it leads through, from below.
struct GraphLine {
  std::vector<std::size_t> items;
  double value = 0;
  std::u32string text;
};

class GraphComposer {
 public:
  GraphComposer(const LayeredGraph& graph, const Font& font, const char* function)
      : font_(font), sheet_(out_, font), place_{function} {
    out_.kind = U"Graph";
    out_.title = one_line(graph.title, place_.in("title"));
    out_.caption = one_line(graph.caption, place_.in("caption"));
    check(graph);
    read(graph);
    order();
    spread();
    paint();
  }
  Layout take() { return std::move(out_); }

 private:
  void check(const LayeredGraph& graph) const {
    const std::size_t nodes = graph.names.size(), lines = graph.values.size();
    if (nodes == 0 || graph.rows.size() != nodes || graph.from.size() != lines || graph.to.size() != lines)
      fail(ErrorCode::bad_shape, place_, "{} names, {} rows, {} from, {} to and {} values, expected as many of each",
           nodes, graph.rows.size(), graph.from.size(), graph.to.size(), lines);
    for (std::size_t n = 0; n < lines; ++n) {
      const auto known = [&](std::int64_t node) { return node >= 0 && node < static_cast<std::int64_t>(nodes); };
      if (!known(graph.from[n]) || !known(graph.to[n]) || row_of(graph, graph.from[n]) >= row_of(graph, graph.to[n]))
        fail(ErrorCode::bad_value, place_, "line {} leads from node {} to {}, expected one of {} in a higher row", n,
             graph.from[n], graph.to[n], nodes);
      if (!std::isfinite(graph.values[n]))
        fail(ErrorCode::bad_value, place_, "value {} is {}, expected a finite number", n, graph.values[n]);
    }
  }
  static std::int64_t row_of(const LayeredGraph& graph, std::int64_t node) {
    return graph.rows[static_cast<std::size_t>(node)];
  }

  // A line passes through each row between its ends.
  void read(const LayeredGraph& graph) {
    std::map<std::int64_t, std::size_t> rows;
    for (const std::int64_t row : graph.rows) rows.emplace(row, 0);
    std::size_t count = 0;
    for (auto& [row, place] : rows) place = count++;
    rows_.resize(count);
    for (std::size_t n = 0; n < graph.names.size(); ++n) {
      names_.push_back(
          cut(one_line(graph.names[n], place_.in(fmt::format("names[{}]", n))), font_, name_size, max_row_label));
      add(rows.at(graph.rows[n]), {.node = static_cast<std::int64_t>(n),
                                   .width = std::ceil(font_.width(names_[n], name_size)) + 2 * box_margin});
    }
    for (const double value : graph.values) largest_ = std::max(largest_, std::abs(value));
    for (std::size_t n = 0; n < graph.values.size(); ++n) {
      GraphLine& line = lines_.emplace_back();
      const auto from = static_cast<std::size_t>(graph.from[n]), to = static_cast<std::size_t>(graph.to[n]);
      line.value = graph.values[n];
      line.text = names_[from] + U" to " + names_[to] + U": " + ascii(short_number(line.value, 4));
      line.items.push_back(from);
      for (std::size_t row = rows.at(graph.rows[from]) + 1; row < rows.at(graph.rows[to]); ++row)
        line.items.push_back(add(row, {.width = width_of(line)}));
      line.items.push_back(to);
      for (std::size_t i = 1; i < line.items.size(); ++i) {
        items_[line.items[i - 1]].above.push_back(line.items[i]);
        items_[line.items[i]].below.push_back(line.items[i - 1]);
      }
    }
  }
  std::size_t add(std::size_t row, Item item) {
    items_.push_back(std::move(item));
    rows_[row].push_back(items_.size() - 1);
    return items_.size() - 1;
  }
  double width_of(const GraphLine& line) const {
    return largest_ == 0 ? least : std::max(least, widest_line * std::abs(line.value) / largest_);
  }

  // Each row by the means of where its neighbours stand, row after row, down and up (Sugiyama et al. 1981).
  void order() {
    for (int sweep = 0; sweep < sweeps; ++sweep) {
      const bool down = sweep % 2 == 0;
      for (std::size_t n = 1; n < rows_.size(); ++n) {
        std::vector<std::size_t>& row = rows_[down ? rows_.size() - 1 - n : n];
        const std::vector<std::size_t>& beside = rows_[down ? rows_.size() - n : n - 1];
        std::map<std::size_t, double> places;
        for (std::size_t i = 0; i < beside.size(); ++i)
          places[beside[i]] = (static_cast<double>(i) + 0.5) / static_cast<double>(beside.size());
        std::map<std::size_t, double> wanted;
        for (std::size_t i = 0; i < row.size(); ++i)
          wanted[row[i]] = mean(
              down ? items_[row[i]].above : items_[row[i]].below, [&](std::size_t of) { return places.at(of); },
              (static_cast<double>(i) + 0.5) / static_cast<double>(row.size()));
        std::ranges::stable_sort(row, {}, [&](std::size_t item) { return wanted.at(item); });
      }
    }
  }

  template <class Of>
  static double mean(const std::vector<std::size_t>& of, Of place, double otherwise) {
    if (of.empty()) return otherwise;
    double sum = 0;
    for (const std::size_t each : of) sum += place(each);
    return sum / static_cast<double>(of.size());
  }

  // Each as near to its neighbours as those beside it let it.
  void spread() {
    for (std::vector<std::size_t>& row : rows_) settle(row, [&](std::size_t) { return 0.0; });
    for (int sweep = 0; sweep < sweeps; ++sweep) {
      const bool down = sweep % 2 == 0;
      for (std::size_t n = 0; n < rows_.size(); ++n)
        settle(rows_[down ? rows_.size() - 1 - n : n], [&](std::size_t item) {
          const auto at = [&](std::size_t of) { return items_[of].x; };
          const Item& own = items_[item];
          const double above = mean(own.above, at, own.x), below = mean(own.below, at, own.x);
          return own.above.empty() ? below : own.below.empty() ? above : (above + below) / 2;
        });
    }
    double left = 0, right = 0;
    for (const Item& item : items_)
      left = std::min(left, item.x - item.width / 2), right = std::max(right, item.x + item.width / 2);
    const double height = static_cast<double>(rows_.size() - 1) * row_pitch + box_height;
    content_ = sheet_.arrange(std::ceil(right - left), height, {});
    for (Item& item : items_) item.x += content_.x - left;
    out_.description =
        ascii(fmt::format("{} lines between {} nodes in {} rows.", lines_.size(), names_.size(), rows_.size()));
  }

  // A row where its items want to be, side by side: runs that would overlap stand around their mean.
  template <class Wanted>
  void settle(const std::vector<std::size_t>& row, Wanted wanted) {
    struct Run {
      std::size_t first, count;
      double middle, width;  // of all of it
    };
    std::vector<Run> runs;
    for (std::size_t i = 0; i < row.size(); ++i) {
      runs.push_back({i, 1, wanted(row[i]), items_[row[i]].width});
      while (runs.size() > 1) {
        Run &last = runs.back(), &before = runs[runs.size() - 2];
        if (before.middle + before.width / 2 + item_gap <= last.middle - last.width / 2) break;
        const double width = before.width + item_gap + last.width;
        // Where each run's own middle would have it.
        const double by_before = before.middle + (width - before.width) / 2,
                     by_last = last.middle - (width - last.width) / 2;
        const auto weight = static_cast<double>(before.count), other = static_cast<double>(last.count);
        before.middle = (by_before * weight + by_last * other) / (weight + other);
        before.width = width, before.count += last.count;
        runs.pop_back();
      }
    }
    for (const Run& run : runs) {
      double x = run.middle - run.width / 2;
      for (std::size_t i = run.first; i < run.first + run.count; ++i) {
        Item& item = items_[row[i]];
        item.x = x + item.width / 2;
        x += item.width + item_gap;
      }
    }
  }

  double middle_of(std::size_t row) const {
    return content_.y + content_.height - box_height / 2 - static_cast<double>(row) * row_pitch;
  }

  void paint() {
    sheet_.paint_title();
    std::vector<std::size_t> row_of(items_.size());
    for (std::size_t row = 0; row < rows_.size(); ++row)
      for (const std::size_t item : rows_[row]) row_of[item] = row;
    std::ranges::stable_sort(lines_, {}, [](const GraphLine& line) { return std::abs(line.value); });
    for (const GraphLine& line : lines_)
      for (std::size_t i = 1; i < line.items.size(); ++i) paint(line, line.items[i - 1], line.items[i], row_of);
    for (std::size_t n = 0; n < names_.size(); ++n) {
      const Item& item = items_[n];
      const double y = middle_of(row_of[n]);
      const Rect area{item.x - item.width / 2, y - box_height / 2, item.width, box_height};
      sheet_.frame(area);
      out_.cells.push_back({area, box_colour, false, names_[n]});
      sheet_.write(item.x, y + half_height(name_size), name_size, Anchor::middle, ink, names_[n]);
    }
    sheet_.paint_note();
  }

  // Between the two rows the line crosses over; beside the boxes of a row it is upright.
  void paint(const GraphLine& line, std::size_t below, std::size_t above, const std::vector<std::size_t>& row_of) {
    const bool from_line = items_[below].node < 0;
    const double bottom = middle_of(row_of[below]) - box_height / 2, top = middle_of(row_of[above]) + box_height / 2;
    if (from_line) stroke(line, items_[below].x, bottom, items_[below].x, bottom + box_height);
    stroke(line, items_[above].x, top, items_[below].x, bottom);
  }

  // y0 < y1
  void stroke(const GraphLine& line, double x0, double y0, double x1, double y1) {
    Stroke stroke{x0, y0, x1, y1, width_of(line), joining_colour, 0.85, line.text, true};
    if (line.value == 0) stroke.text = U"";
    if (line.value != 0) stroke.colour = diverging_colour(line.value > 0 ? 0.88 : 0.12);
    if (std::abs(x1 - x0) > y1 - y0) {
      stroke.upright = false;
      if (x1 < x0) std::swap(stroke.x0, stroke.x1), std::swap(stroke.y0, stroke.y1);
    }
    out_.strokes.push_back(std::move(stroke));
  }

  const Font& font_;
  Layout out_;
  Sheet sheet_;
  Place place_;
  std::vector<std::u32string> names_;
  std::vector<Item> items_;                     // the nodes first
  std::vector<std::vector<std::size_t>> rows_;  // items from left to right, the lowest row first
  std::vector<GraphLine> lines_;
  double largest_ = 0;
  Rect content_;
};

}  // namespace

Layout lay_out(const LayeredGraph& graph, const Font& font, const char* function) {
  return GraphComposer(graph, font, function).take();
}

}  // namespace attend::inline v1
