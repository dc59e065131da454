#include "texts.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <optional>

#include "model.h"
#include "text.h"

namespace attend::python {

std::string read_text(const char* function, const std::string& place, nb::handle given) {
  std::string text;
  if (nb::isinstance<nb::str>(given) && nb::try_cast(given, text)) return text;
  refuse(function, place, "a text (str, of Unicode)", given);
}

nb::list read_all(const char* function, const std::string& name, nb::handle given, const char* expected) {
  if (nb::isinstance<nb::str>(given) || nb::isinstance<nb::bytes>(given) || PyAnySet_Check(given.ptr()) ||
      nb::isinstance<nb::dict>(given) || !nb::hasattr(given, "__iter__"))
    refuse(function, name, expected, given);
  return nb::list(given);
}

std::vector<std::string> read_list_of_texts(const char* function, const std::string& name, nb::handle given) {
  std::vector<std::string> texts;
  for (const nb::handle each : read_all(function, name, given, "a list of texts (str)"))
    texts.push_back(read_text(function, name + "[" + std::to_string(texts.size()) + "]", each));
  return texts;
}

std::pair<std::vector<std::string>, bool> read_text_or_texts(const char* function, const std::string& name,
                                                             nb::handle given) {
  if (nb::isinstance<nb::str>(given)) return {{read_text(function, name, given)}, true};
  return {read_list_of_texts(function, name, given), false};
}

nb::str text_object(std::string_view text) {
  return nb::str(text.data(), text.size());
}

std::int64_t characters(std::string_view text) {
  return std::ranges::count_if(text, [](char byte) { return (static_cast<unsigned char>(byte) & 0xc0) != 0x80; });
}

}  // namespace attend::python
