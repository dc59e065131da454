// The problem of a call over a KvCache, whose keys and values stay where they lie.
#pragma once

#include <memory>

#include "attend/kv_cache.h"
#include "attention/problem.h"

namespace attend::inline v1 {

struct CachedProblem {
  std::shared_ptr<const void> held;  // what the cache was when the call began
  Problem problem;

  // As attention() over a cache has it. Throws Error.
  static CachedProblem check(const char* function, const View& q, const KvCache& cache,
                             const AttentionOptions& options);
};

}  // namespace attend::inline v1
