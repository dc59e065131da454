// Which heads read what earlier heads write, by their weights alone (Elhage et al. 2021, "A Mathematical Framework for
// Transformer Circuits", section "Composition").
#pragma once

#ifdef ATTEND_WITHOUT_MODELS
#error "attend was built with ATTEND_MODELS=OFF: it has no composition.h"
#endif

#include "attend/api.h"
#include "attend/models.h"
#include "attend/tensor.h"

namespace attend::inline v0 {

// [L,H,L,H] each: of a head (layer, head), how much it reads of what the head (earlier layer, head) writes; 0 where
// that one is not of an earlier layer. With W_QK = W_Q^T W_K and W_OV = W_O W_V of the heads, by Frobenius norms:
struct ATTEND_API Composition {
  Tensor q;  // by its queries: |W_QK^T W_OV'| / (|W_QK| |W_OV'|), ' of the earlier head
  Tensor k;  // by its keys: |W_QK W_OV'| / (|W_QK| |W_OV'|)
  Tensor v;  // by its values: |W_OV W_OV'| / (|W_OV| |W_OV'|)
};

// Weights of norms are folded into what reads by them (a LayerNorm takes the mean out too), those of heads' norms into
// W_Q and W_K, those of a norm of the attention's output into W_O. Rotary positions and biases are left out, and so is
// what later norms of a post-norm model do to the stream. Heads that share keys have their group's. Of an
// encoder-decoder: of the decoder's own attentions, with `encoder` of the encoder's; throws bad_value for that of other
// models. f32; no matrix of E x E is made.
ATTEND_API Composition composition(const Model& model, bool encoder = false);

}  // namespace attend::inline v0
