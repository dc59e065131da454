// Attention over a sequence spread over several machines: each rank (a process) holds some queries, keys and values.
//
// Keys and values pass from rank to rank in pieces, in sequence order, and each row's sums continue from piece to piece
// (Liu et al. 2023, "Ring Attention with Blockwise Transformers"; the order is attend's own: docs/ring.md). No rank
// ever holds all keys. If shares begin at whole tiles, the bits are those of attention() on one machine.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "attend/api.h"
#include "attend/attention.h"
#include "attend/tensor.h"

namespace attend::inline v1 {

// How ranks exchange bytes. Implementations: attend/mpi.h (MPI), the Python package (torch.distributed),
// threads_as_ranks(). The library calls it only from the thread that makes the call.
class ATTEND_API RingTransport {
 public:
  virtual ~RingTransport() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Start to transfer `bytes` bytes (0 or more), and return a number for test(). The memory stays in use until test()
  // is true. A receive takes the message with its sender and tag, the earliest of several, of exactly that size. 0 <=
  // tag < 2^15. A rank never sends to itself.
  virtual std::int64_t send(int to, int tag, const void* data, std::int64_t bytes) = 0;
  virtual std::int64_t receive(int from, int tag, void* data, std::int64_t bytes) = 0;
  // Whether the transfer is done; true once, after which the number is forgotten. Returns at once. Throws lost_rank,
  // with the rank and the reason, if the transfer can't finish because a rank is gone or called abandon().
  virtual bool test(std::int64_t request) = 0;
  // This rank gives up: from now on the others' test() throws with the reason. As far as possible, transfers it began
  // no longer read or write memory.
  virtual void abandon(std::string_view reason) noexcept = 0;
  // Whether other threads may compute during a call. If not, nothing is sent meanwhile.
  virtual bool overlaps() const { return true; }
};

// Ranks that are threads of this process: one transport for each, used by one thread at a time. Destroying one means
// that the rank is gone.
ATTEND_API std::vector<std::unique_ptr<RingTransport>> threads_as_ranks(int ranks);

// The positions of each rank, as ascending runs of consecutive ones. A rank's tensors hold its runs one after another.
// Every position belongs to exactly one run.
struct ATTEND_API RingSharding {
  std::vector<std::vector<Range>> queries, keys;  // [rank][run]

  int ranks() const { return static_cast<int>(queries.size()); }
  std::int64_t Tq() const;
  std::int64_t Tk() const;

  // One run for each rank, as even as whole tiles (192 positions) allow.
  static RingSharding contiguous(int ranks, std::int64_t queries, std::int64_t keys);
  // Two runs: of 2 * ranks parts, rank r has parts r and 2 * ranks - 1 - r. This balances the work with causal.
  static RingSharding zigzag(int ranks, std::int64_t queries, std::int64_t keys);
};

// A copy of a rank's share of `axis` of x, its runs one after another. Throws bad_shape unless the axis has as many
// elements as all runs.
ATTEND_API Tensor ring_shard(const View& x, int axis, const std::vector<std::vector<Range>>& runs, int rank);
// Joins all ranks' shares again.
ATTEND_API Tensor ring_unshard(const std::vector<View>& shares, int axis, const std::vector<std::vector<Range>>& runs);

// More options of both passes, the same on every rank.
struct ATTEND_API RingOptions {
  // Most keys in a piece, a multiple of 192; 0: chosen. Smaller pieces keep ranks busy earlier, but cost more for each
  // key.
  std::int64_t piece_keys = 0;
};

// This rank's rows of attention(q, k, v, options) over the whole sequence. Every rank calls it with the same options
// and sharding. q [B,H,Tq_local,D], k [B,Hkv,Tk_local,D], v [B,Hkv,Tk_local,Dv] hold this rank's positions, in f32,
// bf16 or f16; all may lack leading axes. Gives out [B,H,Tq_local,Dv], lse and lse_low [B,H,Tq_local].
//
// Options refer to the whole sequence: offset, key_lengths, query_starts, key_starts, dropout's positions. Only mask
// and bias hold this rank's rows, broadcast to [B,H,Tq_local,Tk].
//
// Same errors as attention(). If ranks disagree, every rank throws bad_value before computing, with the ranks, the
// argument and both values. lost_rank if a rank is gone. An error on one rank is an error on all.
//
// Bits: the same in every run of a sharding. They are those of attention() in one process, for any number of ranks, if
// runs begin at multiples of 64 keys (within their sequence, with key_starts) and attention() does not take its decode
// path (docs/ring.md).
ATTEND_API AttentionResult ring_attention(RingTransport& ranks, const View& q, const View& k, const View& v,
                                          const RingSharding& sharding, const AttentionOptions& options = {},
                                          const RingOptions& ring = {});

// This rank's gradients: dq for its queries, dk and dv for its keys, summed over all ranks' queries. dout and out are
// this rank's rows; lse and lse_low (required in `backward`) come from ring_attention(). Bits as there, if key runs
// begin at multiples of 48 and query runs at multiples of 64; rows with lse of 2^31 or more are only close. dsinks,
// dalibi_slopes, ddistance_bias, and dbias along shared axes are this rank's contributions: ring_sum() adds them up.
ATTEND_API AttentionGradients ring_attention_backward(RingTransport& ranks, const View& dout, const View& q,
                                                      const View& k, const View& v, const View& out, const View& lse,
                                                      const RingSharding& sharding, const AttentionOptions& options,
                                                      const BackwardOptions& backward, const RingOptions& ring = {});

// x becomes the sum of all ranks' x, added in rank order in f32 (f64 for f64): the same bits on every rank.
ATTEND_API void ring_sum(RingTransport& ranks, const MutableView& x);

// What a rank computes and sends.
struct ATTEND_API RingRankPlan {
  std::int64_t share_bytes = 0;      // q, k, v and out (backward: also dout, dq, dk and dv)
  std::int64_t in_flight_bytes = 0;  // pieces that it holds, at most
  std::int64_t state_bytes = 0;      // its rows' sums
  std::int64_t sent_bytes = 0, received_bytes = 0;
  std::int64_t sends = 0;  // messages
  double flops = 0;        // useful ones, as in AttentionPlan
  double seconds = 0;      // until it is done
};

// Assumptions for predicting seconds.
struct ATTEND_API RingCosts {
  double flops_per_second = 100e9;   // for each rank
  double bytes_per_second = 1.25e9;  // a rank sends and, at the same time, receives
  double latency_seconds = 50e-6;    // for each message
};

struct ATTEND_API RingPlan {
  std::int64_t piece_keys = 0;
  std::vector<RingRankPlan> ranks;
  double seconds = 0;     // until the last rank is done
  double efficiency = 0;  // flops of all / (ranks * flops_per_second * seconds)
};

// The plan of ring_attention(), or with `backward` of ring_attention_backward(), for shapes of the whole sequence. Same
// errors as ring_attention().
ATTEND_API RingPlan plan_ring(const Dims& q, const Dims& k, const Dims& v, DType dtype, const RingSharding& sharding,
                              const AttentionOptions& options = {}, bool backward = false, const RingCosts& costs = {},
                              const RingOptions& ring = {});

}  // namespace attend::inline v1
