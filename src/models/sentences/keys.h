// Keys of a sentence folder's JSON files, which may be missing or null, or have one value that is known here.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "io/json_file.h"

namespace attend::inline v1::models {

// use(the file's JSON); nothing where there is no such file.
template <class Use>
bool read_if_there(std::string_view function, const std::filesystem::path& path, Use use) {
  if (!is_there(path)) return false;
  const JsonFile file = read_json(function, path);
  use(file.object());
  return true;
}

[[noreturn]] inline void refuse_value(const Member& of, std::string_view known) {
  const std::string shown = of.value().dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  fail_at(of.place(), "{} is not known here; {}", quote(shown), known);
}

// A key that may be missing or null.
template <class T, class Read>
T value_or(const Member& from, const char* key, T otherwise, Read read) {
  return from.given(key) ? read(from[key]) : otherwise;
}
inline bool truth_or(const Member& from, const char* key, bool otherwise) {
  return value_or(from, key, otherwise, [](const Member& of) { return of.truth(); });
}
inline std::string text_or(const Member& from, const char* key, const std::string& otherwise) {
  return value_or(from, key, otherwise, [](const Member& of) { return of.text(); });
}

inline void only_value(const Member& from, const char* key, const char* value) {
  if (text_or(from, key, value) != value) refuse_value(from[key], fmt::format("{} is", quote(value)));
}

}  // namespace attend::inline v1::models
