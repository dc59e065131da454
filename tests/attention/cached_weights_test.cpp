// attention_weights() over a KvCache: the bits of the same keys in one tensor, the oracle's weights, and of 8 bits
// those that attention() over the cache made its lse of.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "attend/kv_cache.h"
#include "attend/summary.h"
#include "tests/attention/call.h"
#include "tests/threads_at_most.h"

namespace attend {
namespace {

using namespace test;

// A call, its keys and values in a cache that was filled piece by piece.
struct Cached {
  Call call;
  KvCache cache;
  AttentionResult forward;
  std::optional<View> lse, lse_low;  // as they are given

  WeightsOptions part(const std::optional<Range>& queries = {}, const std::optional<Range>& keys = {}) const {
    return {.lse_low = lse_low, .queries = queries, .keys = keys};
  }
  Tensor weights(const WeightsOptions& wanted) const {
    return attention_weights(call.Q, cache, lse, call.options, wanted);
  }
};

KvCache filled(const Call& x, DType dtype, Dice& dice) {
  KvCache cache(x.K.size(0), x.K.size(1), x.K.size(3), x.V.size(3), dtype);
  for (std::int64_t at = 0; at < x.K.size(2);) {
    const std::int64_t next = at + 1 + dice.below(x.K.size(2) - at);
    cache.append(x.K.slice(2, at, next), x.V.slice(2, at, next));
    at = next;
  }
  return cache;
}

// Every option that a cache allows, more keys than a block and than a range of decode now and then.
Cached random_call(std::uint64_t seed, DType dtype, bool whole_numbers = false) {
  Dice dice(seed + 9000);
  const Sizes sizes = random_sizes(dice, 40, dice.one_in(3) ? 1300 : 300);
  Call call = make_call(sizes, random_features(dice) & ~unsigned{with_starts}, dtype, seed);
  if (!call.options.offset) call.options.offset = Offset::bottom_right();
  KvCache cache = filled(call, whole_numbers ? DType::i8 : dtype, dice);
  AttentionResult forward = attention(call.Q, cache, call.options, {.lse_low = true});
  Cached x{std::move(call), std::move(cache), std::move(forward), {}, {}};
  if (seed % 3 != 0) x.lse = x.forward.lse;
  if (seed % 3 == 2) x.lse_low = x.forward.lse_low->view();
  return x;
}

TEST(CachedWeights, HaveTheBitsOfOneTensor) {
  constexpr DType dtypes[] = {DType::f32, DType::bf16, DType::f16};
  for (std::uint64_t seed = 0; seed < 240; ++seed) {
    const Cached x = random_call(seed, dtypes[seed / 3 % 3]);
    const Tensor plain = attention_weights(x.call.Q, x.call.K, x.lse, x.call.options, {.lse_low = x.lse_low});
    expect_same(x.weights(x.part()), plain, x.call.what);
  }
}

TEST(CachedWeights, PartsAndSizesAreThoseOfTheWhole) {
  for (std::uint64_t seed = 300; seed < 360; ++seed) {
    const Cached x = random_call(seed, seed % 2 == 0 ? DType::f32 : DType::bf16, seed % 4 < 2);
    Dice dice(seed);
    const auto some = [&](std::int64_t size) {
      const std::int64_t begin = dice.below(size + 1);
      return Range{begin, begin + dice.below(size - begin + 1)};
    };
    const Range queries = some(x.call.Q.size(2)), keys = some(x.cache.length());
    const Tensor whole = x.weights(x.part());
    const View cut = whole.view().slice(2, queries.begin, queries.end).slice(3, keys.begin, keys.end);
    expect_same(x.weights(x.part(queries, keys)), cut, x.call.what);
    Tensor sizes({x.call.Q.size(0), x.call.Q.size(1), x.cache.length()});
    std::fill_n(sizes.data<float>(), sizes.count(), 2.0f);
    WeightsOptions carried = x.part(queries, keys);
    carried.key_sizes = sizes.view();
    Tensor twice = cut.clone();
    for (std::int64_t n = 0; n < twice.count(); ++n) twice.data<float>()[n] *= 2;
    expect_same(x.weights(carried), twice, x.call.what);
  }
}

// Of f32 keys, and of what 8 bits stand for.
TEST(CachedWeights, AreTheOracles) {
  for (std::uint64_t seed = 400; seed < 520; ++seed) {
    const bool whole_numbers = seed % 2 == 0;
    Cached x = random_call(seed, DType::f32, whole_numbers);
    const bool decoded = x.call.options.dropout.p == 0 && x.call.Q.size(2) * x.call.Q.size(1) / x.cache.heads() <= 8;
    const Tensor kept = x.cache.keys(), got = x.weights(x.part());
    x.call.K = kept.view();
    kernels::Row row;
    for_each_oracle_row(x.call, [&](const OracleRow& at) {
      kernels::reference_row(at.head, at.row, row);
      // A logit is some D roundings of products near 1 to 16 off, as in summary_test.cpp. Decode rounds a query to 16
      // bits by its largest number, some 4: 24 products with keys up to 4, times 2.5, are 24 * 4 * 2.5 * 4 * 2^-16 off
      // at most, and 1/8 of that where roundings are not all of one sign.
      const double relative = whole_numbers && decoded ? 2e-3 : 4e-5;
      for (std::int64_t j = 0; j < at.head.Tk; ++j) {
        const double exact = row.logits[j] == -INFINITY ? 0 : std::exp(row.logits[j] - row.lse - row.lse_low);
        ASSERT_NEAR(got.item({at.b, at.h, at.i, j}), exact, relative * exact + 1e-37) << x.call.what << " key " << j;
      }
    });
    if (HasFatalFailure()) return;
  }
}

// Whatever the products' form, of 16 bits or of bf16: rows sum to 1, less the sinks' share, by the lse of attention().
TEST(CachedWeights, RowsOfEightBitsFitTheirLse) {
  constexpr DType dtypes[] = {DType::f32, DType::bf16, DType::f16};
  for (std::uint64_t seed = 600; seed < 720; ++seed) {
    const Cached x = random_call(seed, dtypes[seed % 3], true);
    const Tensor weights =
        attention_weights(x.call.Q, x.cache, x.forward.lse, x.call.options, {.lse_low = *x.forward.lse_low});
    const std::int64_t Tk = x.cache.length();
    for (std::int64_t row = 0; row < x.forward.lse.count(); ++row) {
      const std::int64_t h = row / x.call.Q.size(2) % x.call.Q.size(1);
      const auto lse = static_cast<double>(x.forward.lse.data<float>()[row]);
      double sum = x.call.options.sinks ? std::exp(x.call.options.sinks->item({h}) - lse) : 0;
      for (std::int64_t j = 0; j < Tk; ++j) sum += static_cast<double>(weights.data<float>()[row * Tk + j]);
      if (lse != -INFINITY) {
        ASSERT_NEAR(sum, 1, 2e-5) << x.call.what << " row " << row;
      }
    }
  }
}

TEST(CachedWeights, ThreadsDoNotMatter) {
  for (const DType dtype : {DType::f32, DType::i8}) {
    Generator generator(5);
    const Tensor q = generator.randn({2, 6, 1, 64}), k = generator.randn({2, 2, 3000, 64});
    KvCache cache(2, 2, 64, 64, dtype);
    cache.append(k, k);
    const auto with = [&](int threads) {
      const test::ThreadsAtMost limit(threads);
      return attention_weights(q, cache, {}, {.causal = true});
    };
    expect_same(with(1), with(4));
  }
}

TEST(CachedWeights, QueriesAreTheLastPositionsAndAnEmptyCacheHasNone) {
  Generator generator(6);
  const Tensor q = generator.randn({1, 2, 3, 8}), k = generator.randn({1, 2, 300, 8});
  KvCache cache(1, 2, 8, 8);
  EXPECT_EQ(attention_weights(q, cache, {}, {.causal = true}).shape(), (Dims{1, 2, 3, 0}));
  cache.append(k, k);
  expect_same(attention_weights(q, cache, {}, {.causal = true}),
              attention_weights(q, k, {}, {.causal = true, .offset = Offset::bottom_right()}));
  // As many axes as q has.
  KvCache one(1, 1, 8, 8);
  one.append(k.view().slice(1, 0, 1), k.view().slice(1, 0, 1));
  const View rows = q.view().select(0, 0).select(0, 0);
  EXPECT_EQ(attention_weights(rows, one, {}).shape(), (Dims{3, 300}));
}

TEST(CachedWeights, BadInputIsNamed) {
  Generator generator(7);
  const Tensor q = generator.randn({1, 2, 3, 8});
  const Tensor starts = whole_numbers({0, 3});
  const KvCache cache(1, 2, 8, 8), other(1, 2, 16, 8), bytes(1, 2, 8, 8, DType::i8);
  expect_error(
      ErrorCode::bad_value,
      [&] { attention_weights(q, cache, {}, {.query_starts = starts.view(), .key_starts = starts.view()}); },
      "attention_weights: query_starts and key_starts do not apply to a KvCache");
  expect_error(
      ErrorCode::bad_shape, [&] { attention_weights(q, other, {}); }, "attention_weights: k has head size 16, q has 8");
  expect_error(
      ErrorCode::bad_dtype, [&] { attention_weights(q.view().to(DType::f64), bytes, {}); },
      "attention_weights: q is f64, expected f32, bf16 or f16 for a cache of i8");
  expect_error(
      ErrorCode::bad_value,
      [&] {
        attention_weights(q, cache, {}, {}, {.keys = Range{0, 1}});
      },
      "attention_weights: keys are 0 to 1, expected a part of 0 to 0");
  const Tensor lse({3});
  expect_error(
      ErrorCode::bad_shape, [&] { attention_weights(q, cache, lse.view()); },
      "attention_weights: lse has shape [3], expected [1,2,3]");
}

}  // namespace
}  // namespace attend
