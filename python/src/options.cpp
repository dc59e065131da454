#include "options.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace attend::python {

namespace {

[[noreturn]] void refuse(const char* function, const std::string& name, const char* expected, nb::handle value) {
  throw nb::type_error((std::string(function) + ": " + name + ": expected " + expected + ", got " +
                        nb::cast<std::string>(nb::repr(value)))
                           .c_str());
}

template <class T>
T expect(const char* function, const std::string& name, const char* expected, nb::handle value) {
  T result{};
  if (!nb::try_cast(value, result)) refuse(function, name, expected, value);
  return result;
}

Window read_window(const char* function, nb::handle value) {
  constexpr const char* expected = "(left, right), each a whole number, or -1 or None for open";
  if (!nb::isinstance<nb::sequence>(value) || nb::len(value) != 2) refuse(function, "window", expected, value);
  const auto side = [&](int index) {
    const nb::object given = value[index];
    return given.is_none() ? -1 : expect<std::int64_t>(function, "window", expected, given);
  };
  return {side(0), side(1)};
}

Offset read_offset(const char* function, nb::handle value) {
  constexpr const char* expected = "'top_left', 'bottom_right', a whole number or None";
  if (!nb::isinstance<nb::str>(value)) return Offset(expect<std::int64_t>(function, "offset", expected, value));
  const auto name = nb::cast<std::string>(value);
  if (name == "top_left") return Offset::top_left();
  if (name == "bottom_right") return Offset::bottom_right();
  throw nb::value_error((std::string(function) + ": offset: expected " + expected + ", got '" + name + "'").c_str());
}

Dropout read_dropout(const char* function, nb::handle value) {
  constexpr const char* expected = "(p, seed), a number and a whole number of 0 or more";
  if (!nb::isinstance<nb::sequence>(value) || nb::len(value) != 2) refuse(function, "dropout", expected, value);
  const nb::object p = value[0], seed = value[1];
  return {expect<double>(function, "dropout", expected, p), expect<std::uint64_t>(function, "dropout", expected, seed)};
}

}  // namespace

Options::Options(const char* function, const nb::kwargs& keywords) : function_(function) {
  constexpr std::array<std::string_view, 11> names{"causal",  "window",       "offset",     "mask",
                                                   "bias",    "sinks",        "softcap",    "scale",
                                                   "dropout", "alibi_slopes", "key_lengths"};
  for (const auto& [key, value] : keywords) {
    const auto name = nb::cast<std::string>(key);
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      throw nb::type_error((std::string(function_) + "() got an unexpected keyword argument '" + name + "'").c_str());
    }
    if (!value.is_none()) read(name, value);
  }
}

void Options::read(const std::string& name, nb::handle value) {
  if (name == "causal") {
    options_.causal = expect<bool>(function_, name, "True or False", value);
  } else if (name == "window") {
    options_.window = read_window(function_, value);
  } else if (name == "offset") {
    options_.offset = read_offset(function_, value);
  } else if (name == "mask") {
    read_array("mask", value, options_.mask, mask_);
  } else if (name == "bias") {
    read_array("bias", value, options_.bias, bias_);
  } else if (name == "alibi_slopes") {
    read_array("alibi_slopes", value, options_.alibi_slopes, alibi_slopes_);
  } else if (name == "sinks") {
    read_array("sinks", value, options_.sinks, sinks_);
  } else if (name == "softcap") {
    options_.softcap = expect<double>(function_, name, "a number", value);
  } else if (name == "scale") {
    options_.scale = expect<double>(function_, name, "a number", value);
  } else if (name == "dropout") {
    options_.dropout = read_dropout(function_, value);
  } else {
    key_lengths_ = read_integers(function_, "key_lengths", value);
    options_.key_lengths = key_lengths_.view();
  }
}

void Options::read_array(const char* name, nb::handle value, std::optional<View>& option, std::optional<Array>& array) {
  array.emplace(function_, name, value);
  option = array->view();
}

void Options::set_starts(nb::handle query_starts, nb::handle key_starts) {
  query_starts_ = read_integers(function_, "cu_seqlens_q", query_starts);
  key_starts_ = read_integers(function_, "cu_seqlens_k", key_starts);
  options_.query_starts = query_starts_.view();
  options_.key_starts = key_starts_.view();
}

}  // namespace attend::python
