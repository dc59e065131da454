// std::bit_cast, which the C++ library of Debian's emscripten lacks.
#pragma once

namespace attend::inline v1 {

template <class To, class From>
constexpr To bit_cast(const From& from) {
  return __builtin_bit_cast(To, from);
}

}  // namespace attend::inline v1
