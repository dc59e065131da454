// The user's cache folder, and a page in the user's browser.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace attend::cli {

// attend's folder in the user's cache, which need not exist; none where the environment does not say where that is.
std::optional<std::filesystem::path> cache_folder();
// A file of that name in it; folders are made. Throws Failure.
std::string cache_file(const std::string& name);

// Opens the file with what $BROWSER names, or as the desktop does, and goes on. Tells where nothing does.
void open_in_browser(const std::string& path);

}  // namespace attend::cli
