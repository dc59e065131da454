#pragma once

#include <climits>

#include "attend/threads.h"

namespace attend::test {

// The limit is the whole program's: after the test, every other one finds as many threads as there are processors.
struct ThreadsAtMost {
  explicit ThreadsAtMost(int threads) { set_num_threads(threads); }
  ~ThreadsAtMost() { set_num_threads(INT_MAX); }
  ThreadsAtMost(const ThreadsAtMost&) = delete;
  ThreadsAtMost& operator=(const ThreadsAtMost&) = delete;
};

}  // namespace attend::test
