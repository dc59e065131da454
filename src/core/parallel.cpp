#include "core/parallel.h"

#include <algorithm>
#include <atomic>
#include <climits>
#include <utility>

#include "core/divide_up.h"
#include "core/message.h"
#include "core/workers.h"

namespace attend {

namespace {

std::atomic<int> thread_limit{INT_MAX};

// Of the thread that makes a call: workers have none, and so never ask.
thread_local InterruptCheck* innermost_check = nullptr;

thread_local int limit_here = INT_MAX;

constexpr std::chrono::milliseconds time_between_checks{20};

}  // namespace

void set_num_threads(int threads) {
  if (threads < 1) fail(ErrorCode::bad_value, "set_num_threads", "expected at least 1 thread, got {}", threads);
  thread_limit = threads;
}

int num_threads() {
  return std::max(1, std::min({threads_here(), thread_limit.load(), limit_here}));
}

ThreadLimit::ThreadLimit(int threads) : outer_(std::exchange(limit_here, threads)) {}

ThreadLimit::~ThreadLimit() {
  limit_here = outer_;
}

InterruptCheck::InterruptCheck(std::function<bool()> interrupted)
    : interrupted_(std::move(interrupted)),
      asked_(std::chrono::steady_clock::now()),
      outer_(std::exchange(innermost_check, this)) {}

InterruptCheck::~InterruptCheck() {
  innermost_check = outer_;
}

bool interrupt_requested() {
  InterruptCheck* check = innermost_check;
  if (!check) return false;
  const auto now = std::chrono::steady_clock::now();
  if (now - check->asked_ < time_between_checks) return false;
  check->asked_ = now;
  return check->interrupted_();
}

void parallel_for(std::int64_t count, std::int64_t grain, const std::function<void(std::int64_t, std::int64_t)>& body) {
  if (count <= 0) return;
  if (count <= grain) return body(0, count);
  const int threads = num_threads();
  // Eight ranges a thread, so that the last one to end is short.
  const std::int64_t size = std::max(grain, divide_up(count, std::int64_t{8} * threads));
  const std::int64_t ranges = divide_up(count, size);
  parallel_items(ranges, static_cast<int>(std::min<std::int64_t>(threads, ranges)),
                 [&](int, std::int64_t range) { body(range * size, std::min(count, (range + 1) * size)); });
}

void parallel_items(std::int64_t count, int workers, const std::function<void(int, std::int64_t)>& body) {
  std::atomic<std::int64_t> next{0};
  bool interrupted = false;  // written by the calling thread alone
  // Each worker takes items until there are none, so that one who comes late costs nothing.
  const auto work = [&](int worker) {
    for (std::int64_t item = next++; item < count; item = next++) {
      body(worker, item);
      if (interrupt_requested()) {
        interrupted = true;
        next = count;
      }
    }
  };
  if (workers <= 1) {
    work(0);
  } else {
    run_workers(workers, std::ref(work));
  }
  if (interrupted) fail(ErrorCode::interrupted, "", "interrupted: the call was asked to stop");
}

}  // namespace attend
