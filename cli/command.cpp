#include "cli/command.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "attend/error.h"
#include "attend/picture.h"
#include "cli/suggest.h"

namespace attend::cli {
namespace {

std::string listed(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i)
    text += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + words[i];
  return text;
}

// A character that a terminal obeys, at `begin` of a text.
struct Mark {
  std::size_t begin = 0, end = 0;
  unsigned code = 0;
};

// The mark that begins there, if one does.
std::optional<Mark> mark_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t n) { return at + n < text.size() ? static_cast<unsigned char>(text[at + n]) : 0u; };
  const unsigned first = byte(0);
  if (first < 0x20 || first == 0x7F) return Mark{at, at + 1, first};
  // U+0080 to U+009F, which begin sequences as ESC does.
  if (first == 0xC2 && byte(1) >= 0x80 && byte(1) < 0xA0) return Mark{at, at + 2, byte(1)};
  // Marks that turn the direction of what follows them: U+202A to U+202E, U+2066 to U+2069.
  const unsigned code = 0x2000 | (byte(1) & 1) << 6 | (byte(2) & 0x3F);
  const bool turns = (byte(1) == 0x80 && byte(2) >= 0xAA && byte(2) <= 0xAE) ||
                     (byte(1) == 0x81 && byte(2) >= 0xA6 && byte(2) <= 0xA9);
  return first == 0xE2 && turns ? std::optional(Mark{at, at + 3, code}) : std::nullopt;
}

// The first one from there on, but for those that are `kept`.
std::optional<Mark> next_mark(std::string_view text, std::size_t from, std::string_view kept) {
  for (; from < text.size(); ++from) {
    if (text[from] >= 0x20 && text[from] < 0x7F) continue;  // nearly all of JSON, which may have hundreds of millions
    const std::optional<Mark> mark = mark_at(text, from);
    if (mark && kept.find(text[from]) == std::string_view::npos) return mark;
  }
  return std::nullopt;
}

// The text with each mark as `escaped` says; where there is none it is passed on as it is.
template <class Escaped>
std::string without_marks(std::string text, std::string_view kept, Escaped escaped) {
  std::optional<Mark> mark = next_mark(text, 0, kept);
  if (!mark) return text;
  std::string out;
  std::size_t done = 0;
  for (; mark; mark = next_mark(text, done, kept)) {
    out.append(text, done, mark->begin - done).append(escaped(mark->code));
    done = mark->end;
  }
  return out.append(text, done);
}

std::string as_escape(unsigned mark) {
  return mark < 0x100 ? fmt::format("\\x{:02x}", mark) : fmt::format("\\u{:04x}", mark);
}

}  // namespace

std::vector<std::string> words_of_type(std::string_view type_name) {
  std::vector<std::string> words;
  while (!type_name.empty()) {
    const std::size_t length = std::min(type_name.find('|'), type_name.size());
    if (std::islower(static_cast<unsigned char>(type_name[0])) != 0) words.emplace_back(type_name.substr(0, length));
    type_name.remove_prefix(std::min(length + 1, type_name.size()));
  }
  return words;
}

Option* choose_one(Option* option, const std::string& type_name) {
  const std::vector<std::string> words = words_of_type(type_name);
  const auto check = [words](const std::string& value) -> std::string {
    if (std::find(words.begin(), words.end(), value) != words.end()) return "";
    return fmt::format("expected {}, got '{}'{}", listed(words), value, did_you_mean(value, words));
  };
  return option->type_name(type_name)->check(check);
}

Option* whole_number(Option* option, std::uint64_t low, std::uint64_t high) {
  const auto check = [low, high](const std::string& value) -> std::string {
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error == std::errc() && end == value.data() + value.size() && number >= low && number <= high) return "";
    const bool bounded = high < std::numeric_limits<std::int64_t>::max() || error == std::errc::result_out_of_range ||
                         (error == std::errc() && number > high);
    const std::string range = bounded ? fmt::format("from {} to {}", low, high) : fmt::format("of at least {}", low);
    return fmt::format("expected a whole number {}, got '{}'", range, value);
  };
  return option->type_name("N")->check(check);
}

Option* place_number(Option* option) {
  const auto check = [](const std::string& value) -> std::string {
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error == std::errc() && end == value.data() + value.size()) return "";
    return fmt::format("expected a whole number, -1 for the last, got '{}'", value);
  };
  return option->type_name("N")->check(check);
}

Option* file_ending(Option* option, const std::vector<std::string>& endings) {
  const auto check = [endings](const std::string& value) -> std::string {
    const std::string ending = std::filesystem::path(value).extension().string();
    if (std::find(endings.begin(), endings.end(), ending) != endings.end()) return "";
    return fmt::format("'{}' should end in {}{}", value, listed(endings), did_you_mean(ending, endings));
  };
  return option->type_name("FILE")->check(check);
}

std::string first_sentence(const std::string& text) {
  const std::string sentence = text.substr(0, text.find(". "));
  return sentence.ends_with('.') ? sentence.substr(0, sentence.size() - 1) : sentence;
}

std::string printable(std::string_view text) {
  return without_marks(std::string(text), "", as_escape);
}

std::string printable_json(std::string json) {
  return without_marks(std::move(json), "\n", [](unsigned mark) { return fmt::format("\\u{:04x}", mark); });
}

std::string json_text(const nlohmann::ordered_json& report, int indent) {
  using Json = nlohmann::ordered_json;
  return printable_json(report.dump(indent, ' ', false, Json::error_handler_t::replace)) + "\n";
}

std::string printable_lines(std::string_view text) {
  return without_marks(std::string(text), "\n", as_escape);
}

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

void tell(std::string_view message) {
  const std::string line = printable(message) + "\n";
  (void)std::fwrite(line.data(), 1, line.size(), stderr);  // where standard error is closed, nobody is left to tell
}

void warn_of_missing_characters(const std::string& file, std::string_view text) {
  const std::string missing = file.ends_with(".png") ? missing_characters(text) : "";
  if (missing.empty()) return;
  tell(fmt::format(
      "attend: {}: the font has no {}, which became boxes; set ATTEND_FONT to a .ttf or .otf file that has them", file,
      missing));
}

void print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size())
    throw Failure(fmt::format("standard output: {}", std::strerror(errno)));
}

void close_output() {
  if (std::fflush(stdout) != 0) throw Failure(fmt::format("standard output: {}", std::strerror(errno)));
}

namespace {

// A device such as /dev/zero has no end, and no model takes a text of this size.
constexpr std::size_t most_text = std::size_t{64} << 20;

void add_text(std::string& text, std::string_view more, const std::string& from) {
  if (text.size() + more.size() > most_text)
    throw Failure(fmt::format("{}: more than {} of text", from, bytes(most_text)));
  text += more;
}

}  // namespace

std::string read_stdin() {
  std::string text;
  char chunk[1 << 16];
  while (const std::size_t count = std::fread(chunk, 1, sizeof chunk, stdin))
    add_text(text, {chunk, count}, "standard input");
  if (std::ferror(stdin) != 0) throw Failure(fmt::format("standard input: {}", std::strerror(errno)));
  return text;
}

std::string read_text(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  std::string text;
  char chunk[1 << 16];
  while (stream) {
    stream.read(chunk, sizeof chunk);
    add_text(text, {chunk, static_cast<std::size_t>(stream.gcount())}, file);
  }
  if (!stream.is_open() || stream.bad()) throw Error(ErrorCode::bad_file, "", fmt::format("'{}' can't be read", file));
  return text;
}

std::string with_unit(double amount, double step, std::span<const char* const> units) {
  std::size_t unit = 0;
  while (unit + 1 < units.size() && amount >= step) amount /= step, ++unit;
  const int decimals = unit == 0 || amount >= 100 ? 0 : amount >= 10 ? 1 : 2;
  return fmt::format("{:.{}f} {}", amount, decimals, units[unit]);
}

std::string of_thousands(double amount, std::string_view unit) {
  static constexpr std::array prefixes = {"", "k", "M", "G", "T", "P"};
  return with_unit(amount, 1000, prefixes) + std::string(unit);
}

std::string bytes(std::int64_t count) {
  static constexpr std::array units = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB"};
  return with_unit(static_cast<double>(count), 1024, units);
}

void writing(const std::function<void()>& write) {
  try {
    write();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::bad_file) throw;
    throw Failure(error.what());
  }
}

}  // namespace attend::cli
