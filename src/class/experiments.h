// The guided experiments: what each computes. The words are the page's (page/src/class/).
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "attend/models.h"
#include "attend/recording.h"

namespace attend::inline v1 {

struct Experiment {
  std::string id;                           // "paris": the name of its page
  nlohmann::ordered_json numbers;           // what its page shows
  std::string place = {};                   // what of the explorer or lesson it opens: the page's hash
  std::optional<Recording> recording = {};  // of a pass that is looked into; none: it opens a page that computes
  std::string_view opens = "minilm";        // without a recording: "minilm" or "lesson"
  bool decoder = false;                     // of SmolLM2, whose own page it goes on with
};

// Without head 23.4 of SmolLM2 "Paris" is no longer likely after "The capital of France is".
Experiment paris_experiment(const Model& smollm2);
// A name that nobody has heard goes on as it did before.
Experiment induction_experiment(const Model& smollm2);
// Most of the attention goes to the first token, which holds next to nothing.
Experiment sink_experiment(const Model& smollm2);
// What "it" looks at in MiniLM's head 3.1 when the sentence changes.
Experiment tired_experiment(const Model& minilm);
// A row sums to 1: what a second head is for.
Experiment two_heads_experiment(const Model& minilm);
// A causal mask hides keys, and the others share what these had.
Experiment mask_experiment();
// Without the division by the square root of d_k, long queries look at one key alone.
Experiment root_experiment();
// Which English word a translator reads when it writes an Italian one.
Experiment translation_experiment();

}  // namespace attend::inline v1
