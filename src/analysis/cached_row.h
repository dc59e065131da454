// What one row of a cached text reads of the tokens up to its own, of one layer.
#pragma once

#include "attend/kv_cache.h"
#include "models/batch.h"

namespace attend::analysis {

// q [H,D] of row `length` - 1 -> its weights [H,length], f32: softmax of the scaled scores of the keys that the step's
// window leaves to it; 0 elsewhere.
void weigh_row(const models::AttentionStep& step, const View& q, const KvCache& cache, std::int64_t length,
               float* weights);

// weights[h,j] *= v_j . direction[h], v_j of the head's own values; direction [H,Dv].
void multiply_by_values(const models::AttentionStep& step, const KvCache& cache, std::int64_t length,
                        const float* direction, float* weights);

}  // namespace attend::analysis
