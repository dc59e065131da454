// A trained model at work.
#pragma once

#include <span>
#include <vector>

#include "attend/recording.h"
#include "model.h"

namespace translate {

// For each source, without Tokenizer::end, the target: the likeliest token, one after another (greedy), until `end`, or
// until it is twice as long as the source and 20 tokens.
std::vector<Ids> translate(const Model& model, std::span<const Ids> sources);

// Where each token of a translation looked as it was chosen.
struct CrossAttention {
  Ids source;                   // with end
  Ids target;                   // with end
  std::vector<Tensor> weights;  // of each layer: [heads,Tq,Tk], a row for each token of the target
};
CrossAttention cross_attention(const Model& model, const Ids& source, const Ids& target);

// What all heads attended to while a source was translated to this target: the layers encoder.N.self, decoder.N.self
// and decoder.N.cross, with q and k. Its tokens are what each side read: the source with end, and begin with the
// target.
attend::Recording record(const Model& model, const Tokenizer& tokenizer, const Ids& source, const Ids& target);

}  // namespace translate
