// How long this process has computed: what other programs do meanwhile, or that it stood still, is not in it. No test
// asks another clock.
#pragma once

#include <ctime>

namespace attend::test {

inline double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

}  // namespace attend::test
