#include "cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <charconv>
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
  return environment("NO_COLOR").empty() && environment("TERM") != "dumb" && isatty(STDOUT_FILENO) == 1;
}

int terminal_width() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const std::string_view given = environment("COLUMNS");
  int columns = 0;
  std::from_chars(given.data(), given.data() + given.size(), columns);
  return columns > 0 ? columns : 80;
}

}  // namespace attend::cli
