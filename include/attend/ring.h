// Attention over a sequence that no single machine holds: each rank (a process, mostly on a machine of its own) has
// some of the queries and some of the keys and values. Keys and values pass from rank to rank, in pieces and in the
// order of the sequence; a row's sums are carried on from piece to piece (Liu et al. 2023, "Ring Attention with
// Blockwise Transformers"; the order is ours: docs/ring.md). So nobody ever holds all keys, and where shares begin at
// whole tiles the bits are those of attention() on one machine.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "attend/api.h"
#include "attend/attention.h"
#include "attend/tensor.h"

namespace attend::inline v0 {

// How ranks send each other bytes. attend/mpi.h has one over MPI, the Python package one over torch.distributed,
// threads_as_ranks() one for threads. The library calls it from the thread that makes the call, and from no other.
class ATTEND_API RingTransport {
 public:
  virtual ~RingTransport() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Begin to pass `bytes` bytes (0 or more) on, and return a number for test(). The memory stays in use until test()
  // says true. A receive takes the message that has its sender and tag; of several, the one that was sent first, which
  // has its size. Tags are 0 <= tag < 2^15. A rank sends nothing to itself.
  virtual std::int64_t send(int to, int tag, const void* data, std::int64_t bytes) = 0;
  virtual std::int64_t receive(int from, int tag, void* data, std::int64_t bytes) = 0;
  // Whether it is done; true once, the number is then forgotten. Returns at once. Throws Error (lost_rank, naming the
  // rank and why) where it can't be done any more: a rank is gone, or has abandoned the others.
  virtual bool test(std::int64_t request) = 0;
  // This rank can't go on with what has begun: the others' test() throws from now on, with the reason. What it has
  // begun is no longer read or written, as far as that can be helped.
  virtual void abandon(std::string_view reason) noexcept = 0;
  // Whether other threads of this process may compute while a call is made. Else nothing is sent meanwhile.
  virtual bool overlaps() const { return true; }
};

// Ranks that are threads of this process: one transport for each, to be used by one thread at a time. One that is
// destroyed is a rank that is gone.
ATTEND_API std::vector<std::unique_ptr<RingTransport>> threads_as_ranks(int ranks);

// Which positions of the sequence each rank has, as runs of consecutive ones, rising. A rank's tensors hold its runs
// one after another. Every position is in one run of one rank.
struct ATTEND_API RingSharding {
  std::vector<std::vector<Range>> queries, keys;  // [rank][run]

  int ranks() const { return static_cast<int>(queries.size()); }
  std::int64_t Tq() const;
  std::int64_t Tk() const;

  // One run for each rank, as even as whole tiles (192 positions) allow.
  static RingSharding contiguous(int ranks, std::int64_t queries, std::int64_t keys);
  // Two: rank r has the parts r and 2 ranks - 1 - r of 2 ranks. With causal all have as much to do.
  static RingSharding zigzag(int ranks, std::int64_t queries, std::int64_t keys);
};

// A rank's share of the axis `axis` of x, a copy: its runs one after another. Throws bad_shape unless the axis has as
// many elements as the runs of all ranks.
ATTEND_API Tensor ring_shard(const View& x, int axis, const std::vector<std::vector<Range>>& runs, int rank);
// The whole again, of all ranks' shares.
ATTEND_API Tensor ring_unshard(const std::vector<View>& shares, int axis, const std::vector<std::vector<Range>>& runs);

// What else both passes may be told. Every rank must say the same.
struct ATTEND_API RingOptions {
  // Keys of a piece, at most; a multiple of 192. 0: chosen. Fewer keep ranks busy from earlier on, and cost more for
  // each.
  std::int64_t piece_keys = 0;
};

// This rank's rows of attention(q, k, v, options) over the whole sequence. q [B,H,Tq_local,D], k [B,Hkv,Tk_local,D],
// v [B,Hkv,Tk_local,Dv], of this rank's positions; f32, bf16 or f16; leading axes may be left out of all three. The
// result is out [B,H,Tq_local,Dv], lse and lse_low [B,H,Tq_local].
// Every rank calls it, with the same options and sharding. What options say is of the whole sequence: offset,
// key_lengths, query_starts, key_starts, dropout's places. mask and bias are each rank's rows, broadcast to
// [B,H,Tq_local,Tk].
// Throws what attention() throws, and bad_value where ranks disagree, naming them, the argument and both values: before
// anything is computed, on every rank. lost_rank where a rank is gone. An error of one rank is an error of all.
// Bits: run after run the same for a sharding. Where its runs begin at multiples of 64 keys (of their sequence, with
// key_starts), those of attention() in one process, for any number of ranks; but for sequences that take its decode
// path (docs/ring.md).
ATTEND_API AttentionResult ring_attention(RingTransport& ranks, const View& q, const View& k, const View& v,
                                          const RingSharding& sharding, const AttentionOptions& options = {},
                                          const RingOptions& ring = {});

// This rank's gradients: dq of its queries, dk and dv of its keys, summed over all ranks' queries. dout and out are
// this rank's rows; lse and lse_low (in `backward`, required) as ring_attention() gave them. Bits as above, where runs
// of keys begin at multiples of 48, and of queries at multiples of 64; rows whose lse is 2^31 or more are close.
// dsinks, dalibi_slopes, ddistance_bias, and dbias along axes that ranks share, are what this rank's rows add to them:
// ring_sum() makes the whole of them.
ATTEND_API AttentionGradients ring_attention_backward(RingTransport& ranks, const View& dout, const View& q,
                                                      const View& k, const View& v, const View& out, const View& lse,
                                                      const RingSharding& sharding, const AttentionOptions& options,
                                                      const BackwardOptions& backward, const RingOptions& ring = {});

// x becomes the sum of all ranks' x, in f32 (f64 for f64), added in the order of the ranks: the same bits on every
// rank.
ATTEND_API void ring_sum(RingTransport& ranks, const MutableView& x);

// What a rank computes and sends.
struct ATTEND_API RingRankPlan {
  std::int64_t share_bytes = 0;      // of q, k, v and out (backward: dout, dq, dk and dv too)
  std::int64_t in_flight_bytes = 0;  // of the pieces that it holds, at most
  std::int64_t state_bytes = 0;      // of its rows' sums
  std::int64_t sent_bytes = 0, received_bytes = 0;
  std::int64_t sends = 0;  // messages
  double flops = 0;        // useful ones, as in AttentionPlan
  double seconds = 0;      // when it is done
};

// What the prediction of seconds is made from.
struct ATTEND_API RingCosts {
  double flops_per_second = 100e9;   // of a rank
  double bytes_per_second = 1.25e9;  // that a rank sends and, at once, receives
  double latency_seconds = 50e-6;    // of a message
};

struct ATTEND_API RingPlan {
  std::int64_t piece_keys = 0;
  std::vector<RingRankPlan> ranks;
  double seconds = 0;     // until the last one is done
  double efficiency = 0;  // flops of all / (ranks * flops_per_second * seconds)
};

// What ring_attention() (and with `backward` ring_attention_backward()) does with shapes of the whole sequence, as in
// plan(). Throws what ring_attention() throws.
ATTEND_API RingPlan plan_ring(const Dims& q, const Dims& k, const Dims& v, DType dtype, const RingSharding& sharding,
                              const AttentionOptions& options = {}, bool backward = false, const RingCosts& costs = {},
                              const RingOptions& ring = {});

}  // namespace attend::inline v0
