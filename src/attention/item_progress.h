// Items of work that add to the same numbers take turns, so that the order of a sum, and with it its bits, does not
// depend on the threads. An item counts the steps that it has done, and waits for those of items taken before it.
#pragma once

#include <atomic>
#include <cstdint>

namespace attend::inline v1 {

// The other item is mostly a fraction of a tile behind; where its thread is not running, this one sleeps.
inline void wait(const std::atomic<std::int64_t>& progress, std::int64_t steps) {
  constexpr int patience = 2000;  // some 20 us
  for (int i = 0; i < patience && progress.load(std::memory_order_acquire) < steps; ++i) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
  }
  for (std::int64_t seen = progress.load(std::memory_order_acquire); seen < steps;) {
    progress.wait(seen, std::memory_order_acquire);
    seen = progress.load(std::memory_order_acquire);
  }
}

inline void publish(std::atomic<std::int64_t>& progress, std::int64_t steps) {
  progress.store(steps, std::memory_order_release);
  progress.notify_all();
}

}  // namespace attend::inline v1
