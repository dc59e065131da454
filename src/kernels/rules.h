// Which pairs of a query and a key are visible, and the numbers that change their scores. Also read by the files that
// are compiled for a target: no headers with inline code.
#pragma once

#include <cstdint>

#include "kernels/dropout.h"

namespace attend::inline v1::kernels {

// All that decides on the pairs of one query head, or of the query heads that share one key head, but for tensors.
struct Rules {
  double scale = 1;
  double softcap = 0;             // 0: none
  std::int64_t offset = 0;        // query i is level with key i + offset
  std::int64_t window_left = -1;  // keys before and after the level one; -1: open. Causal: none after it
  std::int64_t window_right = -1;
  std::int64_t key_length = 0;  // keys from here on do not exist, and are never read
  Dropout dropout = {};
};

// The keys lo <= key < hi; none: {0, 0}.
struct KeyRange {
  std::int64_t lo = 0, hi = 0;
};

namespace {

// Whether a scaled score goes through a curve (score.h) before anything is added to it.
inline bool has_curve(const Rules& rules) {
  return rules.softcap > 0;
}

// Whether some query may not see all keys that exist.
inline bool has_window(const Rules& rules) {
  return rules.window_left >= 0 || rules.window_right >= 0;
}

// The keys that lengths and window leave to some query of [first, last). Both ends rise with the query, so that
// the first one decides where they begin and the last one where they end.
inline KeyRange visible_keys(const Rules& rules, std::int64_t first, std::int64_t last) {
  const std::int64_t first_level = first + rules.offset, last_level = last - 1 + rules.offset;
  KeyRange keys{0, rules.key_length};
  if (rules.window_left >= 0 && first_level > rules.window_left) keys.lo = first_level - rules.window_left;
  if (rules.window_right >= 0 && last_level + rules.window_right + 1 < keys.hi) {
    keys.hi = last_level + rules.window_right + 1;
  }
  return keys.hi <= keys.lo ? KeyRange{} : keys;
}

// Which entry of distance_bias [2 * reach + 1] is added where key j meets a query that is level with key `level`.
inline std::int64_t distance_entry(std::int64_t level, std::int64_t j, std::int64_t reach) {
  return j < level - reach ? 0 : j > level + reach ? 2 * reach : j - level + reach;
}

// The keys that they leave to one query.
inline KeyRange visible_keys(const Rules& rules, std::int64_t query) {
  return visible_keys(rules, query, query + 1);
}

}  // namespace
}  // namespace attend::inline v1::kernels
