// Times one forward and one backward: alone by attention(), under mpirun by ring_attention(). Usage: ring_bench
// HEADS TOKENS D CAUSAL(0|1) THREADS TIMES. Prints a line of milliseconds for each time: forward, backward; and the
// checksum of the first result's bits, which is the same for any number of ranks. benchmarks/ring.py drives it.
#include <mpi.h>
#include <sys/resource.h>

#include <bit>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>

#include "attend/attention.h"
#include "attend/mpi.h"
#include "attend/random.h"
#include "attend/threads.h"

namespace {

using namespace attend;

std::int64_t number(const char* text) {
  return std::strtoll(text, nullptr, 10);
}

double milliseconds(const std::function<void()>& body) {
  MPI_Barrier(MPI_COMM_WORLD);
  const auto begin = std::chrono::steady_clock::now();
  body();
  const std::chrono::duration<double, std::milli> own = std::chrono::steady_clock::now() - begin;
  double most = own.count();
  MPI_Allreduce(MPI_IN_PLACE, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return most;
}

// Sums of the words of floats: the shares' sums add up to the whole's.
std::uint64_t checksum(const Tensor& x) {
  std::uint64_t sum = 0;
  for (std::int64_t i = 0; i < x.count(); ++i) sum += std::bit_cast<std::uint32_t>(x.data<float>()[i]);
  MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
  return sum;
}

void measure(RingTransport& ranks, std::int64_t heads, std::int64_t tokens, std::int64_t D, bool causal, int times) {
  const RingSharding sharding = causal ? RingSharding::zigzag(ranks.size(), tokens, tokens)
                                       : RingSharding::contiguous(ranks.size(), tokens, tokens);
  Generator generator(1);
  const auto share = [&] {
    return ring_shard(generator.randn({1, heads, tokens, D}), 2, sharding.queries, ranks.rank());
  };
  const Tensor q = share(), k = share(), v = share(), dout = share();
  AttentionOptions options;
  options.causal = causal;
  for (int n = 0; n < times; ++n) {
    AttentionResult result;
    AttentionGradients gradients;
    const bool alone = ranks.size() == 1;
    const double forward = milliseconds([&] {
      result =
          alone ? attention(q, k, v, options, {.lse_low = true}) : ring_attention(ranks, q, k, v, sharding, options);
    });
    BackwardOptions given;
    given.lse_low = result.lse_low->view();
    const double backward = milliseconds([&] {
      gradients = alone
                      ? attention_backward(dout, q, k, v, result.out, result.lse, options, given)
                      : ring_attention_backward(ranks, dout, q, k, v, result.out, result.lse, sharding, options, given);
    });
    const std::uint64_t sum =
        checksum(result.out) + checksum(gradients.dq) + checksum(gradients.dk) + checksum(gradients.dv);
    if (ranks.rank() == 0) std::printf("%.2f %.2f %016llx\n", forward, backward, static_cast<unsigned long long>(sum));
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  long most = usage.ru_maxrss;
  MPI_Allreduce(MPI_IN_PLACE, &most, 1, MPI_LONG, MPI_MAX, MPI_COMM_WORLD);
  if (ranks.rank() == 0) std::printf("peak %ld KiB\n", most);
}

}  // namespace

int main(int argc, char** argv) {
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
  if (argc != 7) return 2;
  set_num_threads(static_cast<int>(number(argv[5])));
  {
    MpiRanks ranks(MPI_COMM_WORLD);
    measure(ranks, number(argv[1]), number(argv[2]), number(argv[3]), number(argv[4]) != 0,
            static_cast<int>(number(argv[6])));
  }
  MPI_Finalize();
}
