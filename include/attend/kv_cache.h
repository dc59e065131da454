// Keys and values of a growing sequence, for decoding.
//
//     attend::KvCache cache(1, 8, 64, 64);
//     cache.append(k, v);
//     const attend::Tensor out = attend::attention(q, cache).out;
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "attend/api.h"
#include "attend/attention.h"
#include "attend/tensor.h"

namespace attend::inline v1 {

// Keys [B,Hkv,T,D] and values [B,Hkv,T,Dv] with growing T, in blocks of 256 positions. Appending never moves data, and
// forks share full blocks.
//
// dtype i8 stores each head's row as integers from -127 to 127 and an f32 scale, its largest magnitude / 127. That is
// about half of bf16's memory, with errors up to half a scale. A row that is not finite becomes NaN; one below 1.5e-36
// becomes zeros. Queries are then f32, bf16 or f16 (docs/numerics.md).
//
// Several threads may use one cache. A call works on the positions that it finds at its beginning: attention() sees
// nothing of a concurrent append() or truncate(). If two calls would change the cache at once, the second throws
// bad_value and changes nothing.
class ATTEND_API KvCache {
 public:
  // dtype: f32, bf16, f16 or i8. Throws bad_value for a size below 1, bad_dtype.
  KvCache(std::int64_t batch, std::int64_t heads, std::int64_t d_k, std::int64_t d_v, DType dtype = DType::f32);
  // A copy is a fork of the whole length. A moved-from cache is empty, with the same sizes.
  KvCache(const KvCache& other);
  KvCache(KvCache&& other) noexcept;
  KvCache& operator=(const KvCache& other);
  KvCache& operator=(KvCache&& other) noexcept;
  ~KvCache();

  // Adds k [B,Hkv,T,D] and v [B,Hkv,T,Dv] at the end, with any strides and floating-point dtype; they are converted. B,
  // or B and Hkv, may be left out if they are 1. Throws bad_shape, bad_dtype, out_of_memory, and then leaves the cache
  // unchanged.
  void append(const View& k, const View& v);
  // Drops positions from `length` on. Throws bad_value unless 0 <= length <= this->length().
  void truncate(std::int64_t length);
  // A cache of the first `length` positions. Full blocks are shared, the last is copied; later changes are independent.
  // Same errors as truncate().
  KvCache fork(std::int64_t length) const;

  std::int64_t length() const;
  std::int64_t batch() const { return B_; }
  std::int64_t heads() const { return Hkv_; }
  std::int64_t d_k() const { return D_; }
  std::int64_t d_v() const { return Dv_; }
  DType dtype() const { return dtype_; }
  // Copies [B,Hkv,length,D] and [B,Hkv,length,Dv] for inspection; i8 is converted to f32.
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

// attention() of q [B,H,Tq,D] over the cache, with q in its dtype (for i8: f32, bf16 or f16). If causal, window or
// alibi_slopes need an offset, the default is bottom_right: queries are the last Tq positions. query_starts and
// key_starts are refused. Bits: those of attention() over the same keys in one tensor, except for i8.
ATTEND_API AttentionResult attention(const View& q, const KvCache& cache, const AttentionOptions& options = {},
                                     const ForwardOptions& wanted = {});

// One step for N sequences with caches of any lengths: q [N,H,Tq,D] gives out [N,H,Tq,Dv]. The caches have batch 1 and
// equal heads, sizes and dtype. Tk of mask and bias is the longest length; key_lengths is refused. Keys shared by forks
// are read once for all, unless a window hides a part of them. Bits: those of each sequence alone; with dropout, which
// depends on the position in the batch, those of item n.
ATTEND_API AttentionResult attention(const View& q, std::span<const KvCache* const> caches,
                                     const AttentionOptions& options = {}, const ForwardOptions& wanted = {});

}  // namespace attend::inline v1
