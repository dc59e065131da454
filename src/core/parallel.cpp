#include "core/parallel.h"

#include <algorithm>
#include <atomic>
#include <climits>
#include <thread>
#include <utility>

#include "core/divide_up.h"
#include "core/message.h"
#include "core/workers.h"

namespace attend::inline v1 {

namespace {

std::atomic<int> thread_limit{INT_MAX};

// What the calls of a thread go by.
struct CallState {
  InterruptCheck* check = nullptr;  // the innermost
  int limit = INT_MAX;              // of threads
  bool warm = false;                // WarmThreads
};
thread_local CallState here;

// For a while this thread's calls go by another.
class StateHere {
 public:
  explicit StateHere(const CallState& state) : outer_(std::exchange(here, state)) {}
  ~StateHere() { here = outer_; }
  StateHere(const StateHere&) = delete;
  StateHere& operator=(const StateHere&) = delete;

 private:
  CallState outer_;
};

constexpr std::chrono::milliseconds time_between_checks{20};

// The loop's work goes by the state of the call whatever thread it runs on, and it alone. A host's thread that does it
// may be in a call of its own, and may have a check of its own. The calling thread, where it waits in a host's pool,
// may do work of the host's, whose calls are not this one. Only the calling thread asks the call's check.
void run_beside_others(int workers, const std::function<void(int)>& work) {
  const CallState of_call = here, of_worker{.limit = here.limit};
  const std::thread::id caller = std::this_thread::get_id();
  const auto in_state = [&](int worker) {
    const StateHere state(std::this_thread::get_id() == caller ? of_call : of_worker);
    work(worker);
  };
  const StateHere others({});
  run_workers(workers, std::ref(in_state));
}

}  // namespace

void set_num_threads(int threads) {
  if (threads < 1) fail(ErrorCode::bad_value, "set_num_threads", "expected at least 1 thread, got {}", threads);
  thread_limit = threads;
}

int num_threads() {
  return std::max(1, std::min({threads_here(), thread_limit.load(), here.limit}));
}

ThreadLimit::ThreadLimit(int threads) : outer_(std::exchange(here.limit, threads)) {}

ThreadLimit::~ThreadLimit() {
  here.limit = outer_;
}

WarmThreads::WarmThreads() : outer_(std::exchange(here.warm, true)) {}

WarmThreads::~WarmThreads() {
  here.warm = outer_;
}

bool threads_are_warm() {
  return here.warm;
}

InterruptCheck::InterruptCheck(std::function<bool()> interrupted)
    : interrupted_(std::move(interrupted)),
      asked_(std::chrono::steady_clock::now()),
      outer_(std::exchange(here.check, this)) {}

InterruptCheck::~InterruptCheck() {
  here.check = outer_;
}

bool interrupt_requested() {
  InterruptCheck* check = here.check;
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
    run_beside_others(workers, std::ref(work));
  }
  if (interrupted) fail(ErrorCode::interrupted, "", "interrupted: the call was asked to stop");
}

}  // namespace attend::inline v1
