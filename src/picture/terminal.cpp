#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/divide_up.h"
#include "core/message.h"
#include "core/utf8.h"
#include "picture/colour.h"
#include "picture/grid.h"
#include "picture/terminal_legend.h"
#include "picture/terminal_line.h"
#include "picture/text.h"

namespace attend::inline v1 {

namespace {

constexpr const char* terminal_function = "terminal_heat_map";
constexpr std::int64_t most_rows = 60;

using Texts = std::vector<std::u32string>;

std::u32string index_text(std::int64_t index) {
  return ascii(fmt::format("{}", index));
}

std::u32string printable(std::string_view text, const char* argument) {
  return one_line(text, {terminal_function, argument});
}

// One for each row or column of the map: where it is a block, its first index's.
Texts printable(const std::vector<std::string>& labels, const Indices& indices, const char* argument) {
  Texts out;
  for (std::int64_t block = 0; block < indices.blocks; ++block) {
    const std::int64_t i = indices.start(block);
    out.push_back(labels.empty() ? index_text(indices.first + i)
                                 : printable(labels[static_cast<std::size_t>(i)], argument));
  }
  return out;
}

int widest(const Texts& texts) {
  int width = 0;
  for (const std::u32string& text : texts) width = std::max(width, display_width(text));
  return width;
}

// `text` in the middle of `columns`; a free column more stands on the right.
std::u32string centred(std::u32string_view text, int columns) {
  const std::u32string fitting = fit_to_columns(text, columns);
  const int free = columns - display_width(fitting);
  return std::u32string(static_cast<std::size_t>(free / 2), U' ') + fitting +
         std::u32string(static_cast<std::size_t>(free - free / 2), U' ');
}

std::u32string right_aligned(std::u32string_view text, int columns) {
  const std::u32string fitting = fit_to_columns(text, columns);
  return std::u32string(static_cast<std::size_t>(columns - display_width(fitting)), U' ') + fitting;
}

// How a value is written into its cell.
enum class Number { decimals_4, decimals_3, decimals_2, decimals_1, decimals_0, power, two_digits, none };

std::u32string number_text(double value, Number number) {
  if (Grid::hidden(value)) return U"";
  if (std::isnan(value)) return U"nan";
  switch (number) {
    case Number::power:
      return ascii(value == 0 ? "0" : fmt::format("{:.0e}", value));
    case Number::two_digits: {  // ".64", "1.0"
      std::string text = fmt::format("{:.2f}", value);
      const std::size_t zero = text.find("0.");
      if (std::abs(value) >= 0.995) return ascii(fmt::format("{:.1f}", value));
      return ascii(zero == std::string::npos ? text : text.erase(zero, 1));
    }
    default:
      return ascii(fmt::format("{:.{}f}", value, 4 - static_cast<int>(number)));
  }
}

// Those below `least` are left out.
Texts number_texts(const Grid& cells, double least, Number number) {
  Texts texts;
  for (const double value : cells.values) texts.push_back(std::abs(value) < least ? U"" : number_text(value, number));
  return texts;
}

// The forms that say enough about values of this size, the fullest first.
std::vector<Number> useful_numbers(const Grid& cells, bool colour) {
  double largest = 0;
  for (const double value : cells.values) {
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  }
  if (largest > 0 && (largest < 0.01 || largest >= 1e5)) return {Number::power};
  if (largest >= 100) return {Number::decimals_2, Number::decimals_1, Number::decimals_0};
  if (largest >= 10) return {Number::decimals_2, Number::decimals_1};
  if (!colour) return {Number::decimals_2, Number::two_digits};  // the shade needs room too
  return {Number::decimals_4, Number::decimals_3, Number::decimals_2, Number::two_digits};
}

// Where everything stands: | row labels | gap | cells | border |.
struct TerminalLayout {
  Grid cells;
  Indices columns;
  Texts row_labels;     // one for each row of the map
  Texts column_labels;  // one for each column; empty where columns are numbered
  int label_width = 0;
  int cell_width = 1;
  Texts texts;    // of the cells, in place of numbers
  Texts numbers;  // one for each cell; empty where there is no room
  int number_width = 0;
  bool legend = false;  // the columns' numbers are explained below
  bool halves = false;  // two rows of cells on a line

  int left() const { return label_width + 1; }
};

int border(const TerminalStyle& style) {
  return style.colour ? 0 : 1;
}

// Columns that row labels have at the most.
int most_label(const TerminalStyle& style) {
  return style.width / 3;
}

// "34 word": each label after its number, cut where both would pass so many columns.
Texts numbered(const Texts& labels, const Indices& indices, std::int64_t from, int columns) {
  Texts out;
  const int digits = display_width(index_text(indices.first + indices.count - 1 + from));
  const int room = std::max(2, std::min(widest(labels) + 1, columns - digits));
  for (const std::u32string& label : labels) {
    const std::u32string number = index_text(indices.first + indices.start(std::ssize(out)) + from);
    out.push_back(right_aligned(number, digits).append(right_aligned(fit_to_columns(label, room - 1), room)));
  }
  return out;
}

// Texts stand as they are, cut; after each a column is free.
constexpr int most_text = 14;

int wanted_text_width(const Texts& texts, bool colour) {
  return std::min(widest(texts), most_text) + 1 + (colour ? 0 : 1);
}

int wanted_cell_width(const Grid& cells, double least, int column_label_width, bool colour) {
  const Number fullest = useful_numbers(cells, colour).front();
  const int shade = colour ? 0 : 3;
  return std::max(widest(number_texts(cells, least, fullest)) + 2 + shade, std::min(column_label_width, 14) + 2);
}

void choose_numbers(TerminalLayout& layout, double least, const TerminalStyle& style) {
  constexpr int beside = 1;  // a gap, or a column of shade
  for (const Number number : useful_numbers(layout.cells, style.colour)) {
    Texts texts = number_texts(layout.cells, least, number);
    const int width = widest(texts);
    if (width + beside > layout.cell_width) continue;
    layout.numbers = std::move(texts);
    layout.number_width = width;
    return;
  }
}

void set_row_labels(TerminalLayout& layout, Texts labels, const HeatMap& map, const TerminalStyle& style) {
  const int axis = display_width(printable(map.row_axis, "row_axis")) + 2;
  layout.label_width = std::min(std::max(widest(labels), axis), most_label(style));
  layout.row_labels = std::move(labels);
}

TerminalLayout arrange(const HeatMap& map, const TerminalStyle& style) {
  const std::int64_t rows = map.values.size(0);
  const std::int64_t columns = map.values.size(1);
  const Indices row_places = row_indices(map);
  const Texts row_labels = printable(map.row_labels, row_places, "row_labels");
  Texts column_labels = printable(map.column_labels, column_indices(map), "column_labels");
  const int column_label_width = widest(column_labels);
  const bool same_labels = map.row_labels == map.column_labels;

  TerminalLayout layout;
  layout.columns = column_indices(map);
  const auto room = [&] { return std::max(1, style.width - layout.left() - border(style)); };
  const auto cell_room = [&](std::int64_t count) {
    return static_cast<int>(std::max<std::int64_t>(1, room() / count));
  };

  std::int64_t row_block = map.texts.empty() ? divide_up(rows, most_rows) : 1;
  const bool number_rows = row_block > 1 && !map.row_labels.empty();
  set_row_labels(layout,
                 number_rows ? numbered(row_labels, row_places, map.numbers_from, most_label(style)) : row_labels, map,
                 style);
  // Labels that are cut to five columns or more can still be told apart; narrower columns get numbers, which the row
  // labels explain where they are the same words, else a legend.
  const bool number_columns = cell_room(columns) < std::min(column_label_width + 1, 6);
  if (number_columns && same_labels && !map.row_labels.empty())
    set_row_labels(layout, numbered(row_labels, row_places, map.numbers_from, most_label(style)), map, style);

  std::int64_t column_block = divide_up(columns, room());
  // Square blocks keep the diagonal of a square map a diagonal.
  if (row_block > 1 && column_block > 1) row_block = column_block = std::max(row_block, column_block);
  layout.cells = read_grid(map, row_block, column_block);
  layout.legend = number_columns && column_block == 1 && !map.column_labels.empty() && (!same_labels || row_block > 1);
  if (!number_columns) layout.column_labels = std::move(column_labels);
  for (std::size_t i = 0; i < map.texts.size() && !layout.cells.averaged(); ++i)
    layout.texts.push_back(trimmed(printable(map.texts[i], "texts")));
  const double least = least_written(map, layout.cells);
  const int wanted = layout.texts.empty()
                         ? wanted_cell_width(layout.cells, least, number_columns ? 0 : column_label_width, style.colour)
                         : wanted_text_width(layout.texts, style.colour);
  layout.cell_width = std::min(wanted, cell_room(layout.cells.columns));
  if (layout.texts.empty()) choose_numbers(layout, least, style);
  layout.halves = style.colour && row_block > 1 && layout.cell_width == 1;
  return layout;
}

// Numbers above every step-th column, where each has room: those of labels from `first` on, indices from 0.
std::string ruler(const TerminalLayout& layout, std::int64_t first, Line line) {
  const auto index = [&](std::int64_t column) {
    return layout.columns.first + layout.columns.start(column * layout.cells.column_block) + first;
  };
  const int digits = display_width(index_text(index(layout.cells.columns - 1)));
  std::int64_t step = 1;
  for (std::int64_t power = 1; step * layout.cell_width < digits + 1; power *= 10) {
    for (const std::int64_t round : {1, 2, 5}) {
      if (step * layout.cell_width < digits + 1) step = round * power;
    }
  }
  for (std::int64_t j = 0; j < layout.cells.columns; j += step) {
    const std::u32string text = index_text(index(j));
    line.skip_to(layout.left() + static_cast<int>(j) * layout.cell_width);
    if (line.room() >= display_width(text)) line.write(step == 1 ? centred(text, layout.cell_width) : text);
  }
  return line.end();
}

std::string header(const TerminalLayout& layout, const HeatMap& map, const TerminalStyle& style) {
  Line axis(style);
  axis.skip_to(layout.left());
  axis.write(printable(map.column_axis, "column_axis") + U" →");
  Line line(style);
  line.write(right_aligned(printable(map.row_axis, "row_axis") + U" ↓", layout.label_width));
  line.skip_to(layout.left());
  if (layout.column_labels.empty())
    return axis.end() + ruler(layout, map.column_labels.empty() ? 0 : map.numbers_from, line);
  // A column between neighbours, else they read as one.
  for (const std::u32string& label : layout.column_labels) {
    std::u32string fitting =
        fit_to_columns(layout.texts.empty() ? label : trimmed(label), std::max(1, layout.cell_width - 1));
    if (layout.texts.empty()) {
      line.write(centred(fitting, layout.cell_width));
      continue;
    }
    // Over the texts, which begin at the left.
    if (!style.colour) fitting = fit_to_columns(U" " + trimmed(label), layout.cell_width - 1);
    fitting.append(static_cast<std::size_t>(std::max(0, layout.cell_width - display_width(fitting))), U' ');
    line.write(fitting);
  }
  return axis.end() + line.end();
}

// In colour on it, else after its shade.
void write_text(Line& line, const TerminalLayout& layout, const ColourScale& scale, std::size_t cell, bool colour) {
  const double value = layout.cells.values[cell];
  const int room = std::max(0, layout.cell_width - (colour ? 1 : 2));
  std::u32string text = fit_to_columns(layout.texts[cell], room);
  text.append(static_cast<std::size_t>(room - display_width(text)), U' ');
  if (colour) return line.write_on(scale.at(value), fit_to_columns(text + U" ", layout.cell_width));
  line.write(fit_to_columns(std::u32string(1, shade_of(scale, scale.place(value))) + text + U" ", layout.cell_width));
}

void write_cell(Line& line, const TerminalLayout& layout, const ColourScale& scale, std::size_t cell, bool colour) {
  const double value = layout.cells.values[cell];
  if (Grid::hidden(value)) return line.write_hidden(layout.cell_width);
  if (!layout.texts.empty()) return write_text(line, layout, scale, cell, colour);
  std::u32string number;
  if (!layout.numbers.empty()) number = right_aligned(layout.numbers[cell], layout.number_width);
  if (colour) return line.write_on(scale.at(value), centred(number, layout.cell_width));
  // "▒▒▒ 0.64 ", "▒▒.64 ", "▒.64", "▒▒"
  const auto free = static_cast<std::size_t>(layout.cell_width - layout.number_width);
  const std::size_t after = !number.empty() && free >= 2 ? 1 : 0;
  const std::size_t before = !number.empty() && free >= 5 ? 1 : 0;
  line.write(std::u32string(free - after - before, shade_of(scale, scale.place(value))));
  line.write(std::u32string(before, U' '));
  line.write(number);
  line.write(std::u32string(after, U' '));
}

std::string rows(const TerminalLayout& layout, const ColourScale& scale, const TerminalStyle& style) {
  const Grid& cells = layout.cells;
  const auto painted = [&](std::int64_t i, std::int64_t j) -> std::optional<Colour> {
    if (i >= cells.rows || Grid::hidden(cells.at(i, j))) return std::nullopt;
    return scale.at(cells.at(i, j));
  };
  std::string out;
  for (std::int64_t i = 0; i < cells.rows; i += layout.halves ? 2 : 1) {
    Line line(style);
    line.write(right_aligned(layout.row_labels[static_cast<std::size_t>(i * cells.row_block)], layout.label_width));
    line.write(style.colour ? U" " : U"│");
    for (std::int64_t j = 0; j < cells.columns; ++j) {
      if (!layout.halves) {
        write_cell(line, layout, scale, static_cast<std::size_t>(i * cells.columns + j), style.colour);
      } else {
        line.write_halves(painted(i, j), painted(i + 1, j));
      }
    }
    if (!style.colour) line.write(U"│");
    out += line.end();
  }
  return out;
}

std::string column_legend(const TerminalLayout& layout, const HeatMap& map, const TerminalStyle& style) {
  const Texts labels = printable(map.column_labels, layout.columns, "column_labels");
  std::string out;
  Line line(style);
  line.write(printable(map.column_axis, "column_axis") + U":");
  for (std::size_t i = 0; i < labels.size(); ++i) {
    std::u32string entry = U"  ";
    const std::int64_t place = layout.columns.first + layout.columns.start(static_cast<std::int64_t>(i));
    entry.append(index_text(place + map.numbers_from)).append(U" ").append(labels[i]);
    if (display_width(entry) > line.room()) {
      out += line.end();
      line = Line(style);
    }
    line.write(entry);
  }
  return out + line.end();
}

// Words in lines that fit.
std::string wrapped(std::u32string_view text, const TerminalStyle& style) {
  std::string out;
  Line line(style);
  for (bool begun = false; !text.empty(); begun = true) {
    const std::u32string_view word = text.substr(0, text.find(U' '));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    if (begun && display_width(word) + 1 > line.room()) {
      out += line.end();
      line = Line(style);
    } else if (begun) {
      line.write(U" ");
    }
    line.write(word);
  }
  return out + line.end();
}

// What a cell is, and how many are one on the screen.
std::string notes(const TerminalLayout& layout, const HeatMap& map, const TerminalStyle& style) {
  const std::u32string cell = cell_note(map, {terminal_function});
  const Grid& cells = layout.cells;
  std::string out;
  if (!cell.empty()) out += wrapped(cell, style);
  if (cells.averaged()) {
    Line note(style);
    note.write(ascii(fmt::format("each cell {}averages {} x {} {}", cell.empty() ? "" : "shown ", cells.row_block,
                                 cells.column_block, cell.empty() ? "weights" : "of these")));
    out += note.end();
  }
  return out;
}

std::string draw(const HeatMap& map, const TerminalLayout& layout, const ColourScale& scale,
                 const TerminalStyle& style) {
  std::string out;
  if (!map.title.empty()) {
    Line title(style);
    title.write_bold(printable(map.title, "title"));
    out += title.end();
  }
  const std::vector<double>& values = layout.cells.values;
  const LegendSigns signs{.nan = std::ranges::any_of(values, [](double value) { return std::isnan(value); }),
                          .hidden = std::ranges::any_of(values, Grid::hidden) ? U"hidden" : U""};
  out += header(layout, map, style) + rows(layout, scale, style) + terminal_legend(scale, signs, layout.left(), style);
  if (layout.legend) out += column_legend(layout, map, style);
  return out + notes(layout, map, style);
}

}  // namespace

std::string terminal_heat_map(const HeatMap& map, const TerminalStyle& style) {
  return terminal_heat_maps({map}, "", style);
}

std::string terminal_heat_maps(const std::vector<HeatMap>& maps, const std::string& title, const TerminalStyle& style) {
  if (style.width < 1)
    fail(ErrorCode::bad_value, terminal_function, "expected a width of 1 or more, got {}", style.width);
  if (maps.empty()) fail(ErrorCode::bad_value, terminal_function, "no maps, expected at least one");
  std::vector<TerminalLayout> layouts;
  for (std::size_t i = 0; i < maps.size(); ++i) {
    check_heat_map(maps[i], {terminal_function, maps.size() == 1 ? "" : fmt::format("maps[{}]", i)});
    layouts.push_back(arrange(maps[i], style));
  }
  // Ends left open are those of the cells that are shown: means of large blocks would all be pale on the maps' own.
  std::vector<HeatMap> shown = maps;
  for (std::size_t i = 0; i < maps.size(); ++i) {
    const Grid& cells = layouts[i].cells;
    shown[i].values = View(cells.values.data(), DType::f64, {cells.rows, cells.columns});
  }
  const ColourScale scale = colour_scale(shown, terminal_function);
  std::string out;
  for (std::size_t i = 0; i < maps.size(); ++i) {
    HeatMap map = maps[i];
    if (!title.empty()) map.title = map.title.empty() ? title : title + ": " + map.title;
    if (i > 0) out += '\n';
    out += draw(map, layouts[i], scale, style);
  }
  return out;
}

}  // namespace attend::inline v1
