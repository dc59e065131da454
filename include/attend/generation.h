// How a text is written: what a caller says to Model::generate(), and what a folder says (ModelInfo::generation).
#pragma once

#ifdef ATTEND_WITHOUT_MODELS
#error "attend was built with ATTEND_MODELS=OFF: it has no generation.h"
#endif

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "attend/api.h"

namespace attend::inline v0 {

// `bias` is added to the logit of the last of these ids where the others end the text; of one id always.
struct ATTEND_API SequenceBias {
  std::vector<std::int64_t> ids;
  double bias = 0;
};

// When a search by beams ends, once it has num_beams texts that have ended.
enum class ATTEND_API EarlyStopping : std::uint8_t {
  no,     // when no beam's score, at the length that it has, is above the worst of theirs
  yes,    // at once
  never,  // when no beam's score can be above the worst of theirs at any length
};

// Each setting has the name and the meaning that it has in generation_config.json. A setting that is not given here is
// as the folder says; where the folder says nothing either, it is what the comment gives as the default.
//
// The logits of the next token pass what stands below temperature, top_k, top_p and min_p, in the order in which it
// stands here. Then the likeliest token is taken, or one is drawn from softmax(logits / temperature), of which top_k,
// top_p and min_p keep a part, in this order. "The text" is the prompt with what was written; of an encoder-decoder it
// is the decoder's text.
struct ATTEND_API GenerationSettings {
  // 0: the likeliest token. Default: 0, or 1 where the folder says do_sample.
  std::optional<double> temperature = {};
  // So many of the likeliest tokens, and those as likely as the last of them; 0: all. Default: 0, or 50 where the
  // folder says do_sample.
  std::optional<std::int64_t> top_k = {};
  // The fewest tokens that have this probability together (Holtzman et al. 2020). Default: 1.
  std::optional<double> top_p = {};
  // Tokens that have at least this share of the likeliest token's probability. Default: 0.
  std::optional<double> min_p = {};
  // Default: none.
  std::optional<std::vector<SequenceBias>> sequence_bias = {};
  // The logit of each token of the text is divided by it, or multiplied where it is negative (Keskar et al. 2019).
  // Default: 1.
  std::optional<double> repetition_penalty = {};
  // So many tokens that follow each other in the text never do so again; 0: they may. Default: 0.
  std::optional<std::int64_t> no_repeat_ngram_size = {};
  // Ids that never follow each other, or of one id, that never comes. What ends a text by itself is left out. Default:
  // none.
  std::optional<std::vector<std::vector<std::int64_t>>> bad_words_ids = {};
  // The text does not end before it has so many tokens, and not before so many are written. Default: 0.
  std::optional<std::int64_t> min_length = {}, min_new_tokens = {};
  // Ids that never come, and that are never the first to be written. Default: none.
  std::optional<std::vector<std::int64_t>> suppress_tokens = {}, begin_suppress_tokens = {};
  // What a text of one token, as an encoder-decoder's start, goes on with, whatever the logits say; -1: nothing.
  // Default: -1.
  std::optional<std::int64_t> forced_bos_token_id = {};
  // What comes last where max_new_tokens are reached, whatever the logits say; -1: nothing. Default: -1.
  std::optional<std::int64_t> forced_eos_token_id = {};
  // The text ends with the token that completes one of these, wherever in a token it begins and ends. The model must
  // have its tokenizer. Default: none.
  std::optional<std::vector<std::string>> stop_strings = {};
  // Beams: so many texts grow at once, those with the largest sums of log probabilities; 1: one does. They are not
  // drawn. Default: 1.
  std::optional<std::int64_t> num_beams = {};
  // A text's score is the sum of its tokens' log probabilities, divided by their count to this power. Default: 1.
  std::optional<double> length_penalty = {};
  // Default: no.
  std::optional<EarlyStopping> early_stopping = {};
  // How many texts Model::generate_sequences() gives; of beams at most num_beams. Default: 1.
  std::optional<std::int64_t> num_return_sequences = {};
};

// One of the texts that follow a prompt.
struct ATTEND_API GeneratedSequence {
  std::vector<std::int64_t> ids;  // without the one that ends them
  std::string text = {};          // where the prompt is a text: what follows it, without a stop string
  double score = 0;               // of beams
};

}  // namespace attend::inline v0
