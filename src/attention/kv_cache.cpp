#include "attend/kv_cache.h"

#include <algorithm>
#include <tuple>

#include "attention/compute.h"
#include "attention/problem.h"
#include "core/divide_up.h"
#include "core/message.h"
#include "kernels/target.h"

namespace attend {

namespace {

void check_length(const char* function, std::int64_t length, std::int64_t most) {
  if (length < 0 || length > most) fail(ErrorCode::bad_value, function, "length is {}, expected 0 to {}", length, most);
}

}  // namespace

// What the kernels read: the blocks' addresses.
struct CachedRows {
  static KeyBlocks blocks(const KvCache& cache, int rank) {
    return {cache.k_data_.data(), cache.v_data_.data(), KvCache::block_keys, rank};
  }
  // As if the blocks' memory were one piece: the shape counts, and the strides within a block.
  static View keys(const KvCache& c, std::int64_t d) {
    const Dims shape{c.B_, c.Hkv_, c.length_, d};
    return View(nullptr, c.dtype_, shape, {c.Hkv_ * KvCache::block_keys * d, KvCache::block_keys * d, d, 1});
  }
};

static_assert(256 % kernels::tile_keys == 0, "a tile of keys lies within one block");

KvCache::KvCache(std::int64_t batch, std::int64_t heads, std::int64_t d_k, std::int64_t d_v, DType dtype)
    : B_(batch), Hkv_(heads), D_(d_k), Dv_(d_v), dtype_(dtype) {
  if (dtype != DType::f32 && dtype != DType::bf16 && dtype != DType::f16)
    fail(ErrorCode::bad_dtype, "KvCache", "dtype is {}, expected f32, bf16 or f16", dtype);
  for (const std::int64_t size : {batch, heads, d_k, d_v}) {
    if (size < 1) {
      fail(ErrorCode::bad_value, "KvCache", "batch {}, heads {}, d_k {}, d_v {}, expected at least 1 each", batch,
           heads, d_k, d_v);
    }
  }
}

std::shared_ptr<KvCache::Block> KvCache::new_block() const {
  return std::make_shared<Block>(Block{Tensor::uninitialized({B_, Hkv_, block_keys, D_}, dtype_),
                                       Tensor::uninitialized({B_, Hkv_, block_keys, Dv_}, dtype_)});
}

void KvCache::append(const View& k, const View& v) {
  for (const auto& [name, x, d] : {std::tuple("k", &k, D_), std::tuple("v", &v, Dv_)}) {
    if (!is_floating(x->dtype()))
      fail(ErrorCode::bad_dtype, "KvCache::append", "{} is {}, expected floating point", name, x->dtype());
    const bool ranks = x->rank() >= 2 && x->rank() <= 4;
    const View four = ranks ? with_four_axes(*x) : *x;
    if (!ranks || four.shape() != Dims{B_, Hkv_, four.size(2), d}) {
      fail(ErrorCode::bad_shape, "KvCache::append", "{} has shape {}, expected [B,Hkv,T,{}] = [{},{},T,{}]", name,
           x->shape(), d == D_ && x == &k ? "D" : "Dv", B_, Hkv_, d);
    }
  }
  const View four_k = with_four_axes(k), four_v = with_four_axes(v);
  if (four_k.size(2) != four_v.size(2))
    fail(ErrorCode::bad_shape, "KvCache::append", "v has {} positions, k {}", four_v.size(2), four_k.size(2));

  // Every block that is written to, made before anything changes.
  const std::int64_t end = length_ + four_k.size(2), first = length_ / block_keys;
  std::vector<std::shared_ptr<Block>> blocks(blocks_.begin(), blocks_.begin() + first);
  for (std::int64_t n = first; n < divide_up(end, block_keys); ++n) {
    const bool mine = n < std::ssize(blocks_) && blocks_[static_cast<std::size_t>(n)].use_count() == 1;
    blocks.push_back(mine ? blocks_[static_cast<std::size_t>(n)] : new_block());
    const std::int64_t kept = length_ - n * block_keys;
    if (mine || kept <= 0) continue;
    const Block& old = *blocks_[static_cast<std::size_t>(n)];
    blocks.back()->k.view().slice(2, 0, kept).copy_from(old.k.view().slice(2, 0, kept));
    blocks.back()->v.view().slice(2, 0, kept).copy_from(old.v.view().slice(2, 0, kept));
  }
  std::vector<const void*> k_data, v_data;
  for (const auto& block : blocks) k_data.push_back(block->k.raw()), v_data.push_back(block->v.raw());

  for (std::int64_t at = length_; at < end;) {
    const std::int64_t n = at / block_keys, from = at % block_keys;
    const std::int64_t count = std::min(block_keys - from, end - at), source = at - length_;
    Block& block = *blocks[static_cast<std::size_t>(n)];
    block.k.view().slice(2, from, from + count).copy_from(four_k.slice(2, source, source + count));
    block.v.view().slice(2, from, from + count).copy_from(four_v.slice(2, source, source + count));
    at += count;
  }
  blocks_.swap(blocks), k_data_.swap(k_data), v_data_.swap(v_data);
  length_ = end;
}

void KvCache::truncate(std::int64_t length) {
  check_length("KvCache::truncate", length, length_);
  const auto kept = static_cast<std::size_t>(divide_up(length, block_keys));
  blocks_.resize(kept), k_data_.resize(kept), v_data_.resize(kept);
  length_ = length;
}

KvCache KvCache::fork(std::int64_t length) const {
  check_length("KvCache::fork", length, length_);
  KvCache copy(B_, Hkv_, D_, Dv_, dtype_);
  copy.blocks_.assign(blocks_.begin(), blocks_.begin() + divide_up(length, block_keys));
  copy.k_data_.assign(k_data_.begin(), k_data_.begin() + std::ssize(copy.blocks_));
  copy.v_data_.assign(v_data_.begin(), v_data_.begin() + std::ssize(copy.blocks_));
  copy.length_ = length;
  return copy;
}

Tensor KvCache::collect(bool values) const {
  Tensor out = Tensor::uninitialized({B_, Hkv_, length_, values ? Dv_ : D_}, dtype_);
  for (std::int64_t at = 0; at < length_; at += block_keys) {
    const std::int64_t count = std::min(block_keys, length_ - at);
    const Block& block = *blocks_[static_cast<std::size_t>(at / block_keys)];
    out.view().slice(2, at, at + count).copy_from((values ? block.v : block.k).view().slice(2, 0, count));
  }
  return out;
}

Tensor KvCache::keys() const {
  return collect(false);
}
Tensor KvCache::values() const {
  return collect(true);
}

AttentionResult attention(const View& q, const KvCache& cache, const AttentionOptions& options) {
  AttentionOptions with_offset = options;
  if (!options.offset) with_offset.offset = Offset::bottom_right();
  if (options.query_starts || options.key_starts)
    fail(ErrorCode::bad_value, "attention", "query_starts and key_starts do not apply to a KvCache");
  const View four = q.rank() >= 2 && q.rank() <= 4 ? with_four_axes(q) : q;
  return with_memory("attention", q, CachedRows::keys(cache, cache.d_k()), [&] {
    return compute(Problem::check("attention", four, CachedRows::keys(cache, cache.d_k()),
                                  CachedRows::keys(cache, cache.d_v()), with_offset,
                                  CachedRows::blocks(cache, q.rank())));
  });
}

}  // namespace attend
