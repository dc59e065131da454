#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "attend/explain.h"
#include "core/message.h"
#include "core/utf8.h"
#include "explain/walk.h"
#include "io/format.h"

namespace attend {

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

  void heading(std::string_view text) {
    for (const std::string& part : wrapped(0, text)) line(0, bold(part));
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

  // Words flow into lines; a word longer than a line stands alone.
  std::vector<std::string> wrapped(int margin, std::string_view text) const {
    const int room = std::max(20, style_.width - margin);
    std::vector<std::string> lines;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find(' ', at), text.size());
      const std::string word(text.substr(at, end - at));
      at = end + 1;
      if (lines.empty() || width_of(lines.back()) + 1 + width_of(word) > room)
        lines.push_back(word);
      else
        lines.back() += " " + word;
    }
    return lines;
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
    line(indent, numbers.name + ":");
    const std::string text = format_values(numbers.values, 0, std::max(20, style_.width - indent), SciMode::off);
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
    // A long word is cut so that the numbers beside it stay in the line.
    const auto others = static_cast<int>(widths.size() - 1) * 3 + std::accumulate(widths.begin() + 1, widths.end(), 0);
    widths[0] = std::min(widths[0], std::max(12, style_.width - 2 * indent - others));
    const auto row_line = [&](const std::vector<std::string>& cells) {
      std::string text = padded(encode_utf8(fit_to_columns(decode_utf8(cells[0], {"", "text"}), widths[0])), widths[0]);
      for (std::size_t column = 1; column < cells.size(); ++column) {
        const int gap = widths[column] - width_of(cells[column]) + 3;
        text += std::string(static_cast<std::size_t>(gap), ' ') + cells[column];
      }
      line(2 * indent, text);
    };
    row_line(table.header);
    for (const auto& row : table.rows) row_line(row);
  }

  void write(const Items& items) {
    int widest = 1;
    for (const std::string& item : items.items) widest = std::max(widest, width_of(item));
    const int columns = std::max(1, (style_.width - 2 * indent + 3) / (widest + 3));
    std::string current;
    for (std::size_t n = 0; n < items.items.size(); ++n) {
      const bool last = (n + 1) % static_cast<std::size_t>(columns) == 0 || n + 1 == items.items.size();
      current += last ? items.items[n] : padded(items.items[n], widest + 3);
      if (!last) continue;
      line(2 * indent, current);
      current.clear();
    }
  }

  void write(const Picture& picture) {
    out_ += terminal_heat_map(picture.map, {.width = style_.width, .colour = style_.colour});
  }

  const TextStyle& style_;
  std::string out_;
};

}  // namespace

std::string to_text(const Trace& trace, const TextStyle& style) {
  TextWriter writer(style);
  writer.heading(shown(trace.title));
  std::size_t number = 0;
  for (const Step& step : walk(trace, style.focus.value_or(trace.focus), style.head)) writer.step(++number, step);
  return writer.take();
}

}  // namespace attend
