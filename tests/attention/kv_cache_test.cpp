#include "attend/kv_cache.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "tests/expect.h"

namespace attend {
namespace {

using test::expect_error;
using test::expect_same;

struct Sequence {
  Tensor k, v;
  View keys(std::int64_t from, std::int64_t to) const { return k.view().slice(2, from, to); }
  View values(std::int64_t from, std::int64_t to) const { return v.view().slice(2, from, to); }
};

Sequence sequence(std::int64_t B, std::int64_t H, std::int64_t T, std::int64_t D, std::int64_t Dv, DType dtype) {
  Generator generator(3);
  return {generator.randn({B, H, T, D}).view().to(dtype), generator.randn({B, H, T, Dv}).view().to(dtype)};
}

KvCache filled(const Sequence& s, const std::vector<std::int64_t>& cuts) {
  KvCache cache(s.k.size(0), s.k.size(1), s.k.size(3), s.v.size(3), s.k.dtype());
  std::int64_t at = 0;
  for (const std::int64_t cut : cuts) {
    cache.append(s.keys(at, cut), s.values(at, cut));
    at = cut;
  }
  return cache;
}

TEST(KvCache, GivesTheBitsOfAttentionOverOneTensor) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const Sequence s = sequence(2, 2, 777, 24, 40, dtype);
    const KvCache cache = filled(s, {1, 255, 256, 300, 300, 777});
    EXPECT_EQ(cache.length(), 777);
    expect_same(cache.keys(), s.k);
    expect_same(cache.values(), s.v);
    Generator generator(4);
    for (const std::int64_t Tq : {1, 3, 50}) {
      const Tensor q = generator.randn({2, 6, Tq, 24}).view().to(dtype);
      const AttentionOptions causal{.causal = true, .offset = Offset::bottom_right()};
      const AttentionOptions dropping{.dropout = {0.3, 5}};
      for (const AttentionOptions& options : {AttentionOptions{}, causal, dropping}) {
        const AttentionResult cached = attention(q, cache, options);
        const AttentionResult expected = attention(q, s.k, s.v, options);
        expect_same(cached.out, expected.out);
        expect_same(cached.lse, expected.lse);
      }
      // The queries are the last positions unless it is said otherwise.
      expect_same(attention(q, cache, {.causal = true}).out, attention(q, cache, causal).out);
    }
  }
}

TEST(KvCache, TruncateAndForkSeeTheirOwnPositionsAlone) {
  const Sequence s = sequence(1, 2, 700, 8, 8, DType::f32), other = sequence(1, 2, 400, 8, 8, DType::f32);
  KvCache cache = filled(s, {700});
  KvCache fork = cache.fork(300);
  expect_same(fork.keys(), s.keys(0, 300));
  fork.append(other.keys(0, 400), other.values(0, 400));  // into a block that both hold
  cache.truncate(290);
  cache.append(s.keys(290, 700), s.values(290, 700));
  expect_same(cache.keys(), s.k);
  expect_same(cache.values(), s.v);
  expect_same(fork.keys().view().slice(2, 0, 300), s.keys(0, 300));
  expect_same(fork.values().view().slice(2, 300, 700), other.values(0, 400));
  KvCache again = fork.fork(0);
  EXPECT_EQ(again.length(), 0);
  again.append(other.keys(0, 1), other.values(0, 1));
  expect_same(again.keys(), other.keys(0, 1));
}

// A fork of rounded rows has their scales too.
TEST(KvCache, AForkOfI8GoesOnAsTheCacheDoes) {
  const Sequence s = sequence(1, 2, 100, 8, 8, DType::f32);
  KvCache cache(1, 2, 8, 8, DType::i8);
  cache.append(s.keys(0, 90), s.values(0, 90));
  KvCache fork = cache.fork(80);
  fork.append(s.keys(80, 100), s.values(80, 100));
  cache.append(s.keys(90, 100), s.values(90, 100));
  expect_same(fork.keys(), cache.keys());
  expect_same(fork.values(), cache.values());
}

TEST(KvCache, ACopyIsAForkAndWhatWasMovedFromIsEmpty) {
  const Sequence s = sequence(1, 2, 400, 8, 8, DType::f32), other = sequence(1, 2, 100, 8, 8, DType::f32);
  KvCache cache = filled(s, {300});
  KvCache copy = cache;
  copy.append(other.keys(0, 100), other.values(0, 100));  // into a block that both hold
  cache.append(s.keys(300, 400), s.values(300, 400));
  expect_same(cache.keys(), s.k);
  expect_same(copy.keys().view().slice(2, 300, 400), other.k);
  KvCache moved = std::move(cache);
  expect_same(moved.keys(), s.k);
  EXPECT_EQ(cache.length(), 0);  // NOLINT(bugprone-use-after-move): what is left is what is asked
  EXPECT_EQ(cache.keys().shape(), Dims({1, 2, 0, 8}));
  cache.append(other.k, other.v);
  expect_same(cache.values(), other.v);
  expect_same(moved.keys(), s.k);
  copy = moved;
  moved = std::move(cache);
  expect_same(copy.keys(), s.k);
  expect_same(moved.values(), other.v);
}

// Every state that the cache is ever in is one of three; a call sees one of them, whole.
TEST(KvCache, ACallBesideAChangeSeesWhatItFound) {
  const Sequence s = sequence(1, 1, 600, 16, 16, DType::f32), other = sequence(1, 1, 700, 16, 16, DType::f32);
  constexpr std::int64_t kept = 290;
  const Tensor q = Generator(9).randn({1, 1, 2, 16});
  KvCache cache = filled(s, {600}), lasting = cache.fork(kept);
  std::vector<Tensor> expected;
  expected.push_back(attention(q, cache).out);
  expected.push_back(attention(q, lasting).out);
  lasting.append(other.keys(kept, 700), other.values(kept, 700));
  expected.push_back(attention(q, lasting).out);
  std::atomic<bool> stop{false};
  std::atomic<int> seen{0}, strange{0};
  std::vector<std::jthread> readers;
  for (int n = 0; n < 3; ++n) {
    readers.emplace_back([&, n] {
      while (!stop) {
        const Tensor out = n == 0 ? attention(q, KvCache(cache)).out : attention(q, cache).out;
        const auto is_out = [&](const Tensor& one) {
          return std::memcmp(one.raw(), out.raw(), static_cast<std::size_t>(out.count()) * sizeof(float)) == 0;
        };
        strange += std::none_of(expected.begin(), expected.end(), is_out);
        ++seen;
      }
    });
  }
  while (seen < 600) {
    cache.truncate(kept);
    cache.append(other.keys(kept, 700), other.values(kept, 700));
    cache.truncate(kept);
    cache.append(s.keys(kept, 600), s.values(kept, 600));
  }
  stop = true;
  readers.clear();
  EXPECT_EQ(strange, 0) << "of " << seen;
}

TEST(KvCache, TwoChangesAtOnceAreOneErrorAndOneChange) {
  const Sequence s = sequence(1, 1, 64, 8, 8, DType::f32);
  KvCache cache(1, 1, 8, 8);
  std::atomic<int> done{0}, refused{0};
  {
    std::vector<std::jthread> writers;
    for (int n = 0; n < 4; ++n) {
      writers.emplace_back([&] {
        for (int i = 0; i < 200; ++i) {
          try {
            cache.append(s.k, s.v);
            ++done;
          } catch (const Error& error) {
            refused += error.what() ==
                       std::string("KvCache::append: another call is changing this cache; expected one at a time");
          }
        }
      });
    }
  }
  EXPECT_EQ(done + refused, 800);
  EXPECT_EQ(cache.length(), 64 * done);
  const Tensor keys = cache.keys();
  for (std::int64_t at = 0; at < cache.length(); at += 64) expect_same(keys.view().slice(2, at, at + 64), s.k);
}

TEST(KvCache, MorePositionsThanAnyMemoryHoldsAreRefused) {
  const Sequence s = sequence(1, 1, 300, 1, 1, DType::f32);
  KvCache cache = filled(s, {300});
  const float one = 1;
  for (const std::int64_t count : {INT64_MAX, std::int64_t{1} << 50}) {
    const View rows(&one, DType::f32, {1, 1, count, 1}, {0, 0, 0, 0});
    EXPECT_THROW(cache.append(rows, rows), Error);
    expect_same(cache.keys(), s.k);
  }
}

TEST(KvCache, ConvertsAndTakesFewerAxes) {
  const Sequence s = sequence(1, 1, 10, 4, 4, DType::f32);
  KvCache cache(1, 1, 4, 4, DType::bf16);
  cache.append(s.k.view().select(0, 0).select(0, 0), s.v.view().select(0, 0));
  expect_same(cache.keys(), s.k.view().to(DType::bf16));
  const Tensor q = s.k.view().select(0, 0).select(0, 0).to(DType::bf16);
  EXPECT_EQ(attention(q, cache).out.shape(), Dims({10, 4}));
}

TEST(KvCache, AnEmptyOneIsNothingToAttendTo) {
  const KvCache cache(1, 2, 4, 5);
  const AttentionResult result = attention(Tensor({1, 2, 3, 4}), cache, {.causal = true});
  expect_same(result.out, Tensor({1, 2, 3, 5}));
  EXPECT_EQ(result.lse.item({0, 1, 2}), -INFINITY);
}

TEST(KvCache, BadInputIsNamedAndChangesNothing) {
  const auto shape = ErrorCode::bad_shape, value = ErrorCode::bad_value, dtype = ErrorCode::bad_dtype;
  KvCache cache(2, 3, 4, 5);
  cache.append(Tensor({2, 3, 7, 4}), Tensor({2, 3, 7, 5}));
  expect_error(
      shape,
      [&] {
        cache.append(Tensor({2, 3, 7, 5}), Tensor({2, 3, 7, 5}));
      },
      "KvCache::append: k has shape [2,3,7,5]", "[2,3,T,4]");
  expect_error(
      shape,
      [&] {
        cache.append(Tensor({2, 3, 7, 4}), Tensor({2, 3, 6, 5}));
      },
      "v has 6 positions, k 7");
  expect_error(
      shape,
      [&] {
        cache.append(Tensor({3, 7, 4}), Tensor({3, 7, 5}));
      },
      "[3,7,4]");
  expect_error(
      dtype,
      [&] {
        cache.append(Tensor({2, 3, 7, 4}, DType::i64), Tensor({2, 3, 7, 5}));
      },
      "k is i64");
  expect_error(
      value, [&] { cache.truncate(8); }, "KvCache::truncate: length is 8, expected 0 to 7");
  expect_error(
      value, [&] { (void)cache.fork(-1); }, "KvCache::fork: length is -1");
  expect_error(
      value, [] { KvCache(1, 0, 4, 4); }, "heads 0");
  expect_error(
      dtype, [] { KvCache(1, 1, 4, 4, DType::f64); }, "dtype is f64");
  expect_error(
      shape,
      [&] {
        attention(Tensor({2, 3, 1, 5}), cache);
      },
      "k has head size 4, q has 5");
  expect_error(
      dtype,
      [&] {
        attention(Tensor({2, 3, 1, 4}, DType::bf16), cache);
      },
      "k is f32, q is bf16");
  EXPECT_EQ(cache.length(), 7);
}

}  // namespace
}  // namespace attend
