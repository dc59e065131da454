// Which tokens of a text a number of the model's comes from: the gradient by their embeddings, taken together along a
// path from a baseline to the text (integrated gradients), or at the text alone.
#pragma once

#ifdef ATTEND_WITHOUT_MODELS
#error "attend was built with ATTEND_MODELS=OFF: it has no saliency.h"
#endif

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "attend/analysis.h"
#include "attend/api.h"
#include "attend/gradient.h"
#include "attend/tensor.h"

namespace attend::inline v0 {

enum class ATTEND_API SaliencyMethod : std::uint8_t {
  integrated,  // (e - b) . mean over the path of df/de, e the token's embedding, b the baseline (Sundararajan et al.
               // 2017)
  input,       // e . df/de at the text: "gradient times input"
};

struct ATTEND_API SaliencyOptions {
  // Whose gradient: of a logit, log-probabilities, a label's logit or a cosine, with types and decoder_ids. observe,
  // edits and memory are not taken.
  GradientOptions number = {};
  SaliencyMethod method = SaliencyMethod::integrated;
  // Of integrated: an embedding [input_size] for every token; none: the mean over the table.
  OptionalView baseline = {};
  // In place of it: the embedding of that token, of an encoder-decoder in each text's own table.
  std::optional<std::int64_t> baseline_token = {};
  // Of integrated: how many points of the path are computed at most, from 3. They lie closer where the gradient turns,
  // and end where all stretches together miss 0.5 % of the change.
  std::int64_t steps = 512;
  std::function<void(double)> progress = {};  // told the share of the points that are done, from 0 to 1; may throw
};

// tokens + encoder + missing = value - baseline_value. Of `input` nothing sums up to anything, and both are 0.
struct ATTEND_API Saliency {
  Tensor tokens;              // [N]: of each token of ids, of an encoder-decoder of decoder_ids
  Tensor encoder;             // encoder-decoders: [M], of each token of ids
  double value = 0;           // the number
  double baseline_value = 0;  // what it is where every token is the baseline
  double missing = 0;         // what the points of the path miss
  std::int64_t steps = 0;     // how many there were
  std::optional<std::int64_t> token = {}, against = {};  // of a token's logit: which it was
  std::int64_t position = 0;                             // of a logit or log-probabilities, from 0
};

// Throws bad_value and bad_shape for what gradient() refuses, GradientOf::sum, and fewer than 3 steps.
ATTEND_API Saliency saliency(const Model& model, std::span<const std::int64_t> ids,
                             const SaliencyOptions& options = {});
ATTEND_API std::string to_json(const Saliency& saliency, const TensorJson& tensor = {});

}  // namespace attend::inline v0
