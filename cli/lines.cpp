#include "cli/lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <string_view>
#include <utility>

#include "cli/command.h"
#include "cli/terminal.h"

namespace attend::cli {

Lines::Lines(const std::string& file) : name_(file == "-" ? "standard input" : file) {
  if (file == "-") return;
  file_.open(file, std::ios::binary);
  std::error_code error;
  const auto size = std::filesystem::file_size(file, error);
  if (!file_.is_open() || std::filesystem::is_directory(file))
    throw Error(ErrorCode::bad_file, "", fmt::format("'{}' can't be read", file));
  if (!error) size_ = static_cast<double>(size);
}

bool Lines::next(std::string& line) {
  std::istream& from = file_.is_open() ? file_ : std::cin;
  if (!std::getline(from, line)) {
    if (from.bad()) throw Error(ErrorCode::bad_file, "", fmt::format("{}: can't be read", name_));
    return false;
  }
  read_ += static_cast<double>(line.size() + 1);
  if (line.ends_with('\r')) line.pop_back();
  return true;
}

bool Lines::next(std::vector<std::string>& lines) {
  constexpr std::size_t most_lines = 1 << 12, most_bytes = 1 << 20;
  std::size_t bytes = 0;
  bool more = true;
  for (std::string line; lines.size() < most_lines && bytes < most_bytes && (more = next(line));) {
    bytes += line.size();
    lines.push_back(std::move(line));
  }
  return more;
}

std::optional<double> Lines::share() const {
  return size_ > 0 ? std::optional(std::min(1.0, read_ / size_)) : std::nullopt;
}

void fail_for_line(const Error& error, std::int64_t before) {
  const std::string_view detail = error.detail();
  for (const std::string_view begin : {"sentences[", "texts[", "passages["}) {
    if (!detail.starts_with(begin)) continue;
    std::int64_t place = 0;
    const auto end = std::from_chars(detail.data() + begin.size(), detail.data() + detail.size(), place).ptr;
    throw Error(error.code(), "",
                fmt::format("line {}{}", before + place + 1, std::string_view(end + 1, detail.end())));
  }
  throw Error(error);
}

void for_each_lines(Lines& lines, std::function<void(double)>& progress,
                    const std::function<void(const std::vector<std::string>&, std::int64_t)>& use) {
  Progress shown;
  const std::function<void(double)> told = shown.stage();
  const std::function<void(std::int64_t)> counted = shown.count("lines");
  std::int64_t before = 0;
  double done = 0;  // of the file
  for (bool more = true; more;) {
    std::vector<std::string> some;
    more = lines.next(some);
    const std::optional<double> read = lines.share();
    if (told && read) progress = [&, from = done](double part) { told(from + (*read - from) * part); };
    if (counted && !read)
      progress = [&](double part) { counted(before + std::llround(part * static_cast<double>(some.size()))); };
    done = read.value_or(0);
    try {
      use(some, before);
    } catch (const Error& error) {
      fail_for_line(error, before);
    }
    before += std::ssize(some);
  }
  progress = {};
}

std::string shortened(const std::string& text, int columns) {
  const auto room = static_cast<std::size_t>(std::max(20, columns));
  std::string shown = printable(text);
  if (columns_of(shown) > room) shown = fmt::format("{:.{}}…", shown, room - 1);
  return shown;
}

}  // namespace attend::cli
