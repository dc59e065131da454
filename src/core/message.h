// Throwing attend::Error with a formatted message.
#pragma once

#include <fmt/format.h>

#include "attend/error.h"
#include "attend/tensor.h"

template <>
struct fmt::formatter<attend::Dims> : fmt::formatter<std::string> {
  template <class Context>
  auto format(const attend::Dims& dims, Context& context) const {
    return fmt::formatter<std::string>::format(dims.str(), context);
  }
};

template <>
struct fmt::formatter<attend::DType> : fmt::formatter<std::string_view> {
  template <class Context>
  auto format(attend::DType dtype, Context& context) const {
    return fmt::formatter<std::string_view>::format(attend::name_of(dtype), context);
  }
};

namespace attend::inline v1 {

// fail(ErrorCode::bad_shape, "attention", "k has head size {}, q has {}", ...); no function: ""
template <class... Args>
[[noreturn]] void fail(ErrorCode code, std::string_view function, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, function, fmt::format(format, std::forward<Args>(args)...));
}

// What a message is about: the public function, and the part of its arguments, such as "'q.npz': member 'a'".
struct Place {
  std::string function;
  std::string part = {};

  Place in(std::string_view inner) const {
    return {function, part.empty() ? std::string(inner) : fmt::format("{}: {}", part, inner)};
  }
};

// The same, where the detail begins with the place's part.
template <class... Args>
[[noreturn]] void fail(ErrorCode code, const Place& place, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, place.function, place.in(fmt::format(format, std::forward<Args>(args)...)).part);
}

}  // namespace attend::inline v1
