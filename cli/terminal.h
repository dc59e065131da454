// What the terminal can show.
#pragma once

#include <string>

namespace attend::cli {

// `when` is auto, always or never. auto: standard output is a terminal that is not dumb, and NO_COLOR is unset or
// empty (no-color.org).
bool use_colour(const std::string& when);

// Columns of the terminal on standard output, else COLUMNS, else 80.
int terminal_width();

}  // namespace attend::cli
