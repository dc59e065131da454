#include "cli/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace attend::cli {
namespace {

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

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

Progress::~Progress() {
  if (percent_ >= 0) (void)std::fputs("\r             \r", stderr);
}

std::function<void(double)> Progress::stage(double from, double to) {
  if (isatty(STDERR_FILENO) != 1) return {};
  return [this, from, to](double part) { show(from + (to - from) * part); };
}

void Progress::show(double part) {
  const int percent = static_cast<int>(100 * part);
  if (percent == percent_ || std::chrono::steady_clock::now() - start_ < std::chrono::milliseconds(300)) return;
  percent_ = percent;
  (void)std::fputs(fmt::format("\rattend: {:3} %", percent).c_str(), stderr);
}

}  // namespace attend::cli
