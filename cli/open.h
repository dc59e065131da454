// A page in the user's browser.
#pragma once

#include <string>

namespace attend::cli {

// A file of that name in the user's cache folder, whose folders are made. Throws Failure.
std::string cache_file(const std::string& name);

// Opens the file with what $BROWSER names, or as the desktop does, and goes on. Tells where nothing does.
void open_in_browser(const std::string& path);

}  // namespace attend::cli
