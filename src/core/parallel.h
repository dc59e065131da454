// The one parallel loop of the library.
#pragma once

#include <cstdint>
#include <functional>

namespace attend {

// Calls body(begin, end) for ranges that cover [0, count), from several threads (oneTBB's) where count > grain, else
// from the calling thread alone. Which thread takes which range is not fixed, so body's results must not depend on the
// ranges. An exception from body reaches the caller, once every running range has ended.
void parallel_for(std::int64_t count, std::int64_t grain, const std::function<void(std::int64_t, std::int64_t)>& body);

}  // namespace attend
