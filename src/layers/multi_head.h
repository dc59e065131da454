// The parameters of a MultiHeadAttention, or their gradients, before they have names.
#pragma once

#include <optional>

#include "attend/layers.h"

namespace attend::inline v1 {

struct MultiHeadAttention::Parts {
  View query, key, value;                                // weights
  std::optional<View> query_bias, key_bias, value_bias;  // all or none
  std::optional<View> output, output_bias;
  std::optional<View> bias_k, bias_v;  // [heads * d_k], [heads * d_v]
};

inline std::optional<View> view_of(const std::optional<Tensor>& tensor) {
  return tensor ? std::optional<View>(*tensor) : std::nullopt;
}

}  // namespace attend::inline v1
