// Ranks of a ring over MPI: a library of its own, libattend_mpi (CMake: attend::mpi), which needs MPI 3. The rest of
// attend has no MPI in it.
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

namespace attend::inline v0 {

// The ranks of a communicator. The caller calls MPI_Init_thread, from MPI_THREAD_FUNNELED on, and MPI_Finalize.
//
//   MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
//   {
//     MpiRanks ranks(MPI_COMM_WORLD);
//     ring_attention(ranks, q, k, v, sharding, options);
//   }
//   MPI_Finalize();
//
// What goes wrong in MPI is thrown as lost_rank, in MPI's own words. Most installations end the whole job where a rank
// dies: mpirun kills the others, and nothing is left to be thrown.
class ATTEND_API MpiRanks final : public RingTransport {
 public:
  // Works on duplicates of `comm`, so that its messages meet none of the caller's. Every rank of it makes one, and
  // destroys it, before MPI_Finalize. Throws bad_value where MPI is not initialised, or by another thread with
  // MPI_THREAD_SINGLE or FUNNELED.
  explicit MpiRanks(MPI_Comm comm);
  MpiRanks(const MpiRanks&) = delete;
  MpiRanks& operator=(const MpiRanks&) = delete;
  ~MpiRanks() override;

  int rank() const override;
  int size() const override;
  std::int64_t send(int to, int tag, const void* data, std::int64_t bytes) override;
  std::int64_t receive(int from, int tag, void* data, std::int64_t bytes) override;
  bool test(std::int64_t request) override;
  // What was begun and isn't done is cancelled, here and where an abandoned rank's test() throws: no message comes into
  // memory that is used for something else by then. The ranks are of no use any more: make no new calls with them.
  void abandon(std::string_view reason) noexcept override;
  // From MPI_THREAD_FUNNELED on.
  bool overlaps() const override;

  // What MPI_Query_thread says: "single", "funneled", "serialized" or "multiple".
  std::string_view thread_level() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace attend::inline v0

#endif
