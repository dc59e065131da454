// The masks of MultiHeadAttention's caller, in torch's polarity and for the keys that the caller knows of, as the mask
// and bias of attention().
#pragma once

#include <cstdint>
#include <optional>

#include "attend/layers.h"

namespace attend::inline v1 {

// Options for attention(). Where a mask or bias had to be made, it is kept here and `options` points to it.
struct JoinedOptions {
  AttentionOptions options;
  std::optional<Tensor> mask;
  std::optional<Tensor> bias;
};

// q, k, v: the heads as attention() takes them ([B,H,T,D] or [H,T,D]); the last `appended` keys are the layer's own
// (bias_kv, zero_attention). Those are visible to every query: no mask, causal limit, window or key length reaches
// them, and distance_bias and ALiBi leave their score as it is. Throws bad_shape, bad_dtype, bad_value.
JoinedOptions join_masks(const MultiHeadAttentionCall& call, const View& q, const View& k, const View& v,
                         std::int64_t appended);

// What falls to the tensors of the call, of the gradient of the bias that join_masks() made for the same arguments:
// sums over the axes that each was broadcast along. Fills those of `to` that are wanted; ddistance_bias and
// dalibi_slopes only where keys are appended, attention_backward() gives them elsewhere.
void split_bias(const View& gradient, const MultiHeadAttentionCall& call, const View& q, const View& k, const View& v,
                std::int64_t appended, const MultiHeadAttentionBackward& wanted, MultiHeadAttentionGradients& to);

}  // namespace attend::inline v1
