// In a host program that has threads of its own: oneTBB's, or some that it lends.
#include <oneapi/tbb/flow_graph.h>
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <mutex>
#include <thread>
#include <utility>

#include "attend/random.h"
#include "core/parallel.h"
#include "tests/expect.h"
#include "tests/host_threads.h"

namespace attend {
namespace {

using namespace test;

// ---- A host's own oneTBB ----

thread_local bool in_a_call = false;

// A task of the host's for which it locks a mutex. oneTBB takes it, of the tasks that a thread may take, before all
// others (it has a priority): a thread that calls the library, and may take the host's tasks there, takes this one.
class HostsTask {
 public:
  void post() { node_.try_put(0); }
  // Until all that was posted has run.
  void finish() { graph_.wait_for_all(); }

  std::mutex mutex;
  int runs = 0;
  bool would_wait_for_ever = false;  // for the mutex, which its own thread holds

 private:
  void run() {
    if (in_a_call) {
      would_wait_for_ever = true;
      return;
    }
    const std::lock_guard lock(mutex);
    ++runs;
  }

  tbb::flow::graph graph_;
  tbb::flow::function_node<int> node_{graph_, tbb::flow::unlimited, [this](int) { run(); },
                                      tbb::flow::node_priority_t(1)};
};

// The host holds the mutex while it calls the library.
template <class Call>
void expect_no_task_within(Call call) {
  HostsTask task;
  task.post();
  {
    const std::lock_guard lock(task.mutex);
    in_a_call = true;
    call();
    in_a_call = false;
  }
  task.finish();
  EXPECT_FALSE(task.would_wait_for_ever);
  EXPECT_EQ(task.runs, 1);
}

// In an arena with a place for two threads of the program's and none for oneTBB's: this thread is alone in it, and what
// it takes does not depend on others.
template <class Body>
void alone_in_an_arena(Body body) {
  const tbb::global_control two(tbb::global_control::max_allowed_parallelism, 2);
  tbb::task_arena(2, 2).execute(body);
}

// First, as a process does what it does for its first call.
TEST(HostTbb, NoTaskOfItsRunsWithinACall) {
  const Tensor x = Generator(1).randn({2, 4, 200, 32}), weight = Generator(2).randn({512, 512});
  const Linear layer = Linear::borrow(weight);
  alone_in_an_arena([&] {
    EXPECT_EQ(num_threads(), 2);
    expect_no_task_within([&] { parallel_for(100, 1, [](std::int64_t, std::int64_t) {}); });
    expect_no_task_within([&] { attention(x, x, x); });
    expect_no_task_within([&] { layer.forward(weight.view().slice(0, 0, 3)); });
    expect_no_task_within([&] {
      const AttentionResult forward = attention(x, x, x);
      attention_backward(forward.out, x, x, x, forward.out, forward.lse);
    });
    // A loop in a loop.
    expect_no_task_within(
        [&] { parallel_for(4, 1, [&](std::int64_t, std::int64_t) { layer.forward(weight.view().slice(0, 0, 3)); }); });
  });
}

// Tasks that call the library, in the same arena, from several threads; some hold a mutex while they do, for which
// others wait.
TEST(HostTbb, ItsTasksMayCallTheLibrary) {
  const Tensor x = Generator(1).randn({2, 4, 200, 32}), expected = attention(x, x, x).out;
  const tbb::global_control four(tbb::global_control::max_allowed_parallelism, 4);
  std::mutex mutex;
  std::atomic<int> equal{0}, would_wait_for_ever{0};
  tbb::task_arena(4).execute([&] {
    tbb::parallel_for(0, 64, [&](int n) {
      if (in_a_call) {
        ++would_wait_for_ever;
        return;
      }
      std::unique_lock lock(mutex, std::defer_lock);
      if (n % 2 == 0) lock.lock();
      in_a_call = true;
      const Tensor got = std::move(attention(x, x, x).out);
      in_a_call = false;
      equal += std::equal(got.data<float>(), got.data<float>() + got.count(), expected.data<float>());
    });
  });
  EXPECT_EQ(would_wait_for_ever, 0);
  EXPECT_EQ(equal, 64);
}

// ---- What a thread's calls go by ----

int hosts_own_number = 0;

// On all threads the work has the call's number of threads, and what else the host does there has its own.
TEST(Host, WorkGoesByItsOwnCallAlone) {
  const HostThreads lent{
      .count = [] { return 5; },
      .run =
          [](int workers, void (*work)(void*, int), void* context) {
            hosts_own_number = num_threads();
            std::thread([=] {
              const ThreadLimit of_something_else(3);
              work(context, 1);
              EXPECT_EQ(num_threads(), 3);
            }).join();
            for (int worker = 0; worker < workers; worker += 2) work(context, worker);
          },
  };
  const LentThreads threads(lent);
  const ThreadLimit limit(2);
  int items = 0;
  parallel_items(4, 2, [&](int, std::int64_t) {
    EXPECT_EQ(num_threads(), 2);
    ++items;
  });
  EXPECT_EQ(items, 4);
  EXPECT_EQ(hosts_own_number, 5);
  EXPECT_EQ(num_threads(), 2);
}

std::atomic<int> others_asked{0};

// A lent thread may have a check for something else: the call that it works for does not ask it.
TEST(Host, ACallAsksTheCheckOfItsOwnThreadAlone) {
  const HostThreads lent{
      .count = [] { return 2; },
      .run =
          [](int, void (*work)(void*, int), void* context) {
            std::thread other([=] {
              const InterruptCheck of_something_else([] {
                ++others_asked;
                return true;
              });
              work(context, 1);
            });
            work(context, 0);
            other.join();
          },
  };
  const LentThreads threads(lent);
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<std::int64_t> items_there{0};
  int asked = 0;
  // Checks are asked now and then. When this one is for the third time, and the other thread has ended two items more
  // each time, the other's, had it been asked after its items, would have been too.
  const InterruptCheck check([&] {
    const std::int64_t seen = items_there;
    while (items_there < seen + 2 && others_asked == 0) std::this_thread::yield();
    return ++asked == 3;
  });
  expect_error(
      ErrorCode::interrupted,
      [&] {
        parallel_items(std::int64_t{1} << 60, 2, [&](int, std::int64_t) {
          if (std::this_thread::get_id() != caller) ++items_there;
          std::this_thread::yield();
        });
      },
      "interrupted");
  EXPECT_EQ(asked, 3);
  EXPECT_EQ(others_asked, 0);
}

}  // namespace
}  // namespace attend
