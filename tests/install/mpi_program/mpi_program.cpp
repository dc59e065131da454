#include <attend/attend.h>
#include <attend/mpi.h>

#include <cstdio>

// Each rank has 192 tokens of all.
int main(int argc, char** argv) {
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
  {
    attend::MpiRanks ranks(MPI_COMM_WORLD);
    const std::int64_t tokens = 192 * ranks.size();
    const auto sharding = attend::RingSharding::contiguous(ranks.size(), tokens, tokens);
    attend::Tensor x({192, 8});
    for (std::int64_t i = 0; i < x.count(); ++i) x.data<float>()[i] = 1;
    const attend::Tensor out = attend::ring_attention(ranks, x, x, x, sharding).out;
    if (ranks.rank() == 0) std::printf("%d ranks, %.1f\n", ranks.size(), out.item({0, 0}));
  }
  MPI_Finalize();
}
