// A pass through a model and back: the gradients of numbers that are made of its hidden states, or of what is at its
// places.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "models/backward.h"
#include "models/model.h"

namespace attend::inline v1::models {

struct PassBack {
  // hidden [N,E] -> the gradients of `copies` numbers by it, [copies * N,E] f32, one after another.
  std::function<Tensor(const Tensor& hidden)> from;
  std::int64_t copies = 1;
  // Of one causal sequence, without edits: gradients by rows from first_row on alone, as if there were no others, and
  // by what stands before layers from first_layer on. They need no others'.
  std::int64_t first_row = 0, first_layer = 0;
  // Given the gradient of what stands at each place, edited, as the pass comes back there; it may add to it.
  PlaceGradients places;
  AttentionGradients attentions = {};
  // Bytes for what is kept of the forward pass; of what does not fit, each layer's stream is, and the rest is made
  // again.
  std::int64_t memory = std::int64_t{1} << 62;
};

// Throws bad_value for caches, recorders and knockouts, as Model::forward() does, and for NaN or infinity in a
// gradient.
void pass_back(const Model& model, std::span<const std::int64_t> ids, const ModelCall& call, const PassBack& back);

// What that keeps of a text of so many tokens, of a decoder's so many, all of it; and what of each layer's stream
// alone.
struct KeptBytes {
  std::int64_t all = 0, streams = 0;
};
KeptBytes kept_bytes(const Model& model, std::int64_t tokens, std::int64_t decoder_tokens);

}  // namespace attend::inline v1::models
