#include <algorithm>
#include <string_view>

#include "attend/passages.h"

namespace attend::inline v1 {

namespace {

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r\n\v\f") == std::string_view::npos;
}

// The bytes of each passage, without the lines of blanks that part them.
std::vector<Range> bytes_of(std::string_view text, PassageBy by) {
  std::vector<Range> found;
  bool goes_on = false;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size() - 1) + 1;
    if (is_blank(text.substr(begin, end - begin))) {
      goes_on = false;
    } else if (goes_on) {
      found.back().end = static_cast<std::int64_t>(end);
    } else {
      found.push_back({static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end)});
      goes_on = by == PassageBy::paragraph;
    }
    begin = end;
  }
  return found;
}

}  // namespace

std::vector<Range> passages_of(std::string_view text, const Encoding& encoding, PassageBy by) {
  std::vector<Range> found;
  std::size_t next = 0;
  for (const Range& bytes : bytes_of(text, by)) {
    // Of the passage are the tokens that begin in it; those of the blanks before it are of none.
    const auto is_before = [&](std::int64_t end) {
      const Range& at = encoding.offsets[next];
      return encoding.texts[next] != 0 || at.begin < end;
    };
    while (next < encoding.ids.size() && is_before(bytes.begin)) ++next;
    const std::size_t first = next;
    while (next < encoding.ids.size() && encoding.texts[next] == 0 && is_before(bytes.end)) ++next;
    if (next > first) found.push_back({static_cast<std::int64_t>(first), static_cast<std::int64_t>(next)});
  }
  return found;
}

}  // namespace attend::inline v1
