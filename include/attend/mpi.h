// Ranks of a ring over MPI 3, in a library of its own: libattend_mpi (CMake: attend::mpi).
#pragma once

#if !__has_include(<mpi.h>)
#error "attend/mpi.h needs MPI 3: install it (Debian: libopenmpi-dev), and link attend::mpi or compile with mpicxx"
#else
#include <mpi.h>

#include <cstdint>
#include <memory>
#include <string_view>

#include "attend/api.h"
#include "attend/ring.h"

namespace attend::inline v1 {

// The ranks of a communicator. The caller calls MPI_Init_thread (MPI_THREAD_FUNNELED or more) and MPI_Finalize.
//
//     MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
//     {
//       MpiRanks ranks(MPI_COMM_WORLD);
//       ring_attention(ranks, q, k, v, sharding, options);
//     }
//     MPI_Finalize();
//
// MPI errors are thrown as lost_rank with MPI's message. With most installations mpirun kills all ranks when one dies,
// so nothing is thrown.
class ATTEND_API MpiRanks final : public RingTransport {
 public:
  // Uses duplicates of `comm`, so its messages never meet the caller's. Every rank of comm creates one, and destroys it
  // before MPI_Finalize. Throws bad_value if MPI is not initialised, or from another thread with MPI_THREAD_SINGLE or
  // FUNNELED.
  explicit MpiRanks(MPI_Comm comm);
  MpiRanks(const MpiRanks&) = delete;
  MpiRanks& operator=(const MpiRanks&) = delete;
  ~MpiRanks() override;

  int rank() const override;
  int size() const override;
  std::int64_t send(int to, int tag, const void* data, std::int64_t bytes) override;
  std::int64_t receive(int from, int tag, void* data, std::int64_t bytes) override;
  bool test(std::int64_t request) override;
  // Cancels unfinished transfers, here and where an abandoned rank's test() throws, so no late message reaches reused
  // memory. The ranks can't be used afterwards.
  void abandon(std::string_view reason) noexcept override;
  // With MPI_THREAD_FUNNELED or more.
  bool overlaps() const override;

  // MPI_Query_thread's level: "single", "funneled", "serialized" or "multiple".
  std::string_view thread_level() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace attend::inline v1

#endif
