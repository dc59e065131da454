// Tables of code points: ranges in their order.
#pragma once

#include <algorithm>
#include <iterator>
#include <span>

namespace attend::inline v1 {

struct CodePointRange {
  char32_t first;
  char32_t last;
};

inline bool holds(std::span<const CodePointRange> ranges, char32_t point) {
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), point,
                                      [](char32_t value, const CodePointRange& range) { return value < range.first; });
  return after != ranges.begin() && point <= std::prev(after)->last;
}

}  // namespace attend::inline v1
