#include "core/parallel.h"

#include <algorithm>
#include <atomic>
#include <latch>
#include <thread>

#include "attend/attention.h"
#include "attend/random.h"
#include "core/tensor_memory.h"
#include "tests/expect.h"
#include "tests/fault.h"
#include "tests/threads_at_most.h"

namespace attend {
namespace {

TEST(Parallel, EveryIndexOnce) {
  for (const std::int64_t count : {0, 1, 7, 1000, 100'003}) {
    std::vector<int> seen(static_cast<std::size_t>(count));
    parallel_for(count, 10, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) ++seen[static_cast<std::size_t>(i)];
    });
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), count);
  }
}

TEST(Parallel, SmallLoopsStayOnTheCallingThread) {
  const std::thread::id caller = std::this_thread::get_id();
  int calls = 0;
  parallel_for(10, 10, [&](std::int64_t begin, std::int64_t end) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    EXPECT_EQ(begin, 0);
    EXPECT_EQ(end, 10);
    ++calls;
  });
  EXPECT_EQ(calls, 1);
}

TEST(Parallel, AnExceptionReachesTheCaller) {
  const auto throws = [](std::int64_t begin, std::int64_t) {
    if (begin > 50) throw Error(ErrorCode::bad_value, "", "from a range");
  };
  test::expect_error(
      ErrorCode::bad_value, [&] { parallel_for(100, 1, throws); }, "from a range");
}

TEST(Parallel, EveryItemOnceAndAWorkerIsOneAtATime) {
  for (const int workers : {1, 2, 8}) {
    std::vector<std::atomic<int>> busy(static_cast<std::size_t>(workers)), seen(1000);
    parallel_items(1000, workers, [&](int worker, std::int64_t item) {
      EXPECT_EQ(busy[static_cast<std::size_t>(worker)]++, 0);
      ++seen[static_cast<std::size_t>(item)];
      --busy[static_cast<std::size_t>(worker)];
    });
    for (const std::atomic<int>& times : seen) EXPECT_EQ(times, 1);
  }
}

TEST(Parallel, NoMoreThreadsThanTheLimit) {
  const test::ThreadsAtMost limit(1);
  EXPECT_EQ(num_threads(), 1);
  const std::thread::id caller = std::this_thread::get_id();
  parallel_for(10'000, 1, [&](std::int64_t, std::int64_t) { EXPECT_EQ(std::this_thread::get_id(), caller); });
}

TEST(Parallel, ALimitAboveTheMachineIsTheMachine) {
  const int machine = num_threads();
  const test::ThreadsAtMost limit(machine + 1);
  EXPECT_EQ(num_threads(), machine);
  test::expect_error(
      ErrorCode::bad_value, [] { set_num_threads(0); }, "set_num_threads: expected at least 1 thread, got 0");
}

// A host that lends two threads, started for each loop; they take the workers in turn.
constexpr int lent = 2;
std::atomic<int> loops{0};
thread_local bool is_lent = false;
const HostThreads two_threads{
    .count = [] { return lent; },
    .run =
        [](int workers, void (*work)(void*, int), void* context) {
          ++loops;
          const auto some = [=](int first) {
            is_lent = true;
            for (int worker = first; worker < workers; worker += lent) work(context, worker);
            is_lent = false;
          };
          std::thread other(some, 1);
          some(0);
          other.join();
        },
};
struct Host {
  explicit Host(const HostThreads& threads = two_threads) { set_host_threads(&threads); }
  ~Host() { set_host_threads(nullptr); }
};

TEST(Parallel, WorkRunsOnTheHostsThreads) {
  const Host host;
  loops = 0;
  EXPECT_EQ(num_threads(), lent);
  for (const int workers : {1, 2, 5}) {
    std::vector<std::atomic<int>> seen(1000);
    parallel_items(1000, workers, [&](int, std::int64_t item) {
      EXPECT_EQ(is_lent, workers > 1);
      ++seen[static_cast<std::size_t>(item)];
    });
    for (const std::atomic<int>& times : seen) EXPECT_EQ(times, 1);
  }
  EXPECT_EQ(loops, 2);
  const test::ThreadsAtMost limit(1);
  EXPECT_EQ(num_threads(), 1);
}

TEST(Parallel, AnExceptionOnAHostsThreadReachesTheCaller) {
  const Host host;
  test::expect_error(
      ErrorCode::bad_value,
      [] {
        parallel_items(100, 2,
                       [](int, std::int64_t) { throw Error(ErrorCode::bad_value, "", "from a host's thread"); });
      },
      "from a host's thread");
}

TEST(Parallel, AttentionHasTheSameBitsOnAHostsThreads) {
  Generator generator(1);
  const Tensor x = generator.randn({2, 4, 200, 32});
  const Tensor expected = attention(x, x, x).out;
  const Host host;
  loops = 0;
  const Tensor got = attention(x, x, x).out;
  EXPECT_GT(loops, 0);
  EXPECT_TRUE(std::equal(got.data<float>(), got.data<float>() + got.count(), expected.data<float>()));
}

// The calling thread asks after each of its items here, and says yes after the second. Another one stays in its first
// item until the calling thread has left the loop.
std::latch* left_by_caller = nullptr;
const HostThreads one_beside{
    .count = [] { return lent; },
    .run =
        [](int, void (*work)(void*, int), void* context) {
          std::thread other(work, context, 1);
          work(context, 0);
          left_by_caller->count_down();
          other.join();
        },
};

TEST(Parallel, AnInterruptEndsTheLoopOnTheCallingThread) {
  const test::RacingClock clock;
  const Host host(one_beside);
  const std::thread::id caller = std::this_thread::get_id();
  for (const int workers : {1, 2}) {
    int asked = 0;
    std::latch left{1};
    left_by_caller = &left;
    std::atomic<int> items{0};
    const InterruptCheck outer([] { return false; });
    const InterruptCheck check([&] {
      EXPECT_EQ(std::this_thread::get_id(), caller);
      return ++asked == 2;
    });
    test::expect_error(
        ErrorCode::interrupted,
        [&] {
          parallel_items(1'000'000, workers, [&](int, std::int64_t) {
            ++items;
            if (std::this_thread::get_id() != caller) left.wait();
          });
        },
        "interrupted");
    EXPECT_EQ(asked, 2);
    EXPECT_LE(items, 1 + workers);
  }
  int ranges = 0;  // none is left behind: what follows is not asked
  parallel_items(50, 1, [&](int, std::int64_t) { ++ranges; });
  EXPECT_EQ(ranges, 50);
}

// On one thread, so that it is the one that asks.
TEST(Parallel, AnInterruptReachesAttention) {
  const test::ThreadsAtMost limit(1);
  const test::RacingClock clock;
  const Tensor x({4, 256, 64}, DType::f64);
  const InterruptCheck check([] { return true; });
  test::expect_error(
      ErrorCode::interrupted, [&] { attention(x, x, x); }, "interrupted");
}

// What one thread keeps no other gets, whether its own tensors began or ended within the scope.
TEST(Parallel, MemoryIsReusedOnItsOwnThreadAlone) {
  const Dims large{256, 256};
  const MemoryReuse reuse;
  const void *kept = nullptr, *here = nullptr;  // addresses of what is given back at once
  kept = Tensor::uninitialized(large).raw();
  Tensor made_here = Tensor::uninitialized(large), made_there;
  EXPECT_EQ(made_here.raw(), kept);
  here = Tensor::uninitialized(large).raw();
  std::thread([&] {
    made_there = Tensor::uninitialized(large);
    EXPECT_NE(made_there.raw(), here);
    made_here = Tensor();
  }).join();
  made_there = Tensor();
}

}  // namespace
}  // namespace attend
