// Recording::steps(): what makes a head's weights, of every option that a call may have, in parts and call by call.
#include <cmath>

#include "attend/recording.h"
#include "tests/attention/call.h"
#include "tests/expect.h"

namespace attend {
namespace {

using namespace test;

Recording recorded(const Call& x) {
  Recorder recorder(RecordOptions{.keep_qk = true});
  const AttentionResult result = x.run({.lse_low = true});
  recorder.add({.layer = "0.self"}, x.Q, x.K, result.lse, *result.lse_low, x.options);
  return recorder.finish();
}

Call random_call(std::uint64_t seed) {
  Dice dice(seed + 7000);
  constexpr DType dtypes[] = {DType::f32, DType::f32, DType::bf16, DType::f64};
  const unsigned wanted = random_features(dice) & ~unsigned{with_starts | with_dropout};
  Call x = make_call(random_sizes(dice, 30, 60), wanted, dtypes[dice.below(4)], seed);
  if (x.options.key_lengths) x.options.offset = Offset(2);  // a recorder wants a number there
  return x;
}

// [Tq,...] of one item and head of [B,H,Tq,...].
View of_head(const Tensor& x, std::int64_t item, std::int64_t head) {
  return x.view().select(0, item).select(0, head);
}

TEST(Steps, AreThoseOfTheCall) {
  for (std::uint64_t seed = 0; seed < 120; ++seed) {
    const Call x = random_call(seed);
    const Recording r = recorded(x);
    const std::int64_t item = x.Q.size(0) - 1, head = x.Q.size(1) - 1, kv_head = x.K.size(1) - 1;
    const HeadSteps steps = r.steps(0, item, head, {.values = x.V.select(0, item).select(0, kv_head)});
    const AttentionSteps exact = attention_steps(x.Q, x.K, x.V, x.options);
    const DType dtype = steps.scores.dtype();
    EXPECT_EQ(dtype, x.Q.dtype() == DType::f64 ? DType::f64 : DType::f32);
    expect_same(steps.queries, x.Q.select(0, item).select(0, head).to(dtype), x.what);
    expect_same(steps.keys, x.K.select(0, item).select(0, kv_head).to(dtype), x.what);
    expect_same(steps.scores, of_head(exact.scores, item, head), x.what);
    expect_same(steps.scaled_scores, of_head(exact.scaled_scores, item, head), x.what);
    expect_same(steps.logits, of_head(exact.logits, item, head), x.what);
    expect_same(steps.weights, r.weights(0, item, head), x.what);
    expect_same(steps.lse, of_head(r.numbers(0, "lse"), item, head), x.what);
    expect_same(steps.entropy, of_head(r.numbers(0, "entropy"), item, head), x.what);
    expect_same(*steps.context, of_head(exact.context, item, head), x.what);
    // As docs/inside.md has it: the weights are e^(logits - lse), to what the layer's dtype leaves of a logit.
    const double relative = x.Q.dtype() == DType::f64 ? 1e-12 : 4e-5;
    for (std::int64_t i = 0; i < steps.logits.size(0); ++i)
      for (std::int64_t j = 0; j < steps.logits.size(1); ++j) {
        const double logit = steps.logits.item({i, j}), lse = steps.lse.item({i});
        const double expected = logit == -INFINITY ? 0 : std::exp(logit - lse);
        ASSERT_NEAR(steps.weights.item({i, j}), expected, relative * expected + 1e-37) << x.what;
      }
  }
}

TEST(Steps, OfAPartAreThatPartOfAll) {
  for (std::uint64_t seed = 200; seed < 260; ++seed) {
    const Call x = random_call(seed);
    const Recording r = recorded(x);
    Dice dice(seed);
    const auto some = [&](std::int64_t size) {
      const std::int64_t begin = dice.below(size);
      return Range{begin, begin + 1 + dice.below(size - begin)};
    };
    const Range queries = some(x.Q.size(2)), keys = some(x.K.size(2));
    const View values = x.V.select(0, 0).select(0, 0);
    const HeadSteps all = r.steps(0, 0, 0, {.values = values});
    const HeadSteps part = r.steps(0, 0, 0, {.queries = queries, .keys = keys, .values = values});
    const auto rows = [&](const Tensor& t) { return t.view().slice(0, queries.begin, queries.end); };
    const auto cut = [&](const Tensor& t) { return rows(t).slice(1, keys.begin, keys.end); };
    expect_same(part.queries, rows(all.queries), x.what);
    expect_same(part.keys, all.keys.view().slice(0, keys.begin, keys.end), x.what);
    expect_same(part.scores, cut(all.scores), x.what);
    expect_same(part.scaled_scores, cut(all.scaled_scores), x.what);
    expect_same(part.logits, cut(all.logits), x.what);
    expect_same(part.weights, cut(all.weights), x.what);
    expect_same(part.lse, rows(all.lse), x.what);
    expect_same(*part.context, rows(*all.context), x.what);
  }
}

// A generation, whose calls know no later keys: what one pass would have hidden.
TEST(Steps, OfAGenerationAreThoseOfOnePass) {
  Generator generator(3);
  const Tensor q = generator.randn({1, 2, 9, 8}), k = generator.randn({1, 1, 9, 8}), v = generator.randn({1, 1, 9, 4});
  Recorder recorder(RecordOptions{.keep_qk = true, .grows = true});
  const AttentionOptions options{.causal = true, .window = {3, -1}, .offset = Offset::bottom_right(), .softcap = 2};
  for (const auto& [begin, end] : {std::pair{0, 5}, {5, 6}, {6, 9}}) {
    const Tensor rows = q.view().slice(2, begin, end).clone(), keys = k.view().slice(2, 0, end).clone();
    // Another scale from the second call on: calls that are told the same are kept as one.
    AttentionOptions own = options;
    own.scale = begin == 0 ? 0.3 : 0.5;
    const AttentionResult result = attention(rows, keys, keys, own, {.lse_low = true});
    recorder.add({.layer = "0.self"}, rows, keys, result.lse, *result.lse_low, own);
  }
  const Recording r = recorder.finish();
  ASSERT_EQ(r.at(0).calls.size(), 2);
  const View values = v.view().select(0, 0).select(0, 0);
  const HeadSteps steps = r.steps(0, 0, 1, {.values = values});
  for (const auto& [scale, begin, end] : {std::tuple{0.3, 0, 5}, {0.5, 5, 9}}) {
    AttentionOptions own = options;
    own.scale = scale;
    const AttentionSteps exact = attention_steps(q, k, v, own);
    const auto rows = [&, first = begin, last = end](const Tensor& t) { return t.view().slice(0, first, last); };
    const auto exact_rows = [&, first = begin, last = end](const Tensor& t) {
      return of_head(t, 0, 1).slice(0, first, last);
    };
    expect_same(rows(steps.scores), exact_rows(exact.scores));
    expect_same(rows(steps.scaled_scores), exact_rows(exact.scaled_scores));
    expect_same(rows(steps.logits), exact_rows(exact.logits));
    expect_close(rows(steps.weights), exact_rows(exact.weights), 1e-6);
    expect_same(rows(*steps.context), exact_rows(exact.context));
  }
}

TEST(Steps, BadInputIsNamed) {
  const Call x = make_call({.B = 1, .H = 2, .Hkv = 1, .Tq = 3, .Tk = 3, .D = 4, .Dv = 4}, 0, DType::f32, 1);
  const Recording r = recorded(x);
  const Tensor values({2, 4}), whole({3, 4}, DType::i64);
  expect_error(
      ErrorCode::bad_value, [&] { (void)r.steps(0, 1, 0); }, "Recording::steps: item 1, expected 0 to 0");
  expect_error(
      ErrorCode::bad_value, [&] { (void)r.steps(0, 0, 2); }, "head 2, expected 0 to 1");
  expect_error(
      ErrorCode::bad_value,
      [&] {
        (void)r.steps(0, 0, 0, {.keys = Range{2, 4}});
      },
      "Recording::steps: keys are 2 to 4, expected a part of 0 to 3");
  expect_error(
      ErrorCode::bad_shape, [&] { (void)r.steps(0, 0, 0, {.values = values.view()}); },
      "Recording::steps: values have shape [2,4], expected [Tk,Dv], Tk = 3");
  expect_error(
      ErrorCode::bad_dtype, [&] { (void)r.steps(0, 0, 0, {.values = whole.view()}); },
      "Recording::steps: values are i64, expected floating point");
  Recorder recorder;
  const AttentionResult result = x.run({.lse_low = true});
  recorder.add({.layer = "0.self"}, x.Q, x.K, result.lse, *result.lse_low, x.options);
  const Recording without = recorder.finish();
  expect_error(
      ErrorCode::bad_value, [&] { (void)without.steps(0, 0, 0); },
      "Recording::steps: layer 0.self: q and k were not kept");
}

}  // namespace
}  // namespace attend
