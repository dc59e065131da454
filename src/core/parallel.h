// A loop over items, beside parallel_for() of attend/threads.h: it ends early as that does.
#pragma once

#include <cstdint>
#include <functional>

#include "attend/threads.h"

namespace attend::inline v1 {

// Calls body(worker, item) once for every item in [0, count), taken in that order by at most `workers` threads; two
// calls with the same worker in [0, workers) never run at once. One worker: the calling thread. An exception from body
// reaches the caller, once every running item has ended.
void parallel_items(std::int64_t count, int workers, const std::function<void(int, std::int64_t)>& body);

// Whether the calling thread's InterruptCheck says that its call is to end; asked every 20 ms at most.
bool interrupt_requested();

// While it lives, this thread's loops follow each other so closely that the others wait for work, as in a model's pass:
// they begin within 2 us, where threads that sleep take 20 (two cores of Zen 4). So less is worth sharing out.
class WarmThreads {
 public:
  WarmThreads();
  ~WarmThreads();
  WarmThreads(const WarmThreads&) = delete;
  WarmThreads& operator=(const WarmThreads&) = delete;

 private:
  bool outer_;
};
bool threads_are_warm();

// While it lives, calls from this thread use at most that many: as many as the thread may that this one works for.
class ThreadLimit {
 public:
  explicit ThreadLimit(int threads);
  ~ThreadLimit();
  ThreadLimit(const ThreadLimit&) = delete;
  ThreadLimit& operator=(const ThreadLimit&) = delete;

 private:
  int outer_;
};

}  // namespace attend::inline v1
