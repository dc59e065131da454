// Where heads stand in the arrays of a call.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <string_view>

namespace attend::python {

enum class Layout : bool { heads_first, heads_last };  // [B,H,T,D], [B,T,H,D]

// "bhtd" or "bthd". Throws ValueError.
inline Layout read_layout(const char* function, std::string_view name) {
  if (name == "bhtd") return Layout::heads_first;
  if (name == "bthd") return Layout::heads_last;
  throw nanobind::value_error(
      (std::string(function) + ": layout: expected 'bhtd' or 'bthd', got '" + std::string(name) + "'").c_str());
}

// [B,H,T,D], as the library has it.
template <class AnyView>
AnyView heads_first(Layout layout, const AnyView& view) {
  return layout == Layout::heads_last && view.rank() >= 3 ? view.transpose(-3, -2) : view;
}

}  // namespace attend::python
