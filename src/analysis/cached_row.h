// What one row of a cached text reads of its tokens, of one layer.
#pragma once

#include "attend/kv_cache.h"
#include "models/batch.h"

namespace attend::inline v1::analysis {

// q [1,H,1,D] of a row -> its weights of the first `length` keys, [1,H,1,length] f32.
Tensor row_weights(const models::AttentionStep& step, const View& q, const KvCache& cache, std::int64_t row,
                   std::int64_t length);

// weights[h,j] *= v_j . direction[h], v_j of the head's own values; weights [H,length], direction [H,Dv].
void multiply_by_values(const models::AttentionStep& step, const KvCache& cache, std::int64_t length,
                        const float* direction, float* weights);

}  // namespace attend::inline v1::analysis
