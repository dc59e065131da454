// A file of JSON, whole. Apart from json_member.h, since nlohmann-json costs whoever includes it.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "io/json_member.h"

namespace attend::inline v1 {

struct JsonFile {
  Member root() const { return {place, value}; }
  // Throws bad_file for anything but an object.
  Member object() const {
    if (!value.is_object()) root().refuse("an object");
    return root();
  }

  Place place;
  nlohmann::json value;
};

// Throws bad_file. `function` is the public function that messages begin with.
JsonFile read_json(std::string_view function, const std::filesystem::path& path);

}  // namespace attend::inline v1
