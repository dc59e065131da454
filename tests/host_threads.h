// Threads that a program lends, whose number changes while a call runs: at places of the call, not at times.
#pragma once

#include <array>
#include <atomic>
#include <climits>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "attend/threads.h"
#include "tests/expect.h"

namespace attend::test {

// The calling thread does all workers' work, and `count` answers another number each time: for a call alone, the same
// ones in the same places in every run.
inline std::atomic<std::size_t> times_asked{0};
inline const HostThreads another_count_each_time{
    .count =
        [] {
          constexpr std::array counts{2, 7, 1, 12, 3, 5};
          return counts[times_asked++ % counts.size()];
        },
    .run =
        [](int workers, void (*work)(void*, int), void* context) {
          for (int worker = 0; worker < workers; ++worker) work(context, worker);
        },
};

// Another thread than the caller's does all of the work, and there `count` answers another number.
inline thread_local bool is_lent = false;
inline const HostThreads another_count_on_workers{
    .count = [] { return is_lent ? 9 : 2; },
    .run =
        [](int workers, void (*work)(void*, int), void* context) {
          std::thread other([=] {
            is_lent = true;
            for (int worker = 1; worker < workers; ++worker) work(context, worker);
          });
          other.join();
          work(context, 0);
        },
};

// While it lives, the library's work runs on a host's threads.
struct LentThreads {
  explicit LentThreads(const HostThreads& threads) { set_host_threads(&threads); }
  ~LentThreads() { set_host_threads(nullptr); }
  LentThreads(const LentThreads&) = delete;
  LentThreads& operator=(const LentThreads&) = delete;
};

// While it lives, another thread sets the program's number of threads, over and over.
class ChangingNumber {
 public:
  ChangingNumber()
      : thread_([this] {
          for (int number = 1; !ended_; number = number % 8 + 1) {
            set_num_threads(number);
            std::this_thread::yield();
          }
        }) {}
  ~ChangingNumber() {
    ended_ = true;
    thread_.join();
    set_num_threads(INT_MAX);
  }
  ChangingNumber(const ChangingNumber&) = delete;
  ChangingNumber& operator=(const ChangingNumber&) = delete;

 private:
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

// A function of the library, on sizes that have several pieces of work for any number of threads, and its results.
struct Public {
  std::string name;
  std::function<std::vector<Tensor>()> call;
};

template <class... X>
std::vector<Tensor> results(const X&... x) {
  std::vector<Tensor> list;
  (list.push_back(View(x).clone()), ...);
  return list;
}

// The results have the bits that they have undisturbed while the number of threads changes, in each of the ways.
inline void expect_undisturbed(const std::vector<Public>& functions) {
  for (const Public& each : functions) {
    const std::vector<Tensor> expected = each.call();
    const auto expect_expected = [&](const std::string& how) {
      const std::vector<Tensor> got = each.call();
      ASSERT_EQ(got.size(), expected.size());
      for (std::size_t n = 0; n < got.size(); ++n)
        expect_same(got[n], expected[n], each.name + ", result " + std::to_string(n) + ": " + how);
    };
    for (std::size_t first = 0; first < 6; ++first) {  // so that each question of the call gets each of the answers
      const LentThreads lent(another_count_each_time);
      times_asked = first;
      expect_expected("another count each time");
    }
    {
      const LentThreads lent(another_count_on_workers);
      expect_expected("another count on workers");
    }
    const ChangingNumber changing;
    expect_expected("set_num_threads() beside the call");
  }
}

}  // namespace attend::test
