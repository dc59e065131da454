// attention() of a batch of sequences with caches of their own: each one's numbers are those that it has alone.
#include <algorithm>
#include <list>
#include <vector>

#include "attend/kv_cache.h"
#include "attention/schedule.h"
#include "core/message.h"
#include "core/parallel.h"
#include "tests/attention/call.h"
#include "tests/expect.h"
#include "tests/threads_at_most.h"

namespace attend {
namespace {

using namespace test;

struct Batch {
  std::list<KvCache> caches;
  std::vector<const KvCache*> list;

  // A cache with more positions, over the first `kept` ones of `from`.
  void add(const KvCache& from, std::int64_t kept, std::int64_t more, Generator& generator) {
    KvCache& cache = caches.emplace_back(from.fork(kept));
    const Dims k{1, cache.heads(), more, cache.d_k()}, v{1, cache.heads(), more, cache.d_v()};
    cache.append(generator.randn(k), generator.randn(v));
    list.push_back(&cache);
  }
  std::int64_t longest() const {
    const auto shorter = [](const KvCache* a, const KvCache* b) { return a->length() < b->length(); };
    return (*std::max_element(list.begin(), list.end(), shorter))->length();
  }
};

// Some from nothing, some from a common prefix; lengths around those of blocks and of ranges.
Batch random_batch(Dice& dice, const Sizes& s, DType dtype, Generator& generator) {
  constexpr std::int64_t lengths[] = {0, 1, 63, 200, 256, 300, 511, 513, 800, 1100};
  const auto length = [&] { return lengths[dice.below(std::ssize(lengths))]; };
  Batch batch;
  const KvCache empty(1, s.Hkv, s.D, s.Dv, dtype);
  Batch prefix;
  prefix.add(empty, 0, 1 + length(), generator);
  const KvCache& common = prefix.caches.front();
  for (std::int64_t n = 0; n < s.B; ++n) {
    if (dice.one_in(3))
      batch.add(empty, 0, length(), generator);
    else
      batch.add(common, dice.one_in(3) ? dice.below(common.length()) : common.length(), length(), generator);
  }
  if (dice.one_in(4)) batch.list.push_back(batch.list.front());  // twice the same one
  return batch;
}

// The options of item n by itself.
AttentionOptions alone(const AttentionOptions& options, std::int64_t n, std::int64_t keys) {
  AttentionOptions one = options;
  for (std::optional<View>* x : {&one.mask, &one.bias}) {
    if (*x) *x = (*x)->slice(0, n, n + 1).slice(3, 0, keys);
  }
  return one;
}

TEST(Caches, EachSequenceHasTheBitsThatItHasAlone) {
  constexpr DType dtypes[] = {DType::f32, DType::bf16, DType::f16};
  for (const std::uint64_t seed : sweep(91'000, 91'150)) {
    Dice dice(seed);
    Generator generator(seed);
    const DType dtype = dtypes[seed % 3];
    Sizes s{1 + dice.below(5), 1, 1 + dice.below(2), dice.one_in(6) ? 20 : 1 + dice.below(4), 1, 1, 1};
    s.H = s.Hkv * (1 + dice.below(3)), s.D = 1 + dice.below(40), s.Dv = 1 + dice.below(40);
    const Batch batch = random_batch(dice, s, dice.one_in(3) ? DType::i8 : dtype, generator);
    const std::int64_t N = std::ssize(batch.list), Tk = batch.longest();
    const Tensor q = generator.randn({N, s.H, s.Tq, s.D}).view().to(dtype);
    const Tensor mask = coins(generator, {N, 1, s.Tq, Tk}, 0.8), bias = generator.randn({N, s.H, 1, Tk});
    const Tensor slopes = generator.rand({s.H}), sinks = generator.randn({s.H}), distances = generator.randn({s.H, 9});
    AttentionOptions options{.causal = dice.one_in(2)};
    if (dice.one_in(3)) options.mask = mask;
    if (dice.one_in(3)) options.bias = bias;
    if (dice.one_in(3)) options.alibi_slopes = slopes;
    if (dice.one_in(3)) options.sinks = sinks;
    if (dice.one_in(3)) options.distance_bias = distances;
    if (dice.one_in(3)) options.window = {.left = dice.below(700), .right = dice.below(3) - 1};
    if (dice.one_in(3)) options.softcap = 2;
    if (dice.one_in(4)) options.offset = dice.one_in(2) ? Offset::top_left() : Offset(200);
    const AttentionResult together = attention(q, batch.list, options, {.lse_low = true});
    ASSERT_EQ(together.out.shape(), (Dims{N, s.H, s.Tq, s.Dv})) << seed;
    for (std::int64_t n = 0; n < N; ++n) {
      SCOPED_TRACE(fmt::format("seed {}, sequence {} of {}", seed, n, N));
      const KvCache& cache = *batch.list[static_cast<std::size_t>(n)];
      const auto item = [n](const Tensor& x) { return x.view().slice(0, n, n + 1); };
      const AttentionResult expected = attention(item(q), cache, alone(options, n, cache.length()), {.lse_low = true});
      expect_same(item(together.out), expected.out);
      expect_same(item(together.lse), expected.lse);
      expect_same(item(*together.lse_low), *expected.lse_low);
    }
  }
}

TEST(Caches, ThreadsDoNotMatter) {
  Generator generator(5);
  Batch batch, prefix;
  prefix.add(KvCache(1, 4, 64, 64), 0, 3000, generator);
  for (int n = 0; n < 6; ++n) batch.add(prefix.caches.front(), 3000, 1 + 400 * n, generator);
  const Tensor q = generator.randn({6, 8, 1, 64});
  const auto with = [&](int threads) {
    const test::ThreadsAtMost limit(threads);
    return attention(q, batch.list);
  };
  const AttentionResult one = with(1), four = with(4);
  expect_same(one.out, four.out);
  expect_same(one.lse, four.lse);
}

// ---- Which ranges are read together ----

// Sequences of such lengths, each block of 256 keys named by a letter: "aab" are three blocks, two of them the same.
Schedule schedule_of(const std::vector<std::int64_t>& lengths, const std::vector<std::string>& blocks,
                     AttentionOptions options = {}) {
  const std::int64_t N = std::ssize(lengths), longest = *std::max_element(lengths.begin(), lengths.end());
  const View q(nullptr, DType::f32, {N, 2, 1, 8}), k(nullptr, DType::f32, {N, 1, longest, 8});
  const Tensor numbers = whole_numbers(lengths);
  options.key_lengths = numbers;
  options.offset = Offset::bottom_right();
  Problem problem = Problem::check("test", q, k, k, options);
  static const char names[256] = {};
  std::vector<std::vector<const void*>> pointers;
  for (const std::string& names_of : blocks) {
    std::vector<const void*>& list = pointers.emplace_back();
    for (const char name : names_of) list.push_back(names + name);
  }
  for (const auto& list : pointers) problem.blocks.push_back({list.data(), list.data(), 256});
  return make_schedule(problem);
}

std::vector<std::vector<std::int64_t>> sequences_of(const Schedule& schedule, std::int64_t range) {
  std::vector<std::vector<std::int64_t>> out;
  for (const SharedRange& shared : schedule.shared) {
    if (shared.range == range) out.push_back(shared.sequences);
  }
  return out;
}

TEST(Caches, WhatForksShareIsReadOnceForAllOfThem) {
  using Lists = std::vector<std::vector<std::int64_t>>;
  // Ranges of 512 keys, two blocks.
  const Schedule forks = schedule_of({1100, 1300, 700, 600}, {"abcde", "abcdfg", "abh", "ijk"});
  EXPECT_EQ(sequences_of(forks, 0), (Lists{{0, 1, 2}, {3}}));
  EXPECT_EQ(sequences_of(forks, 1), (Lists{{0, 1}, {2}, {3}}));
  EXPECT_EQ(sequences_of(forks, 2), (Lists{{0}, {1}}));
  EXPECT_EQ(forks.items, std::ssize(forks.shared));
  // A range that ends elsewhere, and one that a window hides from some, are the sequence's own.
  EXPECT_EQ(sequences_of(schedule_of({500, 400, 500}, {"ab", "ab", "ab"}), 0), (Lists{{0, 2}, {1}}));
  const AttentionOptions window{.window = {.left = 200}};
  EXPECT_EQ(sequences_of(schedule_of({500, 500}, {"ab", "ab"}, window), 0), (Lists{{0}, {1}}));
  // No more than 64 rows at once: two query heads for each sequence.
  const Schedule many = schedule_of(std::vector<std::int64_t>(40, 512), std::vector<std::string>(40, "ab"));
  ASSERT_EQ(many.shared.size(), 2u);
  EXPECT_EQ(many.shared[0].sequences.size(), 32u);
}

// 448,000 operations: less than what is shared out among threads that sleep, and more than what those take that wait.
TEST(Caches, ThreadsThatWaitForWorkShareLess) {
  const test::ThreadsAtMost two(2);
  const auto workers = [] {
    return schedule_of(std::vector<std::int64_t>(10, 700), std::vector<std::string>(10, "abc")).workers;
  };
  EXPECT_EQ(workers(), 1);
  {
    const WarmThreads warm;
    EXPECT_EQ(workers(), num_threads());
  }
  EXPECT_EQ(workers(), 1);
}

TEST(Caches, BadInputIsNamed) {
  const KvCache a(1, 2, 4, 5), pair(2, 2, 4, 5), wide(1, 2, 4, 6), narrow(1, 2, 4, 5, DType::bf16);
  const auto call = [](const std::vector<const KvCache*>& caches, const Dims& q, const AttentionOptions& options = {}) {
    return [=] { attention(Tensor(q), caches, options); };
  };
  const auto shape = ErrorCode::bad_shape, value = ErrorCode::bad_value;
  expect_error(value, call({}, {0, 2, 1, 4}), "caches is empty");
  expect_error(shape, call({&a, &pair}, {2, 2, 1, 4}), "caches[1] has batch size 2, expected 1");
  expect_error(shape, call({&a, &wide}, {2, 2, 1, 4}), "caches[1] has 2 heads of D 4, Dv 6, caches[0] 2 of D 4, Dv 5");
  expect_error(ErrorCode::bad_dtype, call({&a, &narrow}, {2, 2, 1, 4}), "caches[1] is bf16, caches[0] f32");
  expect_error(shape, call({&a, &a}, {3, 2, 1, 4}), "batch size 2, q has 3");
  const Tensor lengths = whole_numbers({0, 0});
  expect_error(value, call({&a, &a}, {2, 2, 1, 4}, {.key_lengths = lengths}), "key_lengths do not apply");
}

}  // namespace
}  // namespace attend
