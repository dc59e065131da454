// What must hold of summaries whatever the numbers are: bits, ties, what nobody sees, NaN, memory, errors; and the
// scores of heads that were built to be known.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "attend/summary.h"
#include "tests/allocations.h"
#include "tests/attention/call.h"
#include "tests/threads_at_most.h"

namespace attend {
namespace {

using namespace test;

bool same_bits(const View& a, const View& b) {
  const Tensor x = a.clone(), y = b.clone();
  if (x.shape() != y.shape() || x.dtype() != y.dtype()) return false;
  return x.count() == 0 || std::memcmp(x.raw(), y.raw(), static_cast<std::size_t>(x.count() * size_of(x.dtype()))) == 0;
}

// Everything but what only some calls have, in one list.
std::vector<View> fields(const AttentionSummary& s) {
  std::vector<View> list{s.top_keys, s.top_weights, s.entropy, s.received, s.lift, *s.map, *s.map_max};
  if (s.distance) list.push_back(*s.distance);
  if (s.sink_weights) list.push_back(*s.sink_weights);
  for (const std::optional<Tensor>* carried :
       {&s.carried_top_keys, &s.carried_top_weights, &s.carried_received, &s.carried_map, &s.carried_map_max})
    if (*carried) list.push_back(**carried);
  return list;
}

TEST(AttentionSummary, BitsDoNotDependOnThreadsOrTheBatch) {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    const DType dtype = seed % 3 == 0 ? DType::bf16 : DType::f32;
    const unsigned features = (seed % 2 ? unsigned{with_causal} : 0) | (seed % 4 ? 0 : unsigned{with_bias});
    Call x = make_call({3, 4, 2, 130, 1700, 16, 16}, features, dtype, seed);
    if (seed % 2 == 0) x.options.offset = Offset::bottom_right();
    const AttentionResult forward = x.run();
    const Tensor sizes = Generator(seed).uniform({3, 4, 1700}, 0, 2);
    const auto run = [&](int threads, const View& q, const View& k, const View& lse, const AttentionOptions& options) {
      const SummaryOptions wanted{
          .top = 5, .map = MapSize{7, 9}, .key_sizes = q.size(0) == 1 ? sizes.view().slice(0, 1, 2) : sizes.view()};
      const test::ThreadsAtMost limit(threads);
      return attention_summary(q, k, lse, options, wanted);
    };
    const AttentionSummary one = run(1, x.Q, x.K, forward.lse, x.options);
    const AttentionSummary all = run(64, x.Q, x.K, forward.lse, x.options);
    const auto expected = fields(one), threaded = fields(all);
    for (std::size_t n = 0; n < expected.size(); ++n) EXPECT_TRUE(same_bits(expected[n], threaded[n])) << n << x.what;
    AttentionOptions options = x.options;
    if (options.bias) options.bias = options.bias->broadcast_to({3, 4, 130, 1700}).slice(0, 1, 2);
    const AttentionSummary alone =
        run(64, x.Q.slice(0, 1, 2), x.K.slice(0, 1, 2), forward.lse.view().slice(0, 1, 2), options);
    const auto single = fields(alone);
    for (std::size_t n = 0; n < expected.size(); ++n) {
      EXPECT_TRUE(same_bits(expected[n].slice(0, 1, 2), single[n])) << n << x.what;
    }
  }
}

// Keys that are all the same: every weight is, and lift is 1.
TEST(AttentionSummary, TiesGoToTheLowerKeyAndUniformAttentionLiftsNothing) {
  Generator generator(1);
  const Tensor q = generator.normal({1, 2, 300, 20}, 0, 1);
  const Tensor k = generator.normal({1, 2, 1, 20}, 0, 1).view().broadcast_to({1, 2, 300, 20}).clone();
  AttentionOptions options{.causal = true};
  const AttentionSummary s = attention_summary(q, k, {}, options, {.top = 4});
  for (std::int64_t i = 0; i < 300; ++i) {
    for (std::int64_t n = 0; n < 4; ++n) EXPECT_EQ(s.top_keys.item({0, 1, i, n}), n <= i ? n : -1) << i;
    // exp2 is 1.7e-7 off, in each weight and in lse; products with exponents are rounded, in baseline twice.
    const double entropy = std::log(static_cast<double>(i + 1));
    EXPECT_NEAR(s.entropy.item({0, 1, i}), entropy, 2e-6 * (1 + entropy));
    EXPECT_NEAR(s.lift.item({0, 1, i}), 1, 4e-7);
  }
}

// 30 queries against 20 keys, the last at the last: ten see nothing. Key 5 is masked from all, and is NaN.
TEST(AttentionSummary, WhatNobodySeesIsNoNumber) {
  Generator generator(2);
  const Tensor q = generator.normal({1, 1, 30, 8}, 0, 1);
  Tensor k = generator.normal({1, 1, 20, 8}, 0, 1), mask({20}, DType::boolean);
  for (std::int64_t j = 0; j < 20; ++j) mask.data<bool>()[j] = j != 5;
  for (std::int64_t d = 0; d < 8; ++d) k.data<float>()[5 * 8 + d] = d % 2 ? NAN : INFINITY;
  const AttentionOptions options{.causal = true, .offset = Offset::bottom_right(), .mask = mask.view()};
  const AttentionSummary s = attention_summary(q, k, {}, options, {.map = MapSize{3, 4}});
  for (std::int64_t i = 0; i < 30; ++i) {
    EXPECT_EQ(s.top_keys.item({0, 0, i, 0}) >= 0, i >= 10) << i;
    EXPECT_TRUE(std::isfinite(s.entropy.item({0, 0, i})) && std::isfinite(s.distance->item({0, 0, i})));
    if (i < 10) {
      EXPECT_EQ(s.entropy.item({0, 0, i}), 0);
    }
  }
  EXPECT_EQ(s.received.item({0, 0, 5}), 0);
  EXPECT_EQ(s.lift.item({0, 0, 5}), 0);
  const double rows[] = {0, 1, 1};
  for (std::int64_t r = 0; r < 3; ++r) {
    double sum = 0;
    for (std::int64_t c = 0; c < 4; ++c) sum += s.map->item({0, 0, r, c});
    EXPECT_NEAR(sum, rows[r], 1e-6);
  }
  for (const HeadScores& scores : head_scores(q, k, {}, options)) {
    EXPECT_TRUE(std::isfinite(scores.entropy) && std::isfinite(scores.sink.value_or(0)) &&
                std::isfinite(scores.local.value_or(0)));
  }
}

TEST(AttentionSummary, ARowOfNaNIsNaNAloneAndHasNoTopKeys) {
  Generator generator(3);
  Tensor q = generator.normal({1, 1, 70, 8}, 0, 1);
  const Tensor k = generator.normal({1, 1, 70, 8}, 0, 1);
  const AttentionSummary before = attention_summary(q, k, {});
  q.data<float>()[9 * 8] = NAN;
  const Tensor sizes = Generator(4).uniform({1, 1, 70}, 0, 2);
  const AttentionSummary s = attention_summary(q, k, {}, {}, {.key_sizes = sizes.view()});
  EXPECT_TRUE(std::isnan(s.entropy.item({0, 0, 9})));
  EXPECT_EQ(s.carried_top_keys->item({0, 0, 9, 0}), -1);
  EXPECT_TRUE(std::isnan(s.carried_top_weights->item({0, 0, 9, 0})));
  EXPECT_EQ(s.top_keys.item({0, 0, 9, 0}), -1);
  EXPECT_TRUE(std::isnan(s.top_weights.item({0, 0, 9, 0})));
  for (std::int64_t i = 0; i < 70; ++i) {
    if (i == 9) continue;
    EXPECT_EQ(s.entropy.item({0, 0, i}), before.entropy.item({0, 0, i}));
    EXPECT_EQ(s.top_keys.item({0, 0, i, 7}), before.top_keys.item({0, 0, i, 7}));
  }
}

// Logits near 1e4, of which f32's lse alone is 5e-4 off.
TEST(AttentionSummary, PeakedRowsSumToOneWithoutLseLow) {
  Generator generator(4);
  const Tensor q = generator.normal({1, 1, 64, 16}, 40, 1), k = generator.normal({1, 1, 90, 16}, 60, 1);
  const AttentionOptions options{.scale = 0.25};
  const AttentionResult forward = attention(q, k, k, options, {.lse_low = true});
  for (const auto& low : {std::optional<View>(), std::optional<View>(*forward.lse_low)}) {
    const Tensor weights = attention_weights(q, k, forward.lse, options, {.lse_low = low});
    for (std::int64_t i = 0; i < 64; ++i) {
      double sum = 0;
      for (std::int64_t j = 0; j < 90; ++j) sum += weights.item({0, 0, i, j});
      EXPECT_NEAR(sum, 1, 2e-6) << i;
    }
  }
}

TEST(AttentionSummary, MemoryIsWhatThePlanSays) {
  for (const std::int64_t keys : {1024, 16384}) {
    const Tensor q({1, 1, 256, 64}), k({1, 1, keys, 64}), lse({1, 1, 256});
    const SummaryOptions wanted{.map = MapSize{64, 64}};
    const AttentionPlan plan = plan_summary(q.shape(), k.shape(), DType::f32, {}, wanted);
    const CountAllocations counted;
    const AttentionSummary s = attention_summary(q, k, lse, {}, wanted);
    std::int64_t results = 0;
    for (const View& x : fields(s)) results += x.count() * size_of(x.dtype());
    EXPECT_LE(counted.tensor_bytes(), results + plan.scratch_bytes + 4096);
    EXPECT_GE(counted.tensor_bytes() + counted.list_bytes(), results + plan.scratch_bytes - 4096);
    EXPECT_LT(plan.scratch_bytes, 2 << 20);
  }
}

TEST(AttentionSummary, TellsHowFarItIsAndEndsWhereToldTo) {
  const Tensor q({1, 4, 256, 16}), k({1, 4, 4096, 16});
  std::vector<double> told;
  attention_summary(q, k, {}, {}, {.progress = [&](double share) { told.push_back(share); }});
  ASSERT_FALSE(told.empty());
  EXPECT_TRUE(std::is_sorted(told.begin(), told.end()));
  EXPECT_LE(told.back(), 1);
  EXPECT_THROW(attention_summary(q, k, {}, {}, {.progress = [](double) { throw std::runtime_error("enough"); }}),
               std::runtime_error);
}

TEST(AttentionSummary, ErrorsSayWhatWasExpected) {
  const Tensor q({1, 2, 5, 8}), k({1, 1, 6, 8}), lse({1, 2, 5}), tokens({6}, DType::i64);
  const auto expect = [&](ErrorCode code, const char* message, const auto& call) {
    try {
      call();
      ADD_FAILURE() << "expected: " << message;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code);
      EXPECT_EQ(std::string(error.what()), message);
    }
  };
  expect(ErrorCode::bad_shape, "attention_summary: lse has shape [1,2,6], expected [1,2,5]", [&] {
    attention_summary(q, k, Tensor({1, 2, 6}));
  });
  expect(ErrorCode::bad_dtype, "attention_summary: lse is f64, expected f32", [&] {
    attention_summary(q, k, Tensor({1, 2, 5}, DType::f64));
  });
  expect(ErrorCode::bad_value, "attention_summary: lse_low is given without lse",
         [&] { attention_summary(q, k, {}, {}, {.lse_low = lse.view()}); });
  expect(ErrorCode::bad_value, "attention_summary: top is -1, expected 0 or more",
         [&] { attention_summary(q, k, lse, {}, {.top = -1}); });
  // Beyond what 32 bits count; sizes that would overflow are not multiplied.
  expect(ErrorCode::bad_value, "plan_summary: top is 4611686018427387904, expected at most 2147483647",
         [&] { plan_summary(q.shape(), k.shape(), DType::f32, {}, {.top = std::int64_t{1} << 62}); });
  expect(ErrorCode::bad_shape, "plan_summary: k has 2147483648 keys, expected at most 2147483647 for top keys", [&] {
    plan_summary({1, 1, 5, 8}, {1, 1, std::int64_t{1} << 31, 8});
  });
  expect(ErrorCode::bad_value, "attention_summary: map of 0 x 3 blocks, expected at least 1 x 1", [&] {
    attention_summary(q, k, lse, {}, {.map = MapSize{0, 3}});
  });
  Tensor sizes({1, 2, 6});
  sizes.data<float>()[7] = -2;
  expect(ErrorCode::bad_value, "attention_summary: key_sizes have -2 at element 7, expected 0 or more",
         [&] { attention_summary(q, k, lse, {}, {.key_sizes = sizes.view()}); });
  expect(ErrorCode::bad_shape, "attention_weights: key_sizes has shape [1,2,5], expected [1,2,6]",
         [&] { attention_weights(q, k, lse, {}, {.key_sizes = lse.view()}); });
  expect(ErrorCode::bad_dtype, "head_scores: key_sizes is f64, expected f32",
         [&] { head_scores(q, k, lse, {}, {}, {}, sizes.view().to(DType::f64)); });
  expect(ErrorCode::bad_value, "attention_weights: queries are 2 to 6, expected a part of 0 to 5", [&] {
    attention_weights(q, k, lse, {}, {.queries = Range{2, 6}});
  });
  expect(ErrorCode::bad_value, "attention_weights_of: pairs[0] is query 0 and key 6, expected 0 to 4 and 0 to 5", [&] {
    Tensor pairs({1, 2}, DType::i64);
    pairs.data<std::int64_t>()[1] = 6;
    attention_weights_of(pairs, q, k, lse);
  });
  expect(ErrorCode::bad_shape, "attention_summary: k has head size 9, q has 8 (q [1,2,5,8], k [1,1,6,9])", [&] {
    attention_summary(q, Tensor({1, 1, 6, 9}), lse);
  });
  expect(ErrorCode::bad_value, "head_scores: tokens are given for 5 queries and 6 keys without an offset",
         [&] { head_scores(q, k, lse, {}, tokens.view()); });
  expect(ErrorCode::bad_value, "head_scores: tokens are given, but query 4 is level with key 6 of 6",
         [&] { head_scores(q, k, lse, {.offset = Offset(2)}, tokens.view()); });
}

}  // namespace
}  // namespace attend
