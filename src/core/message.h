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

namespace attend {

// fail(ErrorCode::bad_shape, "attention: k has head size {}, q has {}", ...)
template <class... Args>
[[noreturn]] void fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace attend
