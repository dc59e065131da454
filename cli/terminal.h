// What the terminal can show.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "attend/picture.h"
#include "cli/line.h"

namespace attend::cli {

// `when` is auto, always or never. auto: standard output is a terminal that is not dumb, and NO_COLOR is unset or
// empty (no-color.org).
bool use_colour(const std::string& when);

bool on_terminal();  // standard output is one

// Columns of the terminal on standard output, else COLUMNS, else 80.
int terminal_width();

constexpr int widest = 10000;

// How many columns a text takes there.
std::size_t columns_of(const std::string& text);
// A column of a table: its heading, and a cell for each line.
struct Column {
  std::string_view heading;
  bool left = false;  // words; numbers stand right
  std::vector<std::string> cells = {};
  std::string_view name = {};

  std::size_t width() const;
};
// A cell for each column.
void add_line(std::vector<Column>& columns, const std::vector<std::string>& cells);
// Lines, the headings' first.
std::vector<std::string> lines_of(const std::vector<Column>& columns);
// So much of `width` columns.
std::string bar(double share, int width);

// Text to standard output. What is longer than a terminal's screen goes through the program that PAGER names, else
// through less where there is one. Throws Failure where it can't be written.
void print_pages(const std::string& text);

// As .png, or else as .svg. Tells which characters a .png has as boxes.
void write_picture(const std::string& file, const Picture& picture);

// How text is shown: --color and --width, as they stand on the command line.
struct TextForm {
  std::string colour = "auto";
  int width = 0;  // 0: the terminal's
};
void add_text_form(App& app, TextForm& form);
TerminalStyle style_of(const TextForm& form);

// How far a computation is: a line of standard error, where that is a terminal and the computation takes long enough
// to be wondered about. It is wiped away when this ends.
class Progress {
 public:
  Progress() = default;
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();
  // To be told the share, from 0 to 1, that is done of a stage which goes from one share of the whole to another; lives
  // as long as this. Empty where there is no terminal.
  std::function<void(double)> stage(double from = 0, double to = 1);
  // Where nobody knows how much there is: to be told how many `things` are done.
  std::function<void(std::int64_t)> count(const char* things);

 private:
  void show(const std::string& state);

  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::string shown_;
};

}  // namespace attend::cli
