// What happens at the n-th call of a function: tests/faults.cpp has the functions, and says how it is written.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace attend::test {

// From now on; "" is nothing. The calls are counted from here.
void arm_fault(const std::string& text);
// How many calls of that function there were since.
std::int64_t fault_calls();

// Counts a call of that function, does what is to be done at it, and says whether it is to fail.
bool fails(std::string_view function);

// While one exists, each reading of std::chrono::steady_clock is an hour after the last: what is to be done every 20 ms
// is due each time that somebody looks, on any machine.
class RacingClock {
 public:
  RacingClock() { arm_fault("clock -1"); }
  ~RacingClock() { arm_fault(""); }
  RacingClock(const RacingClock&) = delete;
  RacingClock& operator=(const RacingClock&) = delete;
};

}  // namespace attend::test
