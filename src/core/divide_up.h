// How many parts of a size cover a whole.
#pragma once

#include <cstdint>

namespace attend::inline v1 {

// whole >= 0, part > 0; no overflow.
constexpr std::int64_t divide_up(std::int64_t whole, std::int64_t part) {
  return whole / part + (whole % part != 0);
}

}  // namespace attend::inline v1
