// Experiments on the lesson, whose weights are random: what holds of attention whatever was learned.
#include <array>
#include <cmath>

#include "attend/explain.h"
#include "class/experiments.h"
#include "class/measures.h"

namespace attend::inline v1 {

namespace {

using nlohmann::ordered_json;

constexpr const char* mask_text = "the cat sat on the mat";
constexpr std::int64_t mask_query = 2;

constexpr const char* root_text = "the animal did not cross the street because it was too tired";
constexpr std::array<std::int64_t, 3> sizes = {24, 96, 384};
constexpr std::uint64_t seeds = 8;

// Of scores that are independent and 0 in the mean, as those of linear weights are.
Trace drawn(std::int64_t size, bool scale, std::uint64_t seed) {
  return explain({.text = root_text, .seed = seed, .d_k = size, .weights = WeightInit::linear, .scale = scale});
}

double mean_of_largest(const Tensor& weights) {
  double sum = 0;
  for (std::int64_t row = 0; row < weights.size(0); ++row) sum += *std::ranges::max_element(weights.row<float>({row}));
  return sum / static_cast<double>(weights.size(0));
}

}  // namespace

Experiment mask_experiment() {
  const Trace all = explain({.text = mask_text}), causal = explain({.text = mask_text, .causal = true});
  ordered_json numbers = {{"text", mask_text},
                          {"tokens", all.tokens},
                          {"query", mask_query},
                          {"weights", rounded(all.weights.view().select(0, mask_query))},
                          {"causal", rounded(causal.weights.view().select(0, mask_query))}};
  return {
      .id = "mask",
      .numbers = std::move(numbers),
      .place = place_of(
          {{"text", mask_text}, {"causal", "true"}, {"step", "picture"}, {"query", std::to_string(mask_query + 1)}}),
      .opens = "lesson"};
}

Experiment root_experiment() {
  ordered_json list = ordered_json::array();
  for (const std::int64_t size : sizes) {
    std::vector<double> spreads, without, with;
    for (std::uint64_t seed = 0; seed < seeds; ++seed) {
      const Trace raw = drawn(size, false, seed);
      spreads.push_back(deviation(std::span(raw.scores.data<float>(), static_cast<std::size_t>(raw.scores.count()))));
      without.push_back(mean_of_largest(raw.weights));
      with.push_back(mean_of_largest(drawn(size, true, seed).weights));
    }
    list.push_back({{"size", size},
                    {"spread", to_digits(median(spreads))},
                    {"without", to_digits(median(without))},
                    {"with", to_digits(median(with))}});
  }
  ordered_json numbers = {{"text", root_text}, {"seeds", seeds}, {"sizes", std::move(list)}};
  return {.id = "root",
          .numbers = std::move(numbers),
          .place = place_of({{"text", root_text}, {"d_k", "384"}, {"scale", "false"}, {"step", "scale"}}),
          .opens = "lesson"};
}

}  // namespace attend::inline v1
