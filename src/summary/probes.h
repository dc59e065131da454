// What a pass over the weights of heads looks for besides what every pass gives, for their scores (head_scores.h).
#pragma once

#include <functional>

#include "summary/summary.h"

namespace attend::inline v1 {

// A key is local that is so many places from the level one, or fewer.
inline constexpr std::int64_t near_keys = 8;

// The weights of each row's probes, and how many keys they count.
struct ProbeTensors {
  Tensor weights, keys, statistics;
  Tensor carried, sizes;  // of problems with key_sizes, likewise
};
// Makes the pass look for it. tokens as head_scores() takes them; throws as it does.
ProbeTensors want_probes(const char* function, SummaryProblem& problem, const std::optional<View>& tokens);

// A weight of one pair: 0 or more, hidden_pair, or NaN where it is not known.
inline constexpr double hidden_pair = -1;
using PairWeight = std::function<double(std::int64_t batch, std::int64_t head, std::int64_t query, std::int64_t key)>;

// The weights of a pass that has run, pair by pair, in double.
PairWeight pair_weights(const SummaryProblem& problem);

}  // namespace attend::inline v1
