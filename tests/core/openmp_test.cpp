// In a host program whose loops are OpenMP's: beside them, in them, and on OpenMP's threads, which it lends.
#include <omp.h>

#include <string>
#include <utility>
#include <vector>

#include "attend/threads.h"
#include "tests/expect.h"
#include "tests/host_threads.h"

namespace attend {
namespace {

using namespace test;

// As a program lends them. Within a region the program may have set another number of threads for regions inside: that
// is what omp_get_max_threads() tells a worker (as it does with OMP_NUM_THREADS=2,4).
const HostThreads openmps{
    .count = [] { return omp_get_max_threads(); },
    .run =
        [](int workers, void (*work)(void*, int), void* context) {
#pragma omp parallel num_threads(workers)
          {
            omp_set_num_threads(9);
            for (int worker = omp_get_thread_num(); worker < workers; worker += omp_get_num_threads())
              work(context, worker);
          }
        },
};

struct NumberOfThreads {
  explicit NumberOfThreads(int number) : before_(omp_get_max_threads()) { omp_set_num_threads(number); }
  ~NumberOfThreads() { omp_set_num_threads(before_); }
  NumberOfThreads(const NumberOfThreads&) = delete;
  NumberOfThreads& operator=(const NumberOfThreads&) = delete;

 private:
  int before_;
};

std::vector<Public> functions() {
  static const Tensor x = Generator(1).randn({2, 4, 200, 32}), weight = Generator(2).normal({2048, 512}, 0, 1);
  static const Linear layer = Linear::borrow(weight);
  return {
      {"attention", [] { return results(attention(x, x, x).out); }},
      {"backward",
       [] {
         const AttentionResult forward = attention(x, x, x);
         return results(attention_backward(forward.out, x, x, x, forward.out, forward.lse).dq);
       }},
      {"Linear", [] { return results(layer.forward(weight.view().slice(0, 0, 5))); }},
  };
}

// Calls from the serial part of a program, from each thread of a region, and from one that holds OpenMP's lock.
void expect_the_same_everywhere(const std::string& whose) {
  const NumberOfThreads two(2);
  for (const Public& each : functions()) {
    const std::string what = each.name + " on " + whose + " threads";
    set_host_threads(nullptr);
    const Tensor expected = std::move(each.call()[0]);
    if (whose == "OpenMP's") set_host_threads(&openmps);
    expect_same(each.call()[0], expected, what);
    std::vector<Tensor> results(6);
#pragma omp parallel for num_threads(3)
    for (int n = 0; n < 6; ++n) {
      if (n % 2 == 0) {
        results[static_cast<std::size_t>(n)] = std::move(each.call()[0]);
      } else {
#pragma omp critical
        results[static_cast<std::size_t>(n)] = std::move(each.call()[0]);
      }
    }
    for (const Tensor& result : results) expect_same(result, expected, what + ", in a region");
  }
  set_host_threads(nullptr);
}

TEST(HostOpenMp, ItsLoopsMayCallTheLibrary) {
  expect_the_same_everywhere("oneTBB's");
}

TEST(HostOpenMp, ItsThreadsDoTheWork) {
  expect_the_same_everywhere("OpenMP's");
}

}  // namespace
}  // namespace attend
