// The settings that a text is written by: those of the caller, of the folder, or the defaults.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attend/generation.h"

namespace attend::inline v1::models {

// GenerationSettings with what each is where nobody says it.
struct Settings {
  double temperature = 0, top_p = 1, min_p = 0, repetition_penalty = 1;
  std::int64_t top_k = 0, no_repeat_ngram_size = 0, min_length = 0, min_new_tokens = 0;
  std::int64_t forced_bos_token_id = -1, forced_eos_token_id = -1;
  std::vector<SequenceBias> sequence_bias = {};
  std::vector<std::vector<std::int64_t>> bad_words_ids = {};
  std::vector<std::int64_t> suppress_tokens = {}, begin_suppress_tokens = {};
  std::vector<std::string> stop_strings = {};
  std::int64_t num_beams = 1, num_return_sequences = 1;
  double length_penalty = 1;
  EarlyStopping early_stopping = EarlyStopping::no;
};

// Throws bad_value, which names the setting and its range, for what is out of it: an id is below `vocabulary`.
void check_settings(const GenerationSettings& settings, std::int64_t vocabulary);

// Both were checked. Throws bad_value for more sequences than beams, and where the caller wants beams that are drawn.
Settings settle(const GenerationSettings& caller, const GenerationSettings& folder);

}  // namespace attend::inline v1::models
