// Keys and values of a growing sequence, for decoding.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "attend/api.h"
#include "attend/attention.h"
#include "attend/tensor.h"

namespace attend::inline v0 {

// Keys [B,Hkv,T,D] and values [B,Hkv,T,Dv] whose T grows. They lie in blocks of 256 positions: appending never moves
// what is there, and forks share the blocks that are full.
//
// With dtype i8 each row of a head is kept as whole numbers from -127 to 127 and a scale in f32, its largest magnitude
// / 127: about half of bf16's memory, each element to half a scale. A row that is not finite counts as NaN, one below
// 1.5e-36 as zeros. Queries are f32, bf16 or f16; docs/numerics.md says what that changes.
//
// Any number of threads may use one at once. Each call works on the positions that it found when it began: attention()
// sees nothing of an append() or truncate() that runs beside it, and what it reads stays until it ends. Where two calls
// would change the cache at once, the second one throws bad_value and changes nothing.
class ATTEND_API KvCache {
 public:
  // dtype: f32, bf16, f16 or i8. Throws bad_value for a size below 1, bad_dtype.
  KvCache(std::int64_t batch, std::int64_t heads, std::int64_t d_k, std::int64_t d_v, DType dtype = DType::f32);
  // A copy is a fork of the whole length. What was moved from is an empty cache of the same sizes.
  KvCache(const KvCache& other);
  KvCache(KvCache&& other) noexcept;
  KvCache& operator=(const KvCache& other);
  KvCache& operator=(KvCache&& other) noexcept;
  ~KvCache();

  // k [B,Hkv,T,D], v [B,Hkv,T,Dv] after what is there; any strides and floating-point dtype, converted. Without B, or
  // without B and Hkv, where those are 1. Throws bad_shape, bad_dtype, out_of_memory; the cache is then as before.
  void append(const View& k, const View& v);
  // Forgets the positions from `length` on. Throws bad_value unless 0 <= length <= this->length().
  void truncate(std::int64_t length);
  // A cache of the first `length` positions. Full blocks are shared, the last one is copied; neither sees what the
  // other does afterwards. Throws as truncate.
  KvCache fork(std::int64_t length) const;

  std::int64_t length() const;
  std::int64_t batch() const { return B_; }
  std::int64_t heads() const { return Hkv_; }
  std::int64_t d_k() const { return D_; }
  std::int64_t d_v() const { return Dv_; }
  DType dtype() const { return dtype_; }
  // Copies [B,Hkv,length,D] and [B,Hkv,length,Dv], for looking at; of i8 what it stands for, in f32.
  Tensor keys() const;
  Tensor values() const;

 private:
  friend struct CachedRows;
  struct Block;
  struct State;
  struct Impl;
  class Change;

  static constexpr std::int64_t block_keys = 256;

  Impl& impl();
  std::shared_ptr<const State> state() const;
  std::shared_ptr<const State> exchange(std::shared_ptr<const State> next);
  std::shared_ptr<Block> new_block() const;
  Tensor collect(bool values) const;

  std::int64_t B_, Hkv_, D_, Dv_;
  DType dtype_;
  std::atomic<Impl*> impl_{nullptr};  // null: empty
};

// attention() of q [B,H,Tq,D] over the cache's keys and values; q in the cache's dtype (i8: f32, bf16 or f16). Where
// causal, window or alibi_slopes need an offset and none is given, it is bottom_right: the queries are the last Tq
// positions. Of the options, query_starts and key_starts are refused. The bits are those of attention() over the same
// keys in one tensor, but for i8.
ATTEND_API AttentionResult attention(const View& q, const KvCache& cache, const AttentionOptions& options = {},
                                     const ForwardOptions& wanted = {});

// One step of N sequences with a cache each, of any lengths: q [N,H,Tq,D] gives out [N,H,Tq,Dv]. The caches have a
// batch of 1, and the same heads, sizes and dtype. Tk of mask and bias is the longest one's length; key_lengths is
// refused. What caches share since a fork is read once for all of them, where no window hides a part of it.
// The bits are those of each sequence alone (with dropout, which draws by the place in the batch: as item n of one).
ATTEND_API AttentionResult attention(const View& q, std::span<const KvCache* const> caches,
                                     const AttentionOptions& options = {}, const ForwardOptions& wanted = {});

}  // namespace attend::inline v0
