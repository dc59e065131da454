// How text is generated: settings for Model::generate(), also as the folder gives them (ModelInfo::generation).
#pragma once

#ifdef ATTEND_WITHOUT_MODELS
#error "attend was built with ATTEND_MODELS=OFF: it has no generation.h"
#endif

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "attend/api.h"

namespace attend::inline v1 {

// Adds `bias` to the logit of the last id when the text ends with the ids before it. A single id always gets it.
struct ATTEND_API SequenceBias {
  std::vector<std::int64_t> ids;
  double bias = 0;
};

// When beam search stops, once num_beams texts have ended.
enum class ATTEND_API EarlyStopping : std::uint8_t {
  no,     // when no beam's current score beats the worst ended text
  yes,    // at once
  never,  // when no beam's score could beat the worst ended text at any length
};

// Names and meanings are those of generation_config.json. A setting left empty takes the folder's value, or else the
// default named here.
//
// Settings other than temperature, top_k, top_p and min_p change the logits first, in the order below. Then temperature
// 0 takes the likeliest token. Any other temperature draws from softmax(logits / temperature), cut by top_k, top_p and
// min_p in that order. "The text" is the prompt and what was generated; for an encoder-decoder it is the decoder's
// text.
struct ATTEND_API GenerationSettings {
  // 0: the likeliest token. Default: 0, or 1 if the folder says do_sample.
  std::optional<double> temperature = {};
  // Keep this many of the likeliest tokens, and ties with the last; 0: all. Default: 0, or 50 with do_sample.
  std::optional<std::int64_t> top_k = {};
  // Keep the fewest tokens whose probabilities reach this sum (Holtzman et al. 2020). Default: 1.
  std::optional<double> top_p = {};
  // Keep tokens with at least this share of the likeliest token's probability. Default: 0.
  std::optional<double> min_p = {};
  // Default: none.
  std::optional<std::vector<SequenceBias>> sequence_bias = {};
  // Divides the logit of each token already in the text, or multiplies it if negative (Keskar et al. 2019). Default: 1.
  std::optional<double> repetition_penalty = {};
  // No sequence of this many tokens occurs twice in the text; 0: no limit. Default: 0.
  std::optional<std::int64_t> no_repeat_ngram_size = {};
  // Sequences of ids that never occur. A single id that ends a text is ignored. Default: none.
  std::optional<std::vector<std::vector<std::int64_t>>> bad_words_ids = {};
  // Least length of the whole text, and of the generated part, in tokens. Default: 0.
  std::optional<std::int64_t> min_length = {}, min_new_tokens = {};
  // Ids that never occur, and ids that are never generated first. Default: none.
  std::optional<std::vector<std::int64_t>> suppress_tokens = {}, begin_suppress_tokens = {};
  // The token that follows a text of one token (an encoder-decoder's start); -1: none. Default: -1.
  std::optional<std::int64_t> forced_bos_token_id = {};
  // The last token when max_new_tokens is reached; -1: none. Default: -1.
  std::optional<std::int64_t> forced_eos_token_id = {};
  // The text ends with the token that completes one of these, also in the middle of a token. Needs the model's
  // tokenizer. Default: none.
  std::optional<std::vector<std::string>> stop_strings = {};
  // Beam search keeps this many texts with the largest sums of log probabilities; it does not sample. 1: no beams.
  // Default: 1.
  std::optional<std::int64_t> num_beams = {};
  // A text's score is the sum of its log probabilities divided by its token count to this power. Default: 1.
  std::optional<double> length_penalty = {};
  // Default: no.
  std::optional<EarlyStopping> early_stopping = {};
  // How many texts Model::generate_sequences() gives; with beams at most num_beams. Default: 1.
  std::optional<std::int64_t> num_return_sequences = {};
};

// One generated text.
struct ATTEND_API GeneratedSequence {
  std::vector<std::int64_t> ids;  // without the id that ended it
  std::string text = {};          // for a text prompt: what follows it, without the stop string
  double score = 0;               // with beams
};

}  // namespace attend::inline v1
