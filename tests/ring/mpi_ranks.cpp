// Ranks over MPI: mpirun starts several of this program, each of which runs every test. attend_mpi_tests COUNT fails
// unless there are so many of them.
#include "attend/mpi.h"

#include <gmock/gmock.h>

#include <cstdio>
#include <cstdlib>
#include <thread>

#include "attend/threads.h"
#include "tests/ring/ranks.h"

namespace attend {
namespace {

using namespace test;
using testing::HasSubstr;

void wait_for(RingTransport& ranks, std::int64_t request) {
  while (!ranks.test(request)) std::this_thread::yield();
}

std::vector<unsigned char> message(int from, int to, std::int64_t bytes) {
  std::vector<unsigned char> text(static_cast<std::size_t>(bytes));
  for (std::size_t n = 0; n < text.size(); ++n)
    text[n] = static_cast<unsigned char>(n * 31 + static_cast<std::size_t>(from * 7 + to));
  return text;
}

TEST(MpiRanks, SaysWhoIsWho) {
  const MpiRanks ranks(MPI_COMM_WORLD);
  int rank = -1, size = -1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  EXPECT_EQ(ranks.rank(), rank);
  EXPECT_EQ(ranks.size(), size);
  EXPECT_EQ(ranks.thread_level(), "funneled");
  EXPECT_TRUE(ranks.overlaps());
}

// Nothing, a little, and more than what MPI sends without being asked for it; several with one tag, and the last tag.
TEST(MpiRanks, PassesMessagesOn) {
  MpiRanks ranks(MPI_COMM_WORLD);
  constexpr std::int64_t sizes[] = {0, 1, 4096, 3 << 20};
  constexpr int tags[] = {0, 7, 7, 32767};
  const int P = ranks.size(), right = (ranks.rank() + 1) % P, left = (ranks.rank() + P - 1) % P;
  std::vector<std::vector<unsigned char>> out, in;
  std::vector<std::int64_t> requests;
  for (const std::int64_t size : sizes) {
    out.push_back(message(ranks.rank(), right, size));
    in.emplace_back(static_cast<std::size_t>(size));
  }
  for (std::size_t n = 0; n < out.size(); ++n) {
    requests.push_back(ranks.receive(left, tags[n], in[n].data(), sizes[n]));
    requests.push_back(ranks.send(right, tags[n], out[n].data(), sizes[n]));
  }
  for (const std::int64_t request : requests) wait_for(ranks, request);
  for (std::size_t n = 0; n < in.size(); ++n) EXPECT_EQ(in[n], message(left, ranks.rank(), sizes[n]));
}

// Of a count that MPI's int doesn't hold. It takes 5 GB of memory for two ranks: only where it is asked for.
TEST(MpiRanks, PassesLongMessagesOnInParts) {
  MpiRanks ranks(MPI_COMM_WORLD);
  if (std::getenv("ATTEND_TEST_LONG_MESSAGES") == nullptr) GTEST_SKIP() << "ATTEND_TEST_LONG_MESSAGES is not set";
  if (ranks.size() != 2) GTEST_SKIP() << "for two ranks";
  const std::int64_t size = (std::int64_t{5} << 29) + 3;
  std::vector<unsigned char> text(static_cast<std::size_t>(size));
  if (ranks.rank() == 0) {
    text = message(0, 1, size);
    wait_for(ranks, ranks.send(1, 3, text.data(), size));
  } else {
    wait_for(ranks, ranks.receive(0, 3, text.data(), size));
    EXPECT_TRUE(text == message(0, 1, size));
  }
}

// Of the caller's communicator, with the same tag: they never meet.
TEST(MpiRanks, LeavesTheCallersMessagesAlone) {
  MpiRanks ranks(MPI_COMM_WORLD);
  const int P = ranks.size(), right = (ranks.rank() + 1) % P, left = (ranks.rank() + P - 1) % P;
  int theirs = 1, ours = 2, from_theirs = 0, from_ours = 0;
  MPI_Request sent;
  MPI_Isend(&theirs, sizeof theirs, MPI_BYTE, right, 5, MPI_COMM_WORLD, &sent);
  const std::int64_t receive = ranks.receive(left, 5, &from_ours, sizeof from_ours);
  const std::int64_t send = ranks.send(right, 5, &ours, sizeof ours);
  wait_for(ranks, receive);
  wait_for(ranks, send);
  MPI_Recv(&from_theirs, sizeof from_theirs, MPI_BYTE, left, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Wait(&sent, MPI_STATUS_IGNORE);
  EXPECT_EQ(from_ours, 2);
  EXPECT_EQ(from_theirs, 1);
}

// Those that wait for a rank which gives up learn why, and what they waited for comes no more.
TEST(MpiRanks, TellsThatOneHasGivenUp) {
  MpiRanks ranks(MPI_COMM_WORLD);
  const int last = ranks.size() - 1;
  std::vector<char> memory(1 << 20);
  if (ranks.rank() == last) {
    ranks.abandon("its memory is full");
    EXPECT_THROW(ranks.send(0, 1, memory.data(), 8), Error);
  } else {
    const std::int64_t request = ranks.receive(last, 1, memory.data(), std::ssize(memory));
    try {
      wait_for(ranks, request);
      ADD_FAILURE() << "it came";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::lost_rank);
      EXPECT_EQ(error.what(), "rank " + std::to_string(last) + " has given up: its memory is full");
    }
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST(MpiRanks, TakesACommunicatorOfRanks) {
  try {
    MpiRanks ranks(MPI_COMM_NULL);
    ADD_FAILURE() << "it was taken";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "MpiRanks: comm is MPI_COMM_NULL");
  }
}

// This rank's rows of a call, forward and backward, beside those of one process.
void expect_the_bits_of_one_process(const Call& x, const RingSharding& sharding) {
  MpiRanks ranks(MPI_COMM_WORLD);
  const int rank = ranks.rank();
  const AttentionResult whole = x.run({.lse_low = true});
  const Tensor dout = Generator(11).normal(whole.out.shape(), 0, 1).view().to(x.Q.dtype());
  BackwardOptions backward{.lse_low = whole.lse_low->view()};
  const AttentionGradients expected =
      attention_backward(dout, x.Q, x.K, x.V, whole.out, whole.lse, x.options, backward);

  const Share share(x, sharding, rank);
  const AttentionResult result = ring_attention(ranks, share.q, share.k, share.v, sharding, share.options);
  const Tensor own_dout = ring_shard(dout, 2, sharding.queries, rank);
  backward.lse_low = result.lse_low->view();
  const AttentionGradients gradients = ring_attention_backward(ranks, own_dout, share.q, share.k, share.v, result.out,
                                                               result.lse, sharding, share.options, backward);
  const auto same = [&](const Tensor& own, const Tensor& all, const std::vector<std::vector<Range>>& runs,
                        const char* name) {
    expect_same(own, ring_shard(all, 2, runs, rank), x.what + ", " + name + " of rank " + std::to_string(rank));
  };
  same(result.out, whole.out, sharding.queries, "out");
  same(result.lse, whole.lse, sharding.queries, "lse");
  same(gradients.dq, expected.dq, sharding.queries, "dq");
  same(gradients.dk, expected.dk, sharding.keys, "dk");
  same(gradients.dv, expected.dv, sharding.keys, "dv");
}

TEST(MpiRing, HasTheBitsOfOneProcess) {
  int size = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const std::int64_t T = 1536;  // whole tiles for all; of 8 ranks in zigzag some have none
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const unsigned wanted :
         {0u, unsigned{with_causal}, unsigned{with_window | with_sinks}, unsigned{with_mask | with_softcap},
          unsigned{with_bias | with_lengths}, unsigned{with_dropout | with_alibi}}) {
      const Call x = make_call({1, 2, 1, T, T, 16, 8}, wanted, dtype, 3 + wanted);
      expect_the_bits_of_one_process(x, RingSharding::contiguous(size, T, T));
      expect_the_bits_of_one_process(x, RingSharding::zigzag(size, T, T));
    }
  }
}

// Sequences that begin with tiles, and end within ranks.
TEST(MpiRing, HasThemOfManySequences) {
  int size = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const std::int64_t T = 1536;
  const Tensor starts = whole_numbers({0, 576, 768, 768, T});
  for (const unsigned wanted : {unsigned{with_causal}, unsigned{with_dropout | with_window}}) {
    Call x = make_call({1, 2, 1, T, T, 16, 8}, wanted, DType::f32, 4);
    x.options.query_starts = x.options.key_starts = starts.view();
    expect_the_bits_of_one_process(x, RingSharding::contiguous(size, T, T));
  }
}

// Every rank says the same of what disagrees, and before anything is computed; the ranks are of use after it.
TEST(MpiRing, NamesWhatDisagrees) {
  MpiRanks ranks(MPI_COMM_WORLD);
  const int P = ranks.size(), last = P - 1;
  if (P == 1) GTEST_SKIP() << "for several ranks";
  const std::int64_t T = 192 * P;
  const RingSharding sharding = RingSharding::contiguous(P, T, T);
  const Tensor x({1, 1, 192, 8});
  try {
    ring_attention(ranks, x, x, x, sharding, {.causal = ranks.rank() == last});
    ADD_FAILURE() << "it was computed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_value);
    EXPECT_THAT(error.what(), HasSubstr("causal"));
    EXPECT_THAT(error.what(), HasSubstr(std::to_string(last)));
  }
  EXPECT_NO_THROW(ring_attention(ranks, x, x, x, sharding));
}

}  // namespace
}  // namespace attend

int main(int argc, char** argv) {
  int level = MPI_THREAD_SINGLE, size = 0, rank = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank > 0) testing::GTEST_FLAG(brief) = true;  // one tells what passes, all tell what fails
  testing::InitGoogleTest(&argc, argv);
  if (argc > 1 && std::to_string(size) != argv[1]) {
    std::fprintf(stderr, "%d ranks, expected %s: another MPI's mpirun?\n", size, argv[1]);
    return 1;
  }
  attend::set_num_threads(1);
  const int failed = RUN_ALL_TESTS();
  MPI_Finalize();
  return failed;
}
