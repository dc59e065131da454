#include "cli/attention_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "cli/command.h"
#include "cli/suggest.h"

namespace attend::cli {
namespace {

template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

Offset parse_offset(const std::string& text) {
  if (text == "top_left") return Offset::top_left();
  if (text == "bottom_right") return Offset::bottom_right();
  if (const auto value = parse_number<std::int64_t>(text)) return Offset(*value);
  throw UsageError(fmt::format("--offset: expected top_left, bottom_right or a whole number, got '{}'{}", text,
                               did_you_mean(text, {"top_left", "bottom_right"})));
}

Window parse_window(const std::string& text) {
  const auto sides = parse_whole_numbers(text);
  if (sides && sides->size() == 2) return {sides->front(), sides->back()};
  throw UsageError(
      fmt::format("--window: expected LEFT,RIGHT, two whole numbers such as 128,0 (-1 is open), got '{}'", text));
}

}  // namespace

void add_visibility(App& app, Visibility& visibility) {
  app.add_flag("--causal", visibility.causal, "Key j is visible to query i if j <= i + offset");
  app.add_option("--offset", visibility.offset,
                 "The key that query 0 stands at: top_left is key 0, N is key N, and bottom_right puts the last query "
                 "at the last key that exists")
      ->type_name("top_left|bottom_right|N");
  app.add_option("--window", visibility.window,
                 "A query sees only the keys from L before to R after its own position; -1 leaves a side open")
      ->type_name("L,R");
}

AttentionOptions parse_visibility(const Visibility& visibility) {
  AttentionOptions options;
  options.causal = visibility.causal;
  if (!visibility.offset.empty()) options.offset = parse_offset(visibility.offset);
  if (!visibility.window.empty()) options.window = parse_window(visibility.window);
  return options;
}

std::string flag_of(std::string_view name) {
  std::string flag = fmt::format("--{}", name);
  std::ranges::replace(flag, '_', '-');
  return flag;
}

void check_offset(const AttentionOptions& options) {
  bool used = !options.offset || options.causal || options.window.left >= 0 || options.window.right >= 0;
  std::vector<std::string> flags{"--causal", "--window"};
  for (const TensorOption& option : tensor_options()) {
    if (!option.positional) continue;
    used |= (options.*option.value).has_value();
    flags.push_back(flag_of(option.name));
  }
  if (used) return;
  const std::string last = flags.back();
  flags.pop_back();
  throw UsageError(fmt::format("--offset: nothing uses it without {} or {}", fmt::join(flags, ", "), last));
}

double parse_real(const std::string& option, const std::string& text) {
  if (const auto value = parse_number<double>(text)) return *value;
  throw UsageError(fmt::format("{}: expected a number, got '{}'", option, text));
}

std::optional<std::vector<std::int64_t>> parse_whole_numbers(std::string_view text) {
  std::vector<std::int64_t> numbers;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t comma = std::min(text.find(',', start), text.size());
    const auto number = parse_number<std::int64_t>(text.substr(start, comma - start));
    if (!number) return std::nullopt;
    numbers.push_back(*number);
    start = comma + 1;
  }
  return numbers;
}

}  // namespace attend::cli
