// The gradient of a number that a model computes, at every place of the pass: what a change there would do through all
// later layers. One pass forward and one back; nothing of size N x N is stored. docs/gradients.md explains how to read
// it.
//
//     const auto see = [](attend::ModelPlace place, std::int64_t layer, const attend::View& gradient) { ... };
//     attend::gradient(model, ids, {.observe = see});
//
// Nothing is held fixed: norms and softmax are differentiated. Quantized weights count as the numbers of the pass.
// There are no gradients of weights.
#pragma once

#ifdef ATTEND_WITHOUT_MODELS
#error "attend was built with ATTEND_MODELS=OFF: it has no gradient.h"
#endif

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "attend/api.h"
#include "attend/models.h"
#include "attend/tensor.h"

namespace attend::inline v1 {

// A number of a pass over N ids.
enum class ATTEND_API GradientOf : std::uint8_t {
  logit,            // a decoder's logit of `token` at `position`, minus that of `against` if given
  log_probability,  // sum of log probabilities of `tokens`: the first at `position`, each next one a row later
  // a task's head: logit of label `token` (an index into ModelInfo::labels; for ModelTask::fill a token), minus that of
  // label `against` if given; for tag and fill at `position`
  label,
  cosine,  // cosine of the text's vector (Model::embed()) and `vector`
  sum,     // sum of the hidden states [N,E] times `cotangent`, plus the terms of `at_places`
};

// Multiplies the values at a place of a layer, and adds them to GradientOf::sum.
struct ATTEND_API Cotangent {
  ModelPlace at = ModelPlace::residual;
  std::int64_t layer = 0;  // negative: from the end
  FieldView values = {};   // [N,columns], or for K numbers at once [K,N,columns]; floating point
};

struct ATTEND_API GradientOptions {
  GradientOf of = GradientOf::logit;
  std::optional<std::int64_t> token = {}, against = {};  // logit, label; without token: the likeliest
  std::span<const std::int64_t> tokens = {};             // log_probability
  std::int64_t position = -1;                            // a row; -1: the last
  OptionalView vector = {};                              // cosine: [vector_size], floating point
  OptionalView cotangent = {};                           // sum: [N,E], or for K numbers at once [K,N,E]
  std::span<const Cotangent> at_places = {};             // sum: the same K
  // Called with the gradient of the (edited) values at each place, on the way back: [N,columns] f32, for K numbers
  // [K,N,columns]. At embeddings it is that of the table's rows. The view is valid until the call returns.
  std::function<void(ModelPlace place, std::int64_t layer, const View& gradient)> observe = {};
  std::span<const std::int64_t> types = {}, decoder_ids = {};  // as in ModelCall
  std::span<const Edit> edits = {};                            // of the pass
  // Bytes for what the backward pass needs from the forward one; none: all that is needed. Layers that don't fit keep
  // only their stream (N E 4 bytes) and are computed again. gradient_bytes() gives the needs.
  std::optional<std::int64_t> memory = {};
};

struct ATTEND_API Gradient {
  std::vector<double> values = {};         // each of the K numbers; usually one
  std::optional<std::int64_t> token = {};  // logit, label: which one
  std::int64_t position = 0;               // logit, log_probability: from 0
};

// Throws bad_value and bad_shape for what Model::forward() refuses, tokens outside the vocabulary, positions outside
// the text, logits of encoders, labels without a task's head, cosines of decoders without a vector, and NaN or infinity
// in a gradient. Bits: the same for any number of threads and any `memory`.
ATTEND_API Gradient gradient(const Model& model, std::span<const std::int64_t> ids,
                             const GradientOptions& options = {});
// The same for several texts. Logits, log probabilities and cosines without types, edits and decoder_ids run several
// texts in each pass. Give options for each text or one for all; observe is called for one text after another at each
// place. Each result has the bits of its text alone. Throws bad_value for another number of options.
ATTEND_API std::vector<Gradient> gradient(const Model& model, std::span<const std::vector<std::int64_t>> texts,
                                          std::span<const GradientOptions> options);

// What gradient() keeps for a text of so many tokens (and a decoder's): everything, and the least that `memory` can
// reduce it to, except for one layer.
struct ATTEND_API GradientBytes {
  std::int64_t all = 0, least = 0;
};
ATTEND_API GradientBytes gradient_bytes(const Model& model, std::int64_t tokens, std::int64_t decoder_tokens = 0);

}  // namespace attend::inline v1
