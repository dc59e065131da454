// How good translations are.
#pragma once

#include <span>
#include <string>

namespace translate {

// The share of translations that equal their reference, in percent.
double exact_match(std::span<const std::string> translations, std::span<const std::string> references);

// chrF2 of the whole set, in percent (Popovic 2015): the F-score, recall counting twice, of runs of 1 to 6 characters
// without blanks, as sacreBLEU 2 computes it with its defaults.
double chrf(std::span<const std::string> translations, std::span<const std::string> references);

}  // namespace translate
