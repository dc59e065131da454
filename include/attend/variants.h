// One row of every head over several texts: whether a head does in other texts what it does in one.
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

namespace attend::inline v0 {

// A text and words of it. A word is what stands between marks and blanks; several in a row are also one here. Where it
// stands more than once, the first is meant.
struct ATTEND_API VariantText {
  std::string text = {};
  std::string query = {};               // the word whose row it is; of several tokens the last one's
  std::string target = {}, other = {};  // the claim: it looks at target, and less at other. Empty: none
};

struct ATTEND_API VariantWord {
  std::string word = {};
  Range tokens = {};
};

// Of a text of N tokens.
struct ATTEND_API VariantRow {
  std::string text = {};
  std::vector<std::int64_t> ids = {};
  std::vector<VariantWord> words = {};  // all of the text: no marks, and not what the tokenizer added
  std::int64_t query = 0;               // a token
  std::optional<Range> target = {}, other = {};
  Tensor weights = {};  // [L,H,N], what the query gives to each token
};

struct ATTEND_API Variants {
  std::vector<VariantRow> rows = {};  // of each text
};

// A pass for each text. progress: told the share that is done, on the calling thread; it may throw, and the call ends.
// Throws bad_value for encoder-decoders, for a word that its text does not have, for target and other behind the query
// of a decoder, which does not see them, and for `other` without `target`; bad_file for a model without a tokenizer;
// else as Model::forward().
ATTEND_API Variants vary(const Model& model, std::span<const VariantText> texts,
                         const std::function<void(double)>& progress = {});

// "tired=wide,full": the text, and the text with each of these words in the place of the first one. Throws bad_value
// for another form, and for a word that the text does not have.
ATTEND_API std::vector<std::string> varied_texts(std::string_view text, std::string_view words);

// What the query gives to these tokens in a head. Throws bad_value for a head or tokens that are not there.
ATTEND_API double given(const VariantRow& row, const Head& head, const Range& tokens);
// The word that a head gives most to, but for the query's own; none where it gives to none.
ATTEND_API std::optional<VariantWord> top_word(const VariantRow& row, const Head& head);
// In how many texts the claim holds, [L,H] i64: the head gives target more than other, or without `other` most of all
// words. Without target: most goes to the word of the first text, or where as many words stand in the text, to the one
// in its place.
ATTEND_API Tensor times_held(const Variants& variants);

// What would hold as often without looking: of texts that have target and other.
struct ATTEND_API VariantBaselines {
  std::int64_t first = 0, nearest = 0;  // texts whose target is the one of the two that stands first, or nearest
  std::int64_t chance = 0;              // the best of all heads, if each guessed: the median
};
ATTEND_API VariantBaselines baselines(const Variants& variants);

// texts: {"text", "ids", "words", "query", "target", "other", "weights" [L,H,N]} of each, and "held" [L,H].
ATTEND_API std::string to_json(const Variants& variants, const TensorJson& tensor = {});

}  // namespace attend::inline v0
