#include "cli/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "attend/tensor_files.h"
#include "cli/command.h"

namespace attend::cli {

bool use_colour(const std::string& when) {
  if (when != "auto") return when == "always";
  return environment("NO_COLOR").empty() && environment("TERM") != "dumb" && on_terminal();
}

bool on_terminal() {
  return isatty(STDOUT_FILENO) == 1;
}

int terminal_width() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const std::string_view given = environment("COLUMNS");
  int columns = 0;
  std::from_chars(given.data(), given.data() + given.size(), columns);
  return columns > 0 ? columns : 80;
}

void write_picture(const std::string& file, const Picture& picture) {
  const std::string bytes = std::filesystem::path(file).extension() == ".png" ? picture.png() : picture.svg();
  writing([&] { write_file(file, bytes); });
  warn_of_missing_characters(file, picture.text());
}

void print_pages(const std::string& text) {
  winsize size{};
  const char* pager = std::getenv("PAGER");
  if (pager == nullptr) pager = "if command -v less >/dev/null; then exec less; else exec cat; fi";
  // Where the size is not known, nothing is longer than it.
  const bool fits =
      ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || std::ranges::count(text, '\n') < size.ws_row;
  if (fits || *pager == '\0') return print(text);
  close_output();
  setenv("LESS", "FRX", 0);  // colours, and the text stays on the screen
  // NOLINTNEXTLINE(cert-env33-c): PAGER is a line for the shell, as it is for man
  std::FILE* pipe = popen(pager, "w");
  if (pipe == nullptr) return print(text);
  // Ctrl-C is for the pager, and it may end before it has read all.
  for (const int number : {SIGINT, SIGPIPE}) (void)std::signal(number, SIG_IGN);
  (void)std::fwrite(text.data(), 1, text.size(), pipe);
  const int status = pclose(pipe);
  for (const int number : {SIGINT, SIGPIPE}) (void)std::signal(number, SIG_DFL);
  constexpr int not_found = 127;
  if (WIFEXITED(status) && WEXITSTATUS(status) == not_found) print(text);
}

// fmt counts columns as terminals do, wide characters twice, and what it fills up to a width tells how many.
std::size_t columns_of(const std::string& text) {
  const std::size_t room = 4 * text.size();
  return room + text.size() - fmt::formatted_size("{:<{}}", text, room);
}

std::size_t Column::width() const {
  std::size_t width = heading.size();
  for (const std::string& cell : cells) width = std::max(width, columns_of(cell));
  return width;
}

void add_line(std::vector<Column>& columns, const std::vector<std::string>& cells) {
  for (std::size_t n = 0; n < cells.size(); ++n) columns[n].cells.push_back(cells[n]);
}

std::vector<std::string> lines_of(const std::vector<Column>& columns) {
  std::vector<std::string> lines(columns[0].cells.size() + 1);
  for (const Column& column : columns) {
    const std::size_t room = column.width();
    const auto write = [&](std::string& line, std::string_view cell) {
      if (!line.empty()) line += "  ";
      line += column.left ? fmt::format("{:<{}}", cell, room) : fmt::format("{:>{}}", cell, room);
    };
    write(lines[0], column.heading);
    for (std::size_t n = 0; n < column.cells.size(); ++n) write(lines[n + 1], column.cells[n]);
  }
  for (std::string& line : lines) line.erase(line.find_last_not_of(' ') + 1);
  return lines;
}

std::string bar(double share, int width) {
  std::string text;
  for (int i = 0; i < std::lround(width * std::clamp(share, 0.0, 1.0)); ++i) text += "█";
  return text;
}

void add_text_form(App& app, TextForm& form) {
  choose_one(app.add_option("--color", form.colour,
                            "Whether the text has colour; auto: on a terminal, unless NO_COLOR is set (default: auto)"),
             "auto|always|never");
  whole_number(app.add_option("--width", form.width, "Width of the text in columns (default: the terminal's)"), 40,
               widest);
}

TerminalStyle style_of(const TextForm& form) {
  return {.width = form.width > 0 ? form.width : std::min(terminal_width(), widest), .colour = use_colour(form.colour)};
}

Progress::~Progress() {
  if (!shown_.empty()) (void)std::fputs(fmt::format("\r{:{}}\r", "", shown_.size()).c_str(), stderr);
}

std::function<void(double)> Progress::stage(double from, double to) {
  if (isatty(STDERR_FILENO) != 1) return {};
  return [this, from, to](double part) {
    show(fmt::format("attend: {:3} %", static_cast<int>(100 * (from + (to - from) * part))));
  };
}

std::function<void(std::int64_t)> Progress::count(const char* things) {
  if (isatty(STDERR_FILENO) != 1) return {};
  return [this, things](std::int64_t done) { show(fmt::format("attend: {} {}", done, things)); };
}

void Progress::show(const std::string& state) {
  if (state == shown_ || std::chrono::steady_clock::now() - start_ < std::chrono::milliseconds(300)) return;
  shown_ = state;
  (void)std::fputs(("\r" + state).c_str(), stderr);
}

}  // namespace attend::cli
