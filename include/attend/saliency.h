// Which tokens a model's number comes from: the gradient by their embeddings, along a path from a baseline to the text
// (integrated gradients) or at the text alone.
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

namespace attend::inline v1 {

enum class ATTEND_API SaliencyMethod : std::uint8_t {
  integrated,  // (e - b) . mean over the path of df/de; e: embedding, b: baseline (Sundararajan et al. 2017)
  input,       // e . df/de at the text: "gradient times input"
};

struct ATTEND_API SaliencyOptions {
  // The number: a logit, log probabilities, a label's logit or a cosine, with types and decoder_ids. observe, edits and
  // memory are refused.
  GradientOptions number = {};
  SaliencyMethod method = SaliencyMethod::integrated;
  // integrated: an embedding [input_size] for every token; none: the table's mean.
  OptionalView baseline = {};
  // Instead of it: this token's embedding; for an encoder-decoder in each text's own table.
  std::optional<std::int64_t> baseline_token = {};
  // integrated: most points on the path, at least 3. They are denser where the gradient turns, and end when all
  // stretches together miss 0.5 % of the change.
  std::int64_t steps = 512;
  std::function<void(double)> progress = {};  // called with the share done, 0 to 1; may throw
};

// tokens + encoder + missing = value - baseline_value. For SaliencyMethod::input there is no such sum, and both last
// are 0.
struct ATTEND_API Saliency {
  Tensor tokens;                                         // [N]: each of ids; for an encoder-decoder each of decoder_ids
  Tensor encoder;                                        // encoder-decoders: [M], each of ids
  double value = 0;                                      // the number
  double baseline_value = 0;                             // the number if every token is the baseline
  double missing = 0;                                    // what the path's points miss
  std::int64_t steps = 0;                                // points used
  std::optional<std::int64_t> token = {}, against = {};  // a token's logit: which one
  std::int64_t position = 0;                             // logit, log probabilities: from 0
};

// Throws bad_value and bad_shape for what gradient() refuses, GradientOf::sum, and fewer than 3 steps.
ATTEND_API Saliency saliency(const Model& model, std::span<const std::int64_t> ids,
                             const SaliencyOptions& options = {});
ATTEND_API std::string to_json(const Saliency& saliency, const TensorJson& tensor = {});

}  // namespace attend::inline v1
