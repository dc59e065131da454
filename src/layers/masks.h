// The masks of MultiHeadAttention's caller, in torch's polarity and for the keys that the caller knows of, as the mask
// and bias of attention().
#pragma once

#include <cstdint>
#include <optional>

#include "attend/layers.h"

namespace attend {

// Options for attention(). Where a mask or bias had to be made, it is kept here and `options` points to it.
struct JoinedOptions {
  AttentionOptions options;
  std::optional<Tensor> mask;
  std::optional<Tensor> bias;
};

// q, k, v: the heads as attention() takes them ([B,H,T,D] or [H,T,D]); the last `appended` keys are the layer's own
// (bias_kv, zero_attention). Those are visible to every query: no mask, causal limit, window or key length reaches
// them, and ALiBi leaves their score as it is. Throws bad_shape, bad_dtype, bad_value.
JoinedOptions join_masks(const MultiHeadAttentionCall& call, const View& q, const View& k, const View& v,
                         std::int64_t appended);

}  // namespace attend
