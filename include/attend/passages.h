// Which passages of a text caused an answer: each one's effect on a number, estimated for all by one pass forward and
// one back, and measured for the strongest by hiding them.
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

namespace attend::inline v1 {

struct ATTEND_API PassagesOptions {
  // The number: a logit, log probabilities or a cosine, with types, decoder_ids, edits and memory. observe is refused.
  GradientOptions number = {};
  // Tokens of each passage; passages may overlap. For an encoder-decoder ids are the encoder's text.
  std::vector<Range> spans = {};
  // How many to hide, by largest magnitude of the estimate.
  std::int64_t hide = 5;
  std::function<void(double)> progress = {};  // called with the share done, 0 to 1; may throw
};

// A passage's effect is the number minus the number without the passage; positive supports the answer. Without it, no
// later row sees its keys in any layer and head, and positions stay (Knockout). In encoders no row outside it sees
// them, in encoder-decoders no decoder row either.
//
// The estimate is d number / ds at s = 1, where the passage's weights are multiplied by s in every attention before
// normalisation. Removing the passage is s = 0, so an estimate can be far off.
struct ATTEND_API Passages {
  double value = 0;                                      // the number
  std::vector<Range> spans = {};                         // as given
  Tensor estimated;                                      // [S]: estimated effects
  std::vector<std::int64_t> hidden = {};                 // which were hidden, by descending magnitude of the estimate
  Tensor measured;                                       // [hidden]: their measured effects
  std::optional<std::int64_t> token = {}, against = {};  // logit: which one
  std::int64_t position = 0;                             // logit, log probabilities: from 0
};

// Throws bad_value for what gradient() refuses, GradientOf::sum, no spans, spans that are empty or outside the text,
// and a negative hide. A hide above the number of spans hides all.
ATTEND_API Passages passages(const Model& model, std::span<const std::int64_t> ids, const PassagesOptions& options);
ATTEND_API std::string to_json(const Passages& passages, const TensorJson& tensor = {});

enum class ATTEND_API PassageBy : std::uint8_t {
  paragraph,  // separated by blank lines
  line,       // blank lines belong to none
};
// The tokens of each passage. A token shared by two belongs to the first.
ATTEND_API std::vector<Range> passages_of(std::string_view text, const Encoding& encoding, PassageBy by);

}  // namespace attend::inline v1
