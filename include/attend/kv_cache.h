// Keys and values of a growing sequence, for decoding.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "attend/attention.h"
#include "attend/tensor.h"

#pragma GCC visibility push(default)

namespace attend {

// Keys [B,Hkv,T,D] and values [B,Hkv,T,Dv] whose T grows. They lie in blocks of 256 positions: appending never moves
// what is there, and forks share the blocks that are full.
class KvCache {
 public:
  // dtype: f32, bf16 or f16. Throws bad_value for a size below 1, bad_dtype.
  KvCache(std::int64_t batch, std::int64_t heads, std::int64_t d_k, std::int64_t d_v, DType dtype = DType::f32);

  // k [B,Hkv,T,D], v [B,Hkv,T,Dv] after what is there; any strides and floating-point dtype, converted. Without B, or
  // without B and Hkv, where those are 1. Throws bad_shape, bad_dtype, out_of_memory; the cache is then as before.
  void append(const View& k, const View& v);
  // Forgets the positions from `length` on. Throws bad_value unless 0 <= length <= this->length().
  void truncate(std::int64_t length);
  // A cache of the first `length` positions. Full blocks are shared, the last one is copied; neither sees what the
  // other does afterwards. Throws as truncate.
  KvCache fork(std::int64_t length) const;

  std::int64_t length() const { return length_; }
  std::int64_t batch() const { return B_; }
  std::int64_t heads() const { return Hkv_; }
  std::int64_t d_k() const { return D_; }
  std::int64_t d_v() const { return Dv_; }
  DType dtype() const { return dtype_; }
  // Copies [B,Hkv,length,D] and [B,Hkv,length,Dv], for looking at.
  Tensor keys() const;
  Tensor values() const;

 private:
  friend struct CachedRows;
  // Shared between forks; who writes to a block that others hold copies it first.
  struct Block {
    Tensor k, v;  // [B,Hkv,block_keys,D], [B,Hkv,block_keys,Dv]
  };
  static constexpr std::int64_t block_keys = 256;

  std::shared_ptr<Block> new_block() const;
  Tensor collect(bool values) const;

  std::int64_t B_, Hkv_, D_, Dv_;
  DType dtype_;
  std::int64_t length_ = 0;
  std::vector<std::shared_ptr<Block>> blocks_;
  std::vector<const void*> k_data_, v_data_;  // of each block
};

// attention() of q [B,H,Tq,D] over the cache's keys and values; q in the cache's dtype. Where causal, window or
// alibi_slopes need an offset and none is given, it is bottom_right: the queries are the last Tq positions. Of the
// options, query_starts and key_starts are refused.
// The bits are those of attention() over the same keys in one tensor.
AttentionResult attention(const View& q, const KvCache& cache, const AttentionOptions& options = {});

}  // namespace attend

#pragma GCC visibility pop
