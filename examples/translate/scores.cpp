#include "scores.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>

#include "unicode.h"

namespace translate {
namespace {

constexpr std::size_t longest_run = 6;

// Runs of one length, and how often they stand in a text.
using Runs = std::map<std::u32string_view, std::int64_t>;

Runs runs_of(std::u32string_view text, std::size_t length) {
  Runs runs;
  for (std::size_t at = 0; at + length <= text.size(); ++at) ++runs[text.substr(at, length)];
  return runs;
}

std::int64_t total(const Runs& runs) {
  std::int64_t sum = 0;
  for (const auto& [run, count] : runs) sum += count;
  return sum;
}

struct Counts {
  std::int64_t translated = 0, reference = 0, common = 0;

  void add(const Runs& translation, const Runs& truth) {
    if (!truth.empty()) translated += total(translation);  // sacreBLEU: no reference is no fault of the translation
    reference += total(truth);
    for (const auto& [run, count] : translation)
      if (const auto found = truth.find(run); found != truth.end()) common += std::min(count, found->second);
  }
};

std::u32string without_blanks(std::string_view text) {
  std::u32string points = code_points(text);
  std::erase_if(points, [](char32_t point) { return point == ' ' || point == U'\u00A0'; });
  return points;
}

}  // namespace

double exact_match(std::span<const std::string> translations, std::span<const std::string> references) {
  std::size_t equal = 0;
  for (std::size_t i = 0; i < references.size(); ++i) {
    if (translations[i] == references[i]) ++equal;
  }
  return 100 * static_cast<double>(equal) / static_cast<double>(references.size());
}

double chrf(std::span<const std::string> translations, std::span<const std::string> references) {
  std::array<Counts, longest_run> counts{};
  for (std::size_t i = 0; i < references.size(); ++i) {
    const std::u32string translation = without_blanks(translations[i]), truth = without_blanks(references[i]);
    for (std::size_t n = 0; n < longest_run; ++n) counts[n].add(runs_of(translation, n + 1), runs_of(truth, n + 1));
  }
  double precision = 0, recall = 0, orders = 0;
  for (const Counts& count : counts) {
    if (count.translated == 0 || count.reference == 0) continue;
    precision += static_cast<double>(count.common) / static_cast<double>(count.translated);
    recall += static_cast<double>(count.common) / static_cast<double>(count.reference);
    ++orders;
  }
  if (precision + recall == 0) return 0;
  precision /= orders;
  recall /= orders;
  constexpr double beta_squared = 4;
  return 100 * (1 + beta_squared) * precision * recall / (beta_squared * precision + recall);
}

}  // namespace translate
