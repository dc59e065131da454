// What a pass forward leaves for the pass back: the numbers that the gradients of a layer are computed with.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "attend/models.h"

namespace attend::inline v1::models {

// Where a layer has a norm that its stream, or what is added to it, goes through. What an attention or MLP reads by is
// none of these: nothing else reads it.
enum class NormPlace : std::uint8_t {
  attention_output,  // what the attention writes, before it is added (Gemma, OLMo 2)
  mlp_output,        // what the MLP writes
  attention_sum,     // the stream after the attention's was added (post-norm: BERT, BART)
  cross_sum,         // the stream after what was read in the encoder's text was added
  mlp_sum,           // the stream after the MLP's was added
};
inline constexpr std::size_t norm_places = 5;

// As attention() had them and gave them, rows side by side.
struct KeptAttention {
  Tensor q, k, v;            // [N,H*D], [M,Hkv*D], [M,Hkv*Dv]
  Tensor out, lse, lse_low;  // [N,H*Dv]; [1,H,N]
};

// Before activate().
struct KeptActivation {
  Tensor x, gated;  // [N,F]; gated: empty where nothing is
};

struct KeptLayer {
  Tensor residual, residual_mid, cross_residual;  // [N,E] at these places
  Tensor q, k;                                    // before their norms, where they have some
  KeptAttention self, cross;
  KeptActivation mlp;
  std::array<Tensor, norm_places> before_norm = {};  // [N,E]

  const Tensor& before(NormPlace place) const { return before_norm[static_cast<std::size_t>(place)]; }
};

// Of one stack.
struct Kept {
  std::vector<KeptLayer> layers = {};
  Tensor embedded;  // [N,...] before a norm of the embeddings, where there is one
  Tensor last;      // [N,E] after the last layer
  // Of layers before it `residual` alone is kept, of which the rest can be made again.
  std::size_t whole_from = 0;

  // What a pass has come to.
  void at(ModelPlace place, std::size_t layer, const Tensor& values);
};

}  // namespace attend::inline v1::models
