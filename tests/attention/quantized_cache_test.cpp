// A KvCache of 8 bits: what it keeps of its keys and values, and what attention over it then is.
#include <cmath>
#include <limits>

#include "attend/kv_cache.h"
#include "tests/attention/plain.h"
#include "tests/expect.h"
#include "tests/threads_at_most.h"

namespace attend {
namespace {

using namespace test;

constexpr double inf = std::numeric_limits<double>::infinity();

KvCache quantized(const View& k, const View& v) {
  KvCache cache(k.size(0), k.size(1), k.size(3), v.size(3), DType::i8);
  cache.append(k, v);
  return cache;
}

// The largest magnitude of each row [B,H,T,D], in the order of the rows.
std::vector<double> row_magnitudes(const View& x) {
  const Tensor wide = x.to(DType::f64);
  std::vector<double> most;
  for (std::int64_t i = 0; i < wide.count(); ++i) {
    if (i % x.size(3) == 0) most.push_back(0);
    most.back() = std::max(most.back(), std::abs(wide.data<double>()[i]));
  }
  return most;
}

TEST(QuantizedCache, KeepsEachElementToHalfOf127thOfItsRow) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    Generator generator(7);
    Tensor x = generator.randn({2, 3, 300, 20});
    for (std::int64_t t = 0; t < 300; ++t) {  // rows of all sizes, one of zeros
      const float factor = t == 5 ? 0 : std::ldexp(1.0f, static_cast<int>(t % 20) - 10);
      for (std::int64_t b = 0; b < 6; ++b)
        for (std::int64_t d = 0; d < 20; ++d) x.data<float>()[(b * 300 + t) * 20 + d] *= factor;
    }
    const Tensor given = x.view().to(dtype);
    const KvCache cache = quantized(given, given.view().slice(3, 0, 7));
    EXPECT_EQ(cache.dtype(), DType::i8);
    const Tensor kept = cache.keys(), exact = given.view().to(DType::f64);
    ASSERT_EQ(kept.dtype(), DType::f32);
    const std::vector<double> most = row_magnitudes(given);
    for (std::int64_t i = 0; i < kept.count(); ++i) {
      const double step = most[static_cast<std::size_t>(i / 20)] / 127;
      const auto got = static_cast<double>(kept.data<float>()[i]);
      ASSERT_NEAR(got, exact.data<double>()[i], 0.5001 * step) << i << " " << name_of(dtype);
    }
    expect_close(cache.values(), given.view().slice(3, 0, 7), 0.01);
    // What it has kept, it keeps without a loss.
    expect_same(quantized(cache.keys(), cache.values()).keys(), cache.keys());
  }
}

TEST(QuantizedCache, HalfTheMemoryAndTheSameWaysAsAnyOther) {
  Generator generator(8);
  const Tensor k = generator.randn({1, 2, 700, 16}), v = generator.randn({1, 2, 700, 12});
  KvCache whole = quantized(k, v), cache(1, 2, 16, 12, DType::i8);
  for (std::int64_t at = 0; at < 700; at += 50)
    cache.append(k.view().slice(2, at, at + 50), v.view().slice(2, at, at + 50));
  expect_same(cache.keys(), whole.keys());
  expect_same(cache.values(), whole.values());
  KvCache fork = cache.fork(300);
  cache.truncate(290);
  fork.append(k.view().slice(2, 0, 9), v.view().slice(2, 0, 9));
  cache.append(k.view().slice(2, 290, 700), v.view().slice(2, 290, 700));
  expect_same(cache.keys(), whole.keys());
  expect_same(cache.values(), whole.values());
  expect_same(fork.keys().view().slice(2, 0, 300), whole.keys().view().slice(2, 0, 300));
  expect_same(fork.values().view().slice(2, 300, 309), whole.values().view().slice(2, 0, 9));
}

TEST(QuantizedCache, ThreadsTheBatchAndOtherSequencesDoNotMatter) {
  Generator generator(9);
  const Tensor k = generator.randn({2, 2, 1500, 64}), v = generator.randn({2, 2, 1500, 64});
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int64_t Tq : {1, 40}) {
      const Tensor q = generator.randn({2, 8, Tq, 64}).view().to(dtype);
      const KvCache cache = quantized(k, v);
      const auto with = [&](int threads) {
        const test::ThreadsAtMost limit(threads);
        return attention(q, cache, {.causal = true});
      };
      const AttentionResult one = with(1), four = with(4);
      expect_same(one.out, four.out);
      expect_same(one.lse, four.lse);
      for (std::int64_t b = 0; b < 2; ++b) {
        const KvCache item = quantized(k.view().slice(0, b, b + 1), v.view().slice(0, b, b + 1));
        expect_same(attention(q.view().slice(0, b, b + 1), item, {.causal = true}).out,
                    one.out.view().slice(0, b, b + 1));
      }
    }
  }
}

// docs/numerics.md states these, as parts of the largest output: what 8 bits change, next to a cache of f32.
TEST(QuantizedCache, AttentionIsNearTheFloatCaches) {
  struct Data {
    const char* name;
    double outlier;  // one column of the keys and one of the values is so much larger
    double bound;
  };
  for (const Data& data : {Data{"normal", 1, 0.02}, Data{"outliers", 20, 0.2}}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const std::int64_t Tq : {1, 30}) {
        Generator generator(10);
        Tensor k = generator.randn({1, 4, 2000, 64}), v = generator.randn({1, 4, 2000, 64});
        for (std::int64_t i = 3; i < k.count(); i += 64) k.data<float>()[i] *= static_cast<float>(data.outlier);
        for (std::int64_t i = 9; i < v.count(); i += 64) v.data<float>()[i] *= static_cast<float>(data.outlier);
        const Tensor q = generator.randn({1, 4, Tq, 64}).view().to(dtype);
        const AttentionResult exact = attention(q.view().to(DType::f32), k, v);
        const AttentionResult near = attention(q, quantized(k, v));
        // Column 9 by itself, and the others by themselves.
        for (const bool outlier : {false, true}) {
          const auto part = [&](const Tensor& x) {
            return outlier ? x.view().slice(3, 9, 10).clone() : x.view().slice(3, 10, 64).clone();
          };
          expect_close(part(near.out), part(exact.out), data.bound, data.name);
        }
        expect_close(near.lse, exact.lse, data.outlier > 1 ? 1e-2 : 3e-4, data.name);
      }
    }
  }
}

TEST(QuantizedCache, RowsThatAreNotFiniteReachThoseThatAttendToThemAlone) {
  for (const double bad : {std::nan(""), inf, -inf}) {
    for (const std::int64_t Tq : {2, 40}) {
      Generator generator(11);
      Tensor k = generator.randn({1, 1, 100, 32}), v = generator.randn({1, 1, 100, 32});
      const Tensor q = generator.randn({1, 1, Tq, 32});
      Tensor mask({Tq, 100}, DType::boolean);
      for (std::int64_t i = 0; i < mask.count(); ++i) mask.data<bool>()[i] = i / 100 == 0 || i % 100 != 70;
      const AttentionResult clean = attention(q, quantized(k, v), {.mask = mask});
      for (const bool in_v : {false, true}) {
        Tensor bad_k = k.clone(), bad_v = v.clone();
        (in_v ? bad_v : bad_k).data<float>()[70 * 32 + 5] = static_cast<float>(bad);
        const KvCache cache = quantized(bad_k, bad_v);
        EXPECT_TRUE(std::isnan((in_v ? cache.values() : cache.keys()).item({0, 0, 70, 0})));
        const AttentionResult result = attention(q, cache, {.mask = mask});
        for (std::int64_t d = 0; d < 32; ++d) EXPECT_TRUE(std::isnan(result.out.item({0, 0, 0, d}))) << d;
        EXPECT_EQ(std::isnan(result.lse.item({0, 0, 0})), !in_v);
        expect_same(result.out.view().slice(2, 1, Tq), clean.out.view().slice(2, 1, Tq));
        expect_same(result.lse.view().slice(2, 1, Tq), clean.lse.view().slice(2, 1, Tq));
      }
    }
  }
}

TEST(QuantizedCache, MagnitudesOfAnySize) {
  Generator generator(12);
  const Tensor unit = generator.randn({1, 2, 130, 48}), query = generator.randn({1, 2, 1, 48});
  const auto times = [](const Tensor& x, double factor) {
    Tensor out = x.clone();
    for (std::int64_t i = 0; i < out.count(); ++i) out.data<float>()[i] *= static_cast<float>(factor);
    return out;
  };
  for (const double in_v : {1e-30, 1.0, 1e30}) {
    for (const double in_k : {1e-20, 1.0, 1e20}) {
      const AttentionResult got = attention(times(query, 1 / in_k), quantized(times(unit, in_k), times(unit, in_v)));
      expect_close(got.out, attention(times(query, 1 / in_k), times(unit, in_k), times(unit, in_v)).out, 0.02);
    }
  }
  // Too small for a scale: zeros.
  expect_same(quantized(times(unit, 1e-38), unit).keys(), Tensor({1, 2, 130, 48}));
}

TEST(QuantizedCache, BadInputIsNamed) {
  KvCache cache(1, 2, 4, 5, DType::i8);
  expect_error(
      ErrorCode::bad_dtype,
      [&] {
        attention(Tensor({1, 2, 1, 4}, DType::f64), cache);
      },
      "q is f64, expected f32, bf16 or f16 for a cache of i8");
  expect_error(
      ErrorCode::bad_dtype,
      [&] {
        cache.append(Tensor({1, 2, 1, 4}, DType::i8), Tensor({1, 2, 1, 5}));
      },
      "k is i8");
  const Tensor q({1, 2, 1, 4}), eight({1, 2, 1, 4}, DType::i8);
  expect_error(
      ErrorCode::bad_dtype, [&] { attention(q, eight, eight); }, "k is i8, q is f32");
}

}  // namespace
}  // namespace attend
