// The gradient of a number that a model computes, by what stands at every place of the pass that computed it: what each
// of them would have changed, through all later layers. One pass forward and one back; nothing of N x N is stored.
//
// Nothing is held: norms and softmax are differentiated, and quantized weights are the numbers that the pass computes
// with. There are no gradients of weights. docs/gradients.md tells how to read it.
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

namespace attend::inline v0 {

// A number of a pass over N ids: one of these, or of several a vector of them.
enum class ATTEND_API GradientOf : std::uint8_t {
  logit,            // of a decoder's `token` at `position`, minus that of `against` where it is given
  log_probability,  // of `tokens`, one after another: the first at `position`, the next at the row after it; their sum
  label,            // of a task's head: the logit of label `token`, a number of ModelInfo::labels (of ModelTask::fill a
                    // token), minus that of label `against` where it is given; of tag and fill at `position`
  cosine,           // of the text's vector, as Model::embed() gives it, to `vector`
  sum,              // of each hidden state [N,E] times its number of `cotangent`, and likewise at places
};

// Numbers that are multiplied with what stands at a place of a layer, and added to GradientOf::sum.
struct ATTEND_API Cotangent {
  ModelPlace at = ModelPlace::residual;
  std::int64_t layer = 0;  // below 0: counted from the end
  FieldView values = {};   // [N,columns], or of K numbers at once [K,N,columns]; floating point
};

struct ATTEND_API GradientOptions {
  GradientOf of = GradientOf::logit;
  std::optional<std::int64_t> token = {}, against = {};  // logit, label; token: none: the likeliest
  std::span<const std::int64_t> tokens = {};             // log_probability
  std::int64_t position = -1;                            // of a row; -1: the last
  OptionalView vector = {};                              // cosine: [vector_size], floating point
  OptionalView cotangent = {};                           // sum: [N,E], or of K numbers at once [K,N,E]
  std::span<const Cotangent> at_places = {};             // sum: of as many numbers
  // Shown the gradient of what is at each place, edited, as the pass comes back there: [N,columns] f32, of K numbers
  // [K,N,columns]. At embeddings it is that of the table's rows. What is shown lasts until it returns.
  std::function<void(ModelPlace place, std::int64_t layer, const View& gradient)> observe = {};
  std::span<const std::int64_t> types = {}, decoder_ids = {};  // as ModelCall has them
  std::span<const Edit> edits = {};                            // of the pass
  // Bytes for what the pass back needs of the forward one. Of layers for which there is no room each stream is kept
  // (N E 4 bytes), and the rest is computed a second time. gradient_bytes() says what all takes; none: as much.
  std::optional<std::int64_t> memory = {};
};

struct ATTEND_API Gradient {
  std::vector<double> values = {};         // of each of the K numbers; of most one
  std::optional<std::int64_t> token = {};  // of logit and label: which it was
  std::int64_t position = 0;               // of logit and log_probability, from 0
};

// Throws bad_value and bad_shape for what Model::forward() refuses, tokens outside the vocabulary, positions outside
// the text, logits of encoders, labels of models without a task's head, cosines of decoders that have no vector, and
// NaN or infinity in a gradient. Bits: the same for any number of threads, and for any `memory`.
ATTEND_API Gradient gradient(const Model& model, std::span<const std::int64_t> ids,
                             const GradientOptions& options = {});
// The same of several texts, in passes of several at a time where they ask for a logit, log-probabilities or a cosine
// without types, edits and decoder_ids; each has its options, or all have the one, and observe is shown one text after
// another at each place. Each result has the bits that its text has alone. Throws bad_value for another number of
// options.
ATTEND_API std::vector<Gradient> gradient(const Model& model, std::span<const std::vector<std::int64_t>> texts,
                                          std::span<const GradientOptions> options);

// What gradient() keeps of a text of so many tokens (and a decoder's so many): all that it needs, in bytes, and the
// least that `memory` can bring that down to, but for one layer.
struct ATTEND_API GradientBytes {
  std::int64_t all = 0, least = 0;
};
ATTEND_API GradientBytes gradient_bytes(const Model& model, std::int64_t tokens, std::int64_t decoder_tokens = 0);

}  // namespace attend::inline v0
