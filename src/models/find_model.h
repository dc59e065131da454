// Where a model lies that is opened by name.
#pragma once

#include <filesystem>
#include <string_view>

#include "attend/models.h"

namespace attend::inline v1::models {

// find_model(), whose messages begin with `function`.
std::filesystem::path find(std::string_view function, const std::filesystem::path& path);

}  // namespace attend::inline v1::models
