// "Did you mean": the known word nearest to a mistyped one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace attend::cli {

// The Damerau-Levenshtein distance in UTF-8 code points: insertions, deletions, substitutions and swaps of neighbours.
// (Of the two variants, optimal string alignment: no character is edited twice.) A byte that is not UTF-8 counts as one
// code point.
int edit_distance(std::string_view a, std::string_view b);

// "; did you mean 'X'?" for the nearest candidate that is near enough to be meant; else "".
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace attend::cli
