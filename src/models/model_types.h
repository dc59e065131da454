// What there is to know of each type of model before its files are read, a row for each: config.json names it, and
// nothing else lists them (what Transformers' class has for keys that are missing stands in config.cpp).
#pragma once

#include <algorithm>
#include <iterator>
#include <span>
#include <string_view>

#include "attend/model_info.h"

namespace attend::inline v1::models {

struct ModelType {
  std::string_view name;        // model_type of config.json
  ModelFamily family;           // that computes it, and with that whether it encodes, decodes, or both; of t5, both
  std::string_view class_name;  // Transformers', of what is computed here
  const char* prefix;           // of its tensors' names where the file has a task's head too
  std::string_view gguf = {};   // general.architecture of its GGUF files; empty: there are none
  const char* older_prefix = nullptr;  // that files have instead; null: none has another one
};

std::span<const ModelType> model_types();
// Null: it is not known here.
const ModelType* find_model_type(std::string_view name);
// Throws bad_value for one that is not known.
const ModelType& model_type(std::string_view name);

// Throws bad_value: some list has no row for that type.
[[noreturn]] void fail_no_row(std::string_view type);

// Of a list that has a row for each type of a family, that of the name. Throws bad_value where it has none.
template <class Rows>
const auto& row_of_type(const Rows& rows, std::string_view name) {
  const auto found = std::ranges::find_if(rows, [&](const auto& row) { return row.name == name; });
  if (found == std::end(rows)) fail_no_row(name);
  return *found;
}

}  // namespace attend::inline v1::models
