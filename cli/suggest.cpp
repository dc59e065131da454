#include "cli/suggest.h"

#include <algorithm>

namespace attend::cli {
namespace {

// A command line may hold any bytes, so this neither fails nor checks: a continuation byte joins the character before.
std::vector<std::string_view> characters(std::string_view text) {
  std::vector<std::string_view> result;
  std::size_t start = 0;
  for (std::size_t i = 1; i <= text.size(); ++i) {
    const bool continuation = i < text.size() && (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80;
    if (continuation && i - start < 4) continue;
    result.push_back(text.substr(start, i - start));
    start = i;
  }
  return result;
}

// One edit for each three characters: a swap in "rnu" is a slip, but "cat" does not mean "dog".
int threshold(std::string_view word) {
  return std::clamp(static_cast<int>(characters(word).size()) / 3, 1, 3);
}

}  // namespace

int edit_distance(std::string_view a, std::string_view b) {
  const std::vector<std::string_view> x = characters(a);
  const std::vector<std::string_view> y = characters(b);
  std::vector<std::vector<int>> distance(x.size() + 1, std::vector<int>(y.size() + 1));
  for (std::size_t i = 0; i <= x.size(); ++i) {
    for (std::size_t j = 0; j <= y.size(); ++j) {
      if (i == 0 || j == 0) {
        distance[i][j] = static_cast<int>(i + j);
        continue;
      }
      const int substitution = distance[i - 1][j - 1] + (x[i - 1] == y[j - 1] ? 0 : 1);
      distance[i][j] = std::min({distance[i - 1][j] + 1, distance[i][j - 1] + 1, substitution});
      const bool swapped = i > 1 && j > 1 && x[i - 1] == y[j - 2] && x[i - 2] == y[j - 1];
      if (swapped) distance[i][j] = std::min(distance[i][j], distance[i - 2][j - 2] + 1);
    }
  }
  return distance[x.size()][y.size()];
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string* nearest = nullptr;
  int nearest_distance = threshold(word) + 1;
  for (const std::string& candidate : candidates) {
    // The distance is at least the difference in length, and a long word would cost a large table.
    const std::size_t longer = std::max(word.size(), candidate.size());
    if (longer > 200) continue;
    const int distance = edit_distance(word, candidate);
    if (distance < nearest_distance && distance < static_cast<int>(longer)) {
      nearest = &candidate;
      nearest_distance = distance;
    }
  }
  return nearest == nullptr ? "" : "; did you mean '" + *nearest + "'?";
}

}  // namespace attend::cli
