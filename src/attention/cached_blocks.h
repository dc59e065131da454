// A cache's values, block by block, without a copy of the whole.
#pragma once

#include <cstdint>
#include <functional>

#include "attend/kv_cache.h"

namespace attend::inline v1 {

// Of one head: positions [first, first + count), rows [count,Dv] f32 in one piece.
struct CachedBlock {
  std::int64_t head = 0, first = 0, count = 0;
  const float* rows = nullptr;
};

// Calls body for every block of every head, of item 0 of the batch, from several threads: for each head's rows it is
// the same blocks, whatever the threads. The cache must not change meanwhile.
void for_each_value_block(const KvCache& cache, const std::function<void(const CachedBlock&)>& body);

}  // namespace attend::inline v1
