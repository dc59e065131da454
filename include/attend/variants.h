// One row of every head over several texts: does a head do in other texts what it does in one?
#pragma once

#ifdef ATTEND_WITHOUT_MODELS
#error "attend was built with ATTEND_MODELS=OFF: it has no variants.h"
#endif

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attend/analysis.h"
#include "attend/api.h"
#include "attend/models.h"
#include "attend/tensor.h"

namespace attend::inline v1 {

// A text and words in it. A word is what stands between punctuation and blanks; several in a row also count as one. The
// first occurrence is meant.
struct ATTEND_API VariantText {
  std::string text = {};
  std::string query = {};               // the word whose row is read; for several tokens the last
  std::string target = {}, other = {};  // the claim: the head looks at target, and less at other; empty: none
};

struct ATTEND_API VariantWord {
  std::string word = {};
  Range tokens = {};
};

// For a text of N tokens.
struct ATTEND_API VariantRow {
  std::string text = {};
  std::vector<std::int64_t> ids = {};
  std::vector<VariantWord> words = {};  // all words: no punctuation, no added tokens
  std::int64_t query = 0;               // a token
  std::optional<Range> target = {}, other = {};
  Tensor weights = {};  // [L,H,N]: weights from the query to each token
};

struct ATTEND_API Variants {
  std::vector<VariantRow> rows = {};  // one for each text
};

// Runs a pass for each text. progress: called with the share done, on the calling thread; if it throws, the call ends.
// Throws bad_value for encoder-decoders, a word missing from its text, a target or other after a decoder's query, and
// `other` without `target`; bad_file without a tokenizer; else as Model::forward().
ATTEND_API Variants vary(const Model& model, std::span<const VariantText> texts,
                         const std::function<void(double)>& progress = {});

// For "tired=wide,full": the text, then with its first "tired" replaced by each of these words. Throws bad_value for
// another form, and a word missing from the text.
ATTEND_API std::vector<std::string> varied_texts(std::string_view text, std::string_view words);

// A head's weight from the query to these tokens. Throws bad_value for a head or tokens that do not exist.
ATTEND_API double given(const VariantRow& row, const Head& head, const Range& tokens);
// The word with a head's largest weight, except the query's own; none if there is none.
ATTEND_API std::optional<VariantWord> top_word(const VariantRow& row, const Head& head);
// In how many texts the claim holds, [L,H] i64: target gets more than other, or without `other` the most of all words.
// Without target: the same word gets most as in the first text, or, if all texts have as many words, the word in its
// place.
ATTEND_API Tensor times_held(const Variants& variants);

// How often the claim would hold by chance, over texts with target and other.
struct ATTEND_API VariantBaselines {
  std::int64_t first = 0, nearest = 0;  // texts whose target is the first of the two, or the nearest
  std::int64_t chance = 0;              // the best of all heads if each guessed: the median
};
ATTEND_API VariantBaselines baselines(const Variants& variants);

// texts: {"text", "ids", "words", "query", "target", "other", "weights" [L,H,N]} each, and "held" [L,H].
ATTEND_API std::string to_json(const Variants& variants, const TensorJson& tensor = {});

}  // namespace attend::inline v1
