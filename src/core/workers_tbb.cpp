#include "core/workers.h"

#include <pthread.h>
#include <tbb/blocked_range.h>
#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>
#include <tbb/task_group.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <exception>
#include <latch>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "attend/threads.h"
#include "core/signals_blocked.h"

namespace attend::inline v1 {

namespace {

std::atomic<const HostThreads*> host_threads{nullptr};

// The first exception reaches the caller: none may pass through a host's threads.
template <class Work>
void run_on(const HostThreads& host, int workers, const Work& work) {
  struct Context {
    const Work& work;
    std::mutex mutex;
    std::exception_ptr thrown;
  } context{work, {}, {}};
  const auto guarded = [](void* pointer, int worker) {
    auto& shared = *static_cast<Context*>(pointer);
    try {
      shared.work(worker);
    } catch (...) {
      const std::lock_guard lock(shared.mutex);
      if (!shared.thrown) shared.thrown = std::current_exception();
    }
  };
  host.run(workers, guarded, &context);
  if (context.thrown) std::rethrow_exception(context.thrown);
}

// A process forked from one in which oneTBB has threads has its locks, which they may have held, and not the threads:
// of 6 programs that fork while others compute, 5 waited for ever. There the library makes threads anew for each loop.
std::atomic<bool> pool_is_lost{false};

void run_on_new_threads(int workers, void (*work)(void*, int), void* context) {
  std::atomic<int> next{0};
  const auto take = [&] {
    for (int worker = next++; worker < workers; worker = next++) work(context, worker);
  };
  std::vector<std::jthread> threads;
  try {
    const SignalsBlocked blocked;
    for (int n = 1; n < workers; ++n) threads.emplace_back(take);
  } catch (const std::exception&) {  // those that are there do the work
  }
  take();
}

constexpr HostThreads threads_of_one_loop{
    .count = [] { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); },
    .run = run_on_new_threads,
};

// Whose threads do the work; null: oneTBB's.
const HostThreads* lent_threads() {
  if (const HostThreads* host = host_threads) return host;
  return pool_is_lost ? &threads_of_one_loop : nullptr;
}

// Whether the system gives as many threads as oneTBB is about to make. They end again.
bool threads_are_given() {
  std::latch all_made{1};
  std::vector<std::jthread> threads;
  bool given = false;
  try {
    for (int n = 1; n < tbb::this_task_arena::max_concurrency(); ++n) threads.emplace_back([&] { all_made.wait(); });
    given = true;
  } catch (const std::exception&) {  // std::system_error, or no memory for one
  }
  all_made.count_down();
  return given;
}

// Whether oneTBB has its threads, which it keeps. Refused one, it throws from the middle of its queues, which still
// hold what nobody may run any more: so its first task is one that does nothing, of a group that then stays.
bool threads_can_be_made() {
  static std::atomic<bool> could{false};
  static const int watched = pthread_atfork(nullptr, nullptr, [] { pool_is_lost = pool_is_lost || could; });
  static_cast<void>(watched);
  if (could) return true;
  if (!threads_are_given()) return false;
  auto first = std::make_unique<tbb::task_group>();
  // Its threads take no signals: one that OutputFile::commit() holds back would end the process through them.
  const SignalsBlocked blocked;
  try {
    tbb::this_task_arena::isolate([&] {
      first->run([] {});
      first->wait();
    });
    could = true;
  } catch (const std::exception&) {  // given a moment ago, but not now
    static_cast<void>(first.release());
  }
  return could;
}

}  // namespace

void set_host_threads(const HostThreads* threads) {
  host_threads = threads;
}

int threads_here() {
  if (const HostThreads* host = lent_threads()) return host->count();
  const std::size_t allowed = tbb::global_control::active_value(tbb::global_control::max_allowed_parallelism);
  const int here = tbb::this_task_arena::max_concurrency();
  return std::min(static_cast<int>(std::min<std::size_t>(allowed, INT_MAX)), here);
}

void run_workers(int workers, const std::function<void(int)>& body) {
  // Neither oneTBB nor a host synchronises where ThreadSanitizer sees it. These two words say the same in code that it
  // does see: what came before the loop happens before every range, and every range before what follows.
  std::atomic<int> started{0};
  std::atomic<int> finished{0};
  started.store(1, std::memory_order_release);
  const auto work = [&](int worker) {
    started.load(std::memory_order_acquire);
    body(worker);
    finished.fetch_add(1, std::memory_order_release);
  };
  if (const HostThreads* host = lent_threads()) {
    run_on(*host, workers, work);
  } else if (!threads_can_be_made()) {
    for (int worker = 0; worker < workers; ++worker) work(worker);
  } else {
    // A thread that waits takes tasks meanwhile: in isolation only those of this loop. A task of the host's might wait
    // for a mutex that the host holds while it calls the library: of programs that do, most waited for ever.
    tbb::this_task_arena::isolate([&] {
      tbb::parallel_for(tbb::blocked_range<int>(0, workers, 1), [&](const tbb::blocked_range<int>& range) {
        for (int worker = range.begin(); worker < range.end(); ++worker) work(worker);
      });
    });
  }
  finished.load(std::memory_order_acquire);
}

}  // namespace attend::inline v1
