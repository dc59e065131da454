// Which heads read what earlier heads write, from weights alone (Elhage et al. 2021, "A Mathematical Framework for
// Transformer Circuits", section "Composition").
#pragma once

#ifdef ATTEND_WITHOUT_MODELS
#error "attend was built with ATTEND_MODELS=OFF: it has no composition.h"
#endif

#include "attend/api.h"
#include "attend/models.h"
#include "attend/tensor.h"

namespace attend::inline v1 {

// [L,H,L,H] each: how much head (layer, head) reads of what head (earlier layer, head) writes; 0 if the second is not
// in an earlier layer. Norms are Frobenius, W_QK = W_Q^T W_K, W_OV = W_O W_V; ' marks the earlier head.
struct ATTEND_API Composition {
  Tensor q;  // by queries: |W_QK^T W_OV'| / (|W_QK| |W_OV'|)
  Tensor k;  // by keys: |W_QK W_OV'| / (|W_QK| |W_OV'|)
  Tensor v;  // by values: |W_OV W_OV'| / (|W_OV| |W_OV'|)
};

// Norm weights are folded into the reading weights (LayerNorm's mean removal too), head norms into W_Q and W_K, a norm
// of attention's output into W_O. Rotary positions, biases and later norms of post-norm models are left out. Heads that
// share keys use their group's. encoder: the encoder's attentions instead of the decoder's own; bad_value for models
// that are not encoder-decoders. f32; never makes an E x E matrix.
ATTEND_API Composition composition(const Model& model, bool encoder = false);

}  // namespace attend::inline v1
