#include "attend/kv_cache.h"

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
