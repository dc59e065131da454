// Heads by their names.
#include <array>
#include <charconv>

#include "attend/analysis.h"
#include "core/message.h"
#include "io/file.h"

namespace attend::inline v1 {

namespace {

constexpr std::array<std::pair<std::string_view, AttentionKind>, 3> stacks{{{"encoder.self", AttentionKind::encoder},
                                                                            {"decoder.self", AttentionKind::self},
                                                                            {"decoder.cross", AttentionKind::cross}}};

std::optional<std::int64_t> whole(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

std::vector<std::string_view> parts_of(std::string_view name) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    parts.push_back(name.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

}  // namespace

NamedHead head_named(std::string_view name) {
  const std::vector<std::string_view> parts = parts_of(name);
  const bool is_short = parts.size() == 2;
  NamedHead found;
  if (parts.size() == 4)
    for (const auto& [stack, attention] : stacks)
      if (fmt::format("{}.{}", parts[0], parts[2]) == stack) found.attention = attention;
  const auto layer = is_short ? whole(parts[0]) : found.attention ? whole(parts[1]) : std::nullopt;
  const auto head = layer ? whole(parts.back()) : std::nullopt;
  if (!head)
    fail(ErrorCode::bad_value, "head_named",
         "{} is not a head's name, expected one such as 18.6, or decoder.3.cross.6 in an encoder-decoder", quote(name));
  found.head = {*layer, *head};
  return found;
}

std::vector<Head> heads_named(std::span<const std::string> names, AttentionKind& attention) {
  std::vector<Head> heads;
  std::optional<AttentionKind> said;
  for (const std::string& name : names) {
    const NamedHead named = head_named(name);
    if (named.attention && said && *said != *named.attention)
      fail(ErrorCode::bad_value, "heads_named", "{} belongs to another attention than the heads before it",
           quote(name));
    if (named.attention) said = named.attention;
    heads.push_back(named.head);
  }
  attention = said.value_or(attention);
  return heads;
}

}  // namespace attend::inline v1
