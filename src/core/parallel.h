// The parallel loops of the library, on oneTBB's threads. Both end early with ErrorCode::interrupted where the calling
// thread has an InterruptCheck (attend/threads.h) that says so.
#pragma once

#include <cstdint>
#include <functional>

#include "attend/threads.h"

namespace attend {

// Calls body(begin, end) for ranges that cover [0, count), from several threads where count > grain, else from the
// calling thread alone. Which thread takes which range is not fixed, so body's results must not depend on the ranges.
// An exception from body reaches the caller, once every running range has ended.
void parallel_for(std::int64_t count, std::int64_t grain, const std::function<void(std::int64_t, std::int64_t)>& body);

// Calls body(worker, item) once for every item in [0, count), taken in that order by at most `workers` threads; two
// calls with the same worker in [0, workers) never run at once. One worker: the calling thread. An exception from body
// reaches the caller, once every running item has ended.
void parallel_items(std::int64_t count, int workers, const std::function<void(int, std::int64_t)>& body);

}  // namespace attend
