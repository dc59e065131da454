// Texts that functions of Python are given, and what stands in them.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "call.h"

namespace attend::python {

namespace nb = nanobind;

// Each throws TypeError, naming the function and the place, for what is none. A text is a str, of Unicode.
std::string read_text(const char* function, const std::string& place, nb::handle given);
// A list, a tuple or what else can be gone through once, but for what has no order.
nb::list read_all(const char* function, const std::string& name, nb::handle given, const char* expected);
std::vector<std::string> read_list_of_texts(const char* function, const std::string& name, nb::handle given);
// And whether it was a text by itself.
std::pair<std::vector<std::string>, bool> read_text_or_texts(const char* function, const std::string& name,
                                                             nb::handle given);

nb::str text_object(std::string_view text);
// How many characters, as Python's str counts them.
std::int64_t characters(std::string_view text);

}  // namespace attend::python
