// From what passes over the weights of a head found to its scores.
#pragma once

#include <vector>

#include "attention/summary.h"

namespace attend {

// Of all rows and keys, of one pass or of several over rows that follow each other; f32 or f64, but for top_keys.
struct HeadSums {
  View seen, entropy, distance;         // [B,H,Tq]; distance also where there is none
  View received, seen_by;               // [B,H,Tk]
  View top_keys, top_weights;           // [B,H,Tq,top], top >= 1
  std::vector<kernels::Probes> probes;  // [B * H]
  std::vector<double> with_previous;    // [B * H]: rows that see a key, and before whose level one there is one
  bool has_distance = false, has_tokens = false;
};

// Makes the pass look for what scores need besides its views: sums of probes, in `found`. tokens as head_scores() takes
// them; throws as it does.
void want_probes(const char* function, SummaryProblem& problem, const std::optional<View>& tokens);

// HeadSums::with_previous of one pass; seen as in SummaryViews.
std::vector<double> rows_with_previous(const SummaryProblem& problem, const View& seen);

// The kind of a head with these scores.
std::string_view kind_of(const HeadScores& scores);

std::vector<HeadScores> scores_of(const HeadSums& sums);

}  // namespace attend
