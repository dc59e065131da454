// Places that are counted from the end where they are negative: -1 is the last one.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/message.h"

namespace attend::inline v1 {

// The place among `count`, from 0. `what` begins a message: "rows[0] is", "an edit of row". Throws bad_value.
inline std::int64_t from_end(std::string_view function, std::string_view what, std::int64_t place, std::int64_t count) {
  if (place < -count || place >= count)
    fail(ErrorCode::bad_value, function, "{} {}, expected 0 to {}, or {} to -1 from the end", what, place, count - 1,
         -count);
  return place < 0 ? place + count : place;
}

}  // namespace attend::inline v1
