// Biases of distances as T5 has them (Raffel et al. 2020): near distances have one each, farther ones share.
#pragma once

#include <cstdint>

#include "attend/tensor.h"

namespace attend::inline v1::models {

// How many distances have a bucket each: half of those of a direction. The others share by their logarithm, up to
// max_distance, which must be more than that, and that at least 1.
constexpr std::int64_t near_distances(bool bidirectional, std::int64_t buckets) {
  return (bidirectional ? buckets / 2 : buckets) / 2;
}

// AttentionOptions::distance_bias [H,2R+1], f32, of embedding [buckets or more,H], f32, bf16 or f16. Half of the
// buckets are for keys after the query; unless bidirectional, these all have distance 0's. R is the distance from which
// on nothing changes, or less where no text is longer than `longest`.
Tensor relative_bias(const View& embedding, bool bidirectional, std::int64_t buckets, std::int64_t max_distance,
                     std::int64_t longest);

// ALiBi (Press et al. 2022) of texts of `longest` tokens, of both sides: [H,2R+1], -slope |distance|. The slopes are
// 2^(-8/n), 2^(-16/n), ... for the power of two n that is not above the heads, and of 2n every second one for the rest.
Tensor alibi_bias(std::int64_t heads, std::int64_t longest);

}  // namespace attend::inline v1::models
