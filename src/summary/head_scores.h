// From what passes over the weights of a head found to its scores.
#pragma once

#include <vector>

#include "summary/probes.h"

namespace attend::inline v1 {

// Of all rows and keys, of one pass or of several over rows that follow each other; f32 or f64, but for top_keys.
struct HeadSums {
  View seen, entropy, distance;      // [B,H,Tq]; seen: 1 / how many keys; distance also where there is none
  View received, seen_by, uniform;   // [B,H,Tk]
  View top_keys, top_weights;        // [B,H,Tq,top], top >= 1
  View probe_weights, probe_keys;    // [B,H,Tq,kinds]; with has_distance
  std::optional<View> sink_weights;  // [B,H,Tq] what the option `sinks` takes
  bool has_distance = false;
  std::vector<std::int64_t> levels;  // [B]: the key that row 0 is level with; with has_distance
  std::optional<View> tokens;        // i64 [Tk] or [B,Tk], where they are known; with has_distance
  // Scores are by norm then: [B,H,Tk]; the probes of what is carried [B,H,Tq,kinds], with has_distance.
  std::optional<View> key_sizes = {};
  View probe_carried = {}, probe_sizes = {};
};

// The key of each item and head [B * H] that could be its sink; -1: none.
std::vector<std::int64_t> sink_keys(const HeadSums& sums);

// `weight` is asked for pairs that are not among their row's top keys.
std::vector<HeadScores> scores_of(const HeadSums& sums, const PairWeight& weight);

// As numbers, NaN for what is not known: a recording keeps them. Of a layer of so many keys.
inline constexpr std::int64_t score_count = 26;
void write_scores(const HeadScores& scores, double* to);
HeadScores read_scores(const double* from, std::int64_t keys);

}  // namespace attend::inline v1
