// The process's memory as Linux counts it.
#pragma once

#include <cstdint>

namespace attend::bench {

// Gives freed memory back and forgets the peak. False where the system can't (Linux can).
bool reset_peak_memory();
// The most memory in use since then, in bytes; -1 where the system doesn't say.
std::int64_t peak_memory();

}  // namespace attend::bench
