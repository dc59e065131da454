// Which passages of a text made a model answer so: what each gave to a number, estimated for all of them by one pass
// forward and one back, and measured for the strongest by passes that hide them.
#pragma once

#ifdef ATTEND_WITHOUT_MODELS
#error "attend was built with ATTEND_MODELS=OFF: it has no passages.h"
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
#include "attend/gradient.h"
#include "attend/tensor.h"
#include "attend/tokenizer.h"

namespace attend::inline v0 {

struct ATTEND_API PassagesOptions {
  // The number: a logit, log-probabilities or a cosine, with types, decoder_ids, edits and memory. observe is not
  // taken.
  GradientOptions number = {};
  // Tokens of ids that are a passage each; passages may overlap. Of an encoder-decoder ids are the encoder's text.
  std::vector<Range> spans = {};
  // How many of them are really hidden, those with the largest estimates of either sign.
  std::int64_t hide = 5;
  std::function<void(double)> progress = {};  // told the share that is done, from 0 to 1; may throw
};

// What a passage gave is the number less what the number is without the passage: positive is for the answer. Without it
// no row after it sees its keys, in any layer and head, and all positions stay (Knockout). Of encoders no row outside
// of it does, of encoder-decoders no row of the decoder either.
//
// The estimate is the derivative of the number by how much those rows see of the passage: with its weights times s, in
// every attention before they are normalised, d number / ds at s = 1. A softmax without the passage is far from there,
// and so may the estimate be from the fact.
struct ATTEND_API Passages {
  double value = 0;                                      // the number
  std::vector<Range> spans = {};                         // as given
  Tensor estimated;                                      // [S]: what each gave, by the estimate
  std::vector<std::int64_t> hidden = {};                 // which were hidden, by falling magnitude of their estimates
  Tensor measured;                                       // [hidden]: what these gave
  std::optional<std::int64_t> token = {}, against = {};  // of a logit: which it was
  std::int64_t position = 0;                             // of a logit or log-probabilities, from 0
};

// Throws bad_value for what gradient() refuses, GradientOf::sum, no spans, spans that are empty or outside the text,
// and hide below 0; more than there are hides all.
ATTEND_API Passages passages(const Model& model, std::span<const std::int64_t> ids, const PassagesOptions& options);
ATTEND_API std::string to_json(const Passages& passages, const TensorJson& tensor = {});

enum class ATTEND_API PassageBy : std::uint8_t {
  paragraph,  // which lines with nothing but blanks part
  line,       // lines of blanks are of none
};
// The tokens of a text's passages. A token that two of them share is the first's.
ATTEND_API std::vector<Range> passages_of(std::string_view text, const Encoding& encoding, PassageBy by);

}  // namespace attend::inline v0
