#include "attend/kv_cache.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "attention/cached_blocks.h"
#include "attention/cached_problem.h"
#include "attention/compute.h"
#include "attention/problem.h"
#include "attention/quantize.h"
#include "core/divide_up.h"
#include "core/message.h"
#include "core/parallel.h"
#include "kernels/target.h"
#include "kernels/targets.h"

namespace attend::inline v1 {

namespace {

void check_length(const char* function, std::int64_t length, std::int64_t most) {
  if (length < 0 || length > most) fail(ErrorCode::bad_value, function, "length is {}, expected 0 to {}", length, most);
}

}  // namespace

// Shared between forks, and between what a cache is and what it was while a call reads that.
struct KvCache::Block {
  Tensor k, v;                // [B,Hkv,block_keys,D], [B,Hkv,block_keys,Dv]
  Tensor k_scales, v_scales;  // i8: [B,Hkv,block_keys]; else of no elements

  void copy(const Block& from, std::int64_t kept);
  void fill(std::int64_t from, const View& new_k, const View& new_v);
};

// What a cache holds at one moment. Positions below the length of any State that holds a block never change.
struct KvCache::State {
  std::int64_t length = 0;
  std::vector<std::shared_ptr<Block>> blocks;
  std::vector<const void*> k_data, v_data;       // of each block
  std::vector<const float*> k_scales, v_scales;  // i8

  State() = default;
  // The first so many positions of another one.
  State(const State& from, std::int64_t keep) : State(keep, {from.blocks.data(), blocks_of(keep)}, 0) { point(); }
  // These blocks, and room for so many more, which point() is to follow.
  State(std::int64_t length, std::span<const std::shared_ptr<Block>> from, std::size_t more) : length(length) {
    blocks.reserve(from.size() + more);
    blocks.assign(from.begin(), from.end());
  }

  static std::size_t blocks_of(std::int64_t length) { return static_cast<std::size_t>(divide_up(length, block_keys)); }

  void point() {
    const auto data_of = [&](auto& list, auto data) {
      list.resize(blocks.size());
      std::transform(blocks.begin(), blocks.end(), list.begin(), data);
    };
    data_of(k_data, [](const auto& block) { return block->k.raw(); });
    data_of(v_data, [](const auto& block) { return block->v.raw(); });
    if (blocks.empty() || blocks.front()->k_scales.count() == 0) return;
    data_of(k_scales, [](const auto& block) { return block->k_scales.template data<float>(); });
    data_of(v_scales, [](const auto& block) { return block->v_scales.template data<float>(); });
  }
};

struct KvCache::Impl {
  std::mutex mutex;  // of state
  std::shared_ptr<const State> state = std::make_shared<const State>();
  std::atomic<bool> changing{false};
};

// The right to change a cache, while it exists.
class KvCache::Change {
 public:
  Change(const char* function, KvCache& cache) : changing_(cache.impl().changing) {
    if (changing_.exchange(true)) {
      fail(ErrorCode::bad_value, function, "another call is changing this cache; expected one at a time");
    }
  }
  ~Change() { changing_ = false; }
  Change(const Change&) = delete;
  Change& operator=(const Change&) = delete;

 private:
  std::atomic<bool>& changing_;
};

// What one call reads of one cache.
struct CachedRows {
  static constexpr std::int64_t block_keys = KvCache::block_keys;

  explicit CachedRows(const KvCache& from) : cache(from), state(from.state()) {}
  KeyBlocks blocks() const {
    return {state->k_data.data(), state->v_data.data(), KvCache::block_keys, state->k_scales.data(),
            state->v_scales.data()};
  }
  std::int64_t length() const { return state->length; }
  // Values [0, count) of a head in one block, in f32: where they lie, or in `made`.
  const float* values(std::int64_t head, std::int64_t block, std::int64_t count, Tensor& made) const {
    const KvCache::Block& from = *state->blocks[static_cast<std::size_t>(block)];
    const auto part_of = [&](const Tensor& x) {
      return x.view().slice(0, 0, 1).slice(1, head, head + 1).slice(2, 0, count);
    };
    const View rows = part_of(from.v);
    if (rows.dtype() == DType::f32) return rows.data<float>();
    if (made.shape() != rows.shape()) made = Tensor::uninitialized(rows.shape(), DType::f32);
    if (rows.dtype() == DType::i8)
      dequantize(rows, part_of(from.v_scales), made.view());
    else
      kernels::target().rows.convert(rows.raw(), rows.dtype(), made.raw(), DType::f32, rows.count());
    return made.data<float>();
  }
  // As if the blocks' memory were one piece: the shape counts, and the strides within a block. A batch of caches has
  // each item in blocks of its own.
  View keys(DType dtype, std::int64_t batch, std::int64_t length, std::int64_t d) const {
    return View(nullptr, dtype, {batch, cache.heads(), length, d},
                {cache.batch() == 1 ? 0 : cache.heads() * KvCache::block_keys * d, KvCache::block_keys * d, d, 1});
  }

  const KvCache& cache;
  const std::shared_ptr<const KvCache::State> state;
};

namespace {

// Whether a block has no holder but this one. What others read before they let go of it comes before what is written
// now: their last steps were on the count, and so is this thread's, after it saw them.
template <class Block>
bool is_held_once(const std::shared_ptr<Block>& block) {
  if (block.use_count() != 1) return false;
  // NOLINTNEXTLINE(performance-unnecessary-copy-initialization): the step on the count
  const std::shared_ptr<Block> again = block;
  return true;
}

}  // namespace

static_assert(CachedRows::block_keys % kernels::tile_keys == 0, "a tile of keys lies within one block");

KvCache::KvCache(std::int64_t batch, std::int64_t heads, std::int64_t d_k, std::int64_t d_v, DType dtype)
    : B_(batch), Hkv_(heads), D_(d_k), Dv_(d_v), dtype_(dtype) {
  if (dtype != DType::f32 && dtype != DType::bf16 && dtype != DType::f16 && dtype != DType::i8)
    fail(ErrorCode::bad_dtype, "KvCache", "dtype is {}, expected f32, bf16, f16 or i8", dtype);
  for (const std::int64_t size : {batch, heads, d_k, d_v}) {
    if (size < 1) {
      fail(ErrorCode::bad_value, "KvCache", "batch {}, heads {}, d_k {}, d_v {}, expected at least 1 each", batch,
           heads, d_k, d_v);
    }
  }
}

KvCache::KvCache(const KvCache& other) : KvCache(other.B_, other.Hkv_, other.D_, other.Dv_, other.dtype_) {
  const std::shared_ptr<const State> now = other.state();
  exchange(std::make_shared<const State>(*now, now->length));  // of its own: each State's blocks count their holders
}

KvCache::KvCache(KvCache&& other) noexcept
    : B_(other.B_),
      Hkv_(other.Hkv_),
      D_(other.D_),
      Dv_(other.Dv_),
      dtype_(other.dtype_),
      impl_(other.impl_.exchange(nullptr)) {}

KvCache& KvCache::operator=(const KvCache& other) {
  return *this = KvCache(other);
}

KvCache& KvCache::operator=(KvCache&& other) noexcept {
  if (this == &other) return *this;
  B_ = other.B_, Hkv_ = other.Hkv_, D_ = other.D_, Dv_ = other.Dv_, dtype_ = other.dtype_;
  delete impl_.exchange(other.impl_.exchange(nullptr));
  return *this;
}

KvCache::~KvCache() {
  delete impl_.load();
}

// Made by the first call that changes the cache: of two at once, by the one that is first.
KvCache::Impl& KvCache::impl() {
  Impl* now = impl_;
  if (now == nullptr) {
    auto made = std::make_unique<Impl>();
    if (impl_.compare_exchange_strong(now, made.get())) now = made.release();
  }
  return *now;
}

std::shared_ptr<const KvCache::State> KvCache::state() const {
  static const auto empty = std::make_shared<const State>();
  Impl* const now = impl_;
  if (now == nullptr) return empty;
  const std::lock_guard lock(now->mutex);
  return now->state;
}

// The state until now, which is let go of by the caller: outside of the lock.
std::shared_ptr<const KvCache::State> KvCache::exchange(std::shared_ptr<const State> next) {
  const std::lock_guard lock(impl().mutex);
  return std::exchange(impl().state, std::move(next));
}

std::int64_t KvCache::length() const {
  return state()->length;
}

std::shared_ptr<KvCache::Block> KvCache::new_block() const {
  const Dims rows{B_, Hkv_, dtype_ == DType::i8 ? block_keys : 0};
  return std::make_shared<Block>(Block{Tensor::uninitialized({B_, Hkv_, block_keys, D_}, dtype_),
                                       Tensor::uninitialized({B_, Hkv_, block_keys, Dv_}, dtype_),
                                       Tensor::uninitialized(rows, DType::f32),
                                       Tensor::uninitialized(rows, DType::f32)});
}

// Of another block's positions, as many as `kept`: each head's lie in one piece. Of much new memory, which the system
// gives page by page, several threads take a part.
void KvCache::Block::copy(const Block& from, std::int64_t kept) {
  constexpr std::int64_t bytes_at_once = 1 << 17;
  for (Tensor Block::*rows : {&Block::k, &Block::v, &Block::k_scales, &Block::v_scales}) {
    const Tensor& source = from.*rows;
    if (source.count() == 0) continue;
    const std::int64_t heads = source.size(0) * source.size(1);
    const std::int64_t bytes = source.count() / heads * size_of(source.dtype()), some = bytes / block_keys * kept;
    const auto* read = static_cast<const std::byte*>(source.raw());
    auto* write = static_cast<std::byte*>((this->*rows).raw());
    parallel_for(heads, bytes_at_once / some + 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t at = begin * bytes; at < end * bytes; at += bytes)
        std::memcpy(write + at, read + at, static_cast<std::size_t>(some));
    });
  }
}

// Positions [from, from + k's) anew.
void KvCache::Block::fill(std::int64_t from, const View& new_k, const View& new_v) {
  const auto put = [&](Tensor& rows, Tensor& scales, const View& x) {
    const MutableView to = rows.view().slice(2, from, from + x.size(2));
    if (rows.dtype() == DType::i8)
      quantize(x, to, scales.view().slice(2, from, from + x.size(2)));
    else
      to.copy_from(x);
  };
  put(k, k_scales, new_k), put(v, v_scales, new_v);
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

  const Change change("KvCache::append", *this);
  const std::shared_ptr<const State> now = state();
  // Refused as a whole: block by block, it would take all that the machine has first.
  if (four_k.size(2) > block_keys) Tensor::uninitialized({B_, Hkv_, four_k.size(2), D_ + Dv_}, dtype_);
  // Every block that is written to, made before anything changes.
  const std::int64_t begin = now->length, end = begin + four_k.size(2), first = begin / block_keys;
  auto next = std::make_shared<State>(end, std::span(now->blocks).first(static_cast<std::size_t>(first)),
                                      State::blocks_of(end) - static_cast<std::size_t>(first));
  for (std::int64_t n = first; n < divide_up(end, block_keys); ++n) {
    const std::int64_t kept = begin - n * block_keys;
    if (kept <= 0) {
      next->blocks.push_back(new_block());
      continue;
    }
    const std::shared_ptr<Block>& old = now->blocks[static_cast<std::size_t>(n)];
    next->blocks.push_back(is_held_once(old) ? old : new_block());
    if (next->blocks.back() == old) continue;
    next->blocks.back()->copy(*old, kept);
  }
  next->point();

  for (std::int64_t at = begin; at < end;) {
    const std::int64_t n = at / block_keys, from = at % block_keys;
    const std::int64_t count = std::min(block_keys - from, end - at), source = at - begin;
    next->blocks[static_cast<std::size_t>(n)]->fill(from, four_k.slice(2, source, source + count),
                                                    four_v.slice(2, source, source + count));
    at += count;
  }
  exchange(std::move(next));
}

void KvCache::truncate(std::int64_t length) {
  const Change change("KvCache::truncate", *this);
  const std::shared_ptr<const State> now = state();
  check_length("KvCache::truncate", length, now->length);
  exchange(std::make_shared<const State>(*now, length));
}

KvCache KvCache::fork(std::int64_t length) const {
  const std::shared_ptr<const State> now = state();
  check_length("KvCache::fork", length, now->length);
  KvCache copy(B_, Hkv_, D_, Dv_, dtype_);
  copy.exchange(std::make_shared<const State>(*now, length));
  return copy;
}

Tensor KvCache::collect(bool values) const {
  const std::shared_ptr<const State> now = state();
  const DType dtype = dtype_ == DType::i8 ? DType::f32 : dtype_;
  Tensor out = Tensor::uninitialized({B_, Hkv_, now->length, values ? Dv_ : D_}, dtype);
  for (std::int64_t at = 0; at < now->length; at += block_keys) {
    const std::int64_t count = std::min(block_keys, now->length - at);
    const Block& block = *now->blocks[static_cast<std::size_t>(at / block_keys)];
    const MutableView to = out.view().slice(2, at, at + count);
    const View rows = (values ? block.v : block.k).view().slice(2, 0, count);
    if (dtype_ == DType::i8)
      dequantize(rows, (values ? block.v_scales : block.k_scales).view().slice(2, 0, count), to);
    else
      to.copy_from(rows);
  }
  return out;
}

void for_each_value_block(const KvCache& cache, const std::function<void(const CachedBlock&)>& body) {
  const CachedRows rows(cache);
  const std::int64_t size = CachedRows::block_keys, blocks = divide_up(rows.length(), size);
  parallel_for(cache.heads() * blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    Tensor made;
    for (std::int64_t n = begin; n < end; ++n) {
      CachedBlock block{.head = n / blocks, .first = n % blocks * size};
      block.count = std::min(size, rows.length() - block.first);
      block.rows = rows.values(block.head, n % blocks, block.count, made);
      body(block);
    }
  });
}

Tensor KvCache::keys() const {
  return collect(false);
}
Tensor KvCache::values() const {
  return collect(true);
}

namespace {

std::int64_t longest_of(std::span<const CachedRows> caches) {
  std::int64_t longest = 0;
  for (const CachedRows& rows : caches) longest = std::max(longest, rows.length());
  return longest;
}

// Of `batch` items whose keys the caches hold: one cache all of them, or each one its own.
Problem check_cached(const char* function, const View& q, std::span<const CachedRows> caches, std::int64_t batch,
                     AttentionOptions options) {
  if (!options.offset) options.offset = Offset::bottom_right();
  if (options.query_starts || options.key_starts)
    fail(ErrorCode::bad_value, function, "query_starts and key_starts do not apply to a KvCache");
  const View four = q.rank() >= 2 && q.rank() <= 4 ? with_four_axes(q) : q;
  const std::int64_t longest = longest_of(caches);
  const KvCache& first = caches[0].cache;
  const bool quantized = first.dtype() == DType::i8;
  if (quantized && q.dtype() != DType::f32 && q.dtype() != DType::bf16 && q.dtype() != DType::f16)
    fail(ErrorCode::bad_dtype, function, "q is {}, expected f32, bf16 or f16 for a cache of i8", q.dtype());
  const auto keys_of = [&](DType dtype, std::int64_t d) { return caches[0].keys(dtype, batch, longest, d); };
  const DType computed = quantized ? q.dtype() : first.dtype();  // what keys count as
  const Problem problem =
      Problem::check(function, four, keys_of(computed, first.d_k()), keys_of(computed, first.d_v()), options);
  std::vector<KeyBlocks> blocks;
  blocks.reserve(caches.size());
  for (const CachedRows& rows : caches) blocks.push_back(rows.blocks());
  return problem.in_blocks(q.rank(), keys_of(first.dtype(), first.d_k()), keys_of(first.dtype(), first.d_v()),
                           std::move(blocks));
}

AttentionResult attend_cached(const View& q, std::span<const CachedRows> caches, std::int64_t batch,
                              const AttentionOptions& options, const ForwardOptions& wanted) {
  const KvCache& first = caches[0].cache;
  const View keys = caches[0].keys(first.dtype(), batch, longest_of(caches), first.d_k());
  return with_memory("attention", q, keys,
                     [&] { return compute(check_cached("attention", q, caches, batch, options), wanted); });
}

void check_alike(std::span<const KvCache* const> caches) {
  if (caches.empty()) fail(ErrorCode::bad_value, "attention", "caches is empty, expected one for each of q's N");
  const KvCache& first = *caches[0];
  for (std::size_t n = 0; n < caches.size(); ++n) {
    const KvCache& cache = *caches[n];
    if (cache.batch() != 1)
      fail(ErrorCode::bad_shape, "attention", "caches[{}] has batch size {}, expected 1", n, cache.batch());
    if (cache.dtype() != first.dtype())
      fail(ErrorCode::bad_dtype, "attention", "caches[{}] is {}, caches[0] {}", n, cache.dtype(), first.dtype());
    if (cache.heads() != first.heads() || cache.d_k() != first.d_k() || cache.d_v() != first.d_v()) {
      fail(ErrorCode::bad_shape, "attention", "caches[{}] has {} heads of D {}, Dv {}, caches[0] {} of D {}, Dv {}", n,
           cache.heads(), cache.d_k(), cache.d_v(), first.heads(), first.d_k(), first.d_v());
    }
  }
}

}  // namespace

CachedProblem CachedProblem::check(const char* function, const View& q, const KvCache& cache,
                                   const AttentionOptions& options) {
  const CachedRows rows(cache);
  return {rows.state, check_cached(function, q, {&rows, 1}, cache.batch(), options)};
}

AttentionResult attention(const View& q, const KvCache& cache, const AttentionOptions& options,
                          const ForwardOptions& wanted) {
  const CachedRows rows(cache);
  return attend_cached(q, {&rows, 1}, cache.batch(), options, wanted);
}

AttentionResult attention(const View& q, std::span<const KvCache* const> caches, const AttentionOptions& options,
                          const ForwardOptions& wanted) {
  check_alike(caches);
  if (options.key_lengths) fail(ErrorCode::bad_value, "attention", "key_lengths do not apply: the caches have lengths");
  std::vector<CachedRows> rows;
  for (const KvCache* cache : caches) rows.emplace_back(*cache);
  Tensor lengths({std::ssize(rows)}, DType::i64);
  for (std::size_t n = 0; n < rows.size(); ++n) lengths.data<std::int64_t>()[n] = rows[n].length();
  AttentionOptions with_lengths = options;
  with_lengths.key_lengths = lengths;
  return attend_cached(q, rows, std::ssize(rows), with_lengths, wanted);
}

}  // namespace attend::inline v1
