#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "attend/explain.h"
#include "core/message.h"
#include "core/utf8.h"
#include "explain/walk.h"
#include "io/format.h"

namespace attend::inline v1 {

namespace {

constexpr int indent = 3;

int width_of(std::string_view text) {
  return display_width(decode_utf8(text, {"", "text"}));
}

std::string padded(const std::string& text, int width) {
  return text + std::string(static_cast<std::size_t>(std::max(0, width - width_of(text))), ' ');
}

// Writes the blocks of a walk as lines of at most style.width columns.
class TextWriter {
 public:
  explicit TextWriter(const TextStyle& style) : style_(style) {}

  // At most two lines: the title is the whole text, however long.
  void heading(std::string_view text) {
    std::vector<std::string> lines = wrapped(0, text);
    if (lines.size() > 2) {
      lines[1] = encode_utf8(fit_to_columns(decode_utf8(lines[1] + " " + lines[2], {"", "text"}), style_.width));
      lines.resize(2);
    }
    for (const std::string& part : lines) line(0, bold(part));
  }
  void step(std::size_t number, const Step& step) {
    out_ += '\n';
    heading(fmt::format("{}  {}", number, step.title));
    for (std::size_t n = 0; n < step.blocks.size(); ++n) {
      if (n > 0) out_ += '\n';
      std::visit([&](const auto& b) { write(b); }, step.blocks[n]);
    }
  }
  std::string take() { return std::move(out_); }

 private:
  std::string bold(std::string_view text) const {
    return style_.colour ? fmt::format("\x1b[1m{}\x1b[0m", text) : std::string(text);
  }
  void line(int margin, std::string_view text) { out_ += fmt::format("{:{}}{}\n", "", margin, text); }

  // Words flow into lines; a word longer than a line is broken.
  std::vector<std::string> wrapped(int margin, std::string_view text) const {
    const int room = style_.width - margin;
    std::vector<std::u32string> lines(1);
    const std::u32string points = decode_utf8(text, {"", "text"});
    for (std::size_t at = 0; at < points.size();) {
      const std::size_t end = std::min(points.find(U' ', at), points.size());
      const std::u32string word = points.substr(at, end - at);
      at = end + 1;
      if (!lines.back().empty()) {
        if (display_width(lines.back()) + 1 + display_width(word) <= room)
          lines.back().push_back(U' ');
        else
          lines.emplace_back();
      }
      for (const char32_t point : word) {
        if (display_width(lines.back()) + display_width({&point, 1}) > room) lines.emplace_back();
        lines.back().push_back(point);
      }
    }
    std::vector<std::string> out;
    out.reserve(lines.size());
    for (const std::u32string& part : lines) out.push_back(encode_utf8(part));
    return out;
  }
  void wrap(int margin, std::string_view text) {
    for (const std::string& part : wrapped(margin, text)) line(margin, part);
  }

  void write(const Paragraph& paragraph) { wrap(indent, paragraph.text); }

  void write(const Formula& formula) {
    const std::string& shapes = formula.shapes;
    const bool together = width_of(formula.text) + width_of(shapes) + 2 * indent + 4 <= style_.width;
    wrap(2 * indent, together && !shapes.empty() ? formula.text + "    " + shapes : formula.text);
    if (!together && !shapes.empty()) wrap(4 * indent, shapes);
  }

  void write(const Numbers& numbers) {
    wrap(indent, numbers.name + ":");
    const int room = style_.width - indent - 2;  // for a bracket and a comma
    const std::string text = format_values(numbers.values, 0, room, SciMode::off, numbers.most);
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      line(indent, text.substr(at, end - at));
      at = end + 1;
    }
  }

  void write(const Table& table) {
    std::vector<int> widths;
    for (std::size_t column = 0; column < table.header.size(); ++column) {
      widths.push_back(width_of(table.header[column]));
      for (const auto& row : table.rows) widths[column] = std::max(widths[column], width_of(row[column]));
    }
    // A long word is cut so that the numbers beside it stay in the line; where that is narrow, so are the gaps.
    const int margin = style_.width < 60 ? indent : 2 * indent, gap = style_.width < 60 ? 1 : 3;
    const auto others =
        static_cast<int>(widths.size() - 1) * gap + std::accumulate(widths.begin() + 1, widths.end(), margin);
    widths[0] = std::min(widths[0], std::max(3, style_.width - others));
    const auto row_line = [&](const std::vector<std::string>& cells) {
      std::string text = padded(encode_utf8(fit_to_columns(decode_utf8(cells[0], {"", "text"}), widths[0])), widths[0]);
      for (std::size_t column = 1; column < cells.size(); ++column)
        text +=
            std::string(static_cast<std::size_t>(gap + widths[column] - width_of(cells[column])), ' ') + cells[column];
      line(margin, text);
    };
    row_line(table.header);
    for (const auto& row : table.rows) row_line(row);
  }

  void write(const Items& items) {
    int widest = 1;
    for (const std::string& item : items.items) widest = std::max(widest, width_of(item));
    widest = std::min(widest, style_.width - 2 * indent);
    const int columns = std::max(1, (style_.width - 2 * indent + 3) / (widest + 3));
    std::string current;
    for (std::size_t n = 0; n < items.items.size(); ++n) {
      const bool last = (n + 1) % static_cast<std::size_t>(columns) == 0 || n + 1 == items.items.size();
      const std::string item = encode_utf8(fit_to_columns(decode_utf8(items.items[n], {"", "text"}), widest));
      current += last ? item : padded(item, widest + 3);
      if (!last) continue;
      line(2 * indent, current);
      current.clear();
    }
  }

  void write(const Map& picture) {
    out_ += terminal_heat_map(picture.map, {.width = style_.width, .colour = style_.colour});
  }

  const TextStyle style_;
  std::string out_;
};

}  // namespace

std::string to_text(const Trace& trace, const TextStyle& style) {
  TextStyle fitting = style;
  fitting.width = std::max(40, style.width);
  TextWriter writer(fitting);
  writer.heading(shown(trace.title));
  AttentionSteps row;
  std::size_t number = 0;
  for (const Step& step : walk(trace, fitting, row)) writer.step(++number, step);
  return writer.take();
}

}  // namespace attend::inline v1
