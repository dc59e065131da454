// head_scores(): the oracle's numbers of the weights, with all options; and what heads of one kind are called.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "attend/summary.h"
#include "tests/attention/call.h"
#include "tests/attention/head_oracle.h"

namespace attend {
namespace {

using namespace test;

void expect_near(const std::optional<double>& got, const std::optional<double>& expected, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(got.has_value(), expected.has_value()) << what;
  if (got) {
    ASSERT_NEAR(*got, *expected, tolerance) << what;
  }
}

void expect_excess(const HeadKinds& got, const HeadKinds& expected, const std::string& what) {
  // (s - u) / (m - u) with m - u of at least 0.1: ten times what a score is off.
  for (const std::string_view name : HeadKinds::names())
    expect_near(got.of(name), expected.of(name), 2e-4, what + " excess of " + std::string(name));
}

// Labels whose excess lies on their threshold, or level with another's, are anybody's guess.
bool is_clear(const HeadKinds& excess, double effective_keys, double keys_seen) {
  std::vector<double> edges = {0.3, 0.5};
  for (const std::string_view name : HeadKinds::names()) {
    const std::optional<double>& value = excess.of(name);
    if (!value) continue;
    for (const double edge : edges)
      if (std::abs(*value - edge) < 1e-3) return false;
    edges.push_back(*value);
  }
  return std::abs(2 * effective_keys / keys_seen - 1) > 1e-3 && std::abs(effective_keys - 3) > 1e-3;
}

void expect_labels(const std::vector<HeadLabel>& got, const std::vector<HeadLabel>& expected, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (std::size_t n = 0; n < got.size(); ++n) {
    ASSERT_EQ(got[n].name, expected[n].name) << what;
    ASSERT_NEAR(got[n].value, expected[n].value, 2e-4 * (1 + expected[n].value)) << what;
  }
}

void expect_scores(const HeadScores& got, const HeadOracle& oracle, const std::string& what, bool by_norm = false) {
  const HeadScores expected = oracle.scores();
  ASSERT_EQ(got.rows, expected.rows) << what;
  expect_near(got.sink, expected.sink, 2e-5, what + " sink");
  const std::pair<const char*, std::optional<double> HeadScores::*> scores[] = {{"self", &HeadScores::self},
                                                                                {"previous", &HeadScores::previous},
                                                                                {"duplicate", &HeadScores::duplicate},
                                                                                {"induction", &HeadScores::induction},
                                                                                {"local", &HeadScores::local}};
  for (const auto& [name, score] : scores) expect_near(got.*score, expected.*score, 2e-5, what + " " + name);
  if (got.distance) {
    ASSERT_NEAR(*got.distance, *expected.distance, 2e-5 * (1 + *expected.distance)) << what;
  }
  ASSERT_NEAR(got.entropy, expected.entropy, 2e-5 * (1 + expected.entropy)) << what;
  ASSERT_NEAR(got.keys_seen, expected.keys_seen, 1e-4 * expected.keys_seen) << what;
  expect_excess(got.excess, expected.excess, what);
  ASSERT_EQ(got.without_sink.has_value(), got.has_label("sink") && !by_norm) << what;
  if (is_clear(expected.excess, expected.effective_keys, expected.keys_seen))
    expect_labels(got.labels, expected.labels, what);
  if (!got.without_sink) return;
  const WithoutSink rest = oracle.without(got.sink_key);
  ASSERT_EQ(got.without_sink->rows_left_out, rest.rows_left_out) << what;
  // What a row keeps is at least 0.01: a hundred times what its weights are off.
  ASSERT_NEAR(got.without_sink->effective_keys, rest.effective_keys, 2e-3 * (1 + rest.effective_keys)) << what;
  ASSERT_NEAR(got.without_sink->keys_seen, rest.keys_seen, 1e-4 * (1 + rest.keys_seen)) << what;
  for (const std::string_view name : HeadKinds::names())
    expect_near(got.without_sink->excess.of(name), rest.excess.of(name), 2e-3, what + " besides " + std::string(name));
}

// A call of one sequence an item, its weights as attention_weights() gives them, its places as the header has them.
struct Case {
  Call x;
  Sizes s;
  Tensor tokens, weights, visible;  // [B,Tk] or empty; [B,H,Tq,Tk]
  Tensor sizes = {};                // [B,H,Tk] or empty
  std::vector<std::vector<std::int64_t>> levels;
  bool has_levels = false;

  HeadOracle oracle(std::int64_t b, std::int64_t h) const {
    HeadWeights head{s.Tq, s.Tk, {}, {}};
    for (std::int64_t i = 0; i < s.Tq; ++i) {
      for (std::int64_t j = 0; j < s.Tk; ++j) {
        head.weights.push_back(weights.item({b, h, i, j})), head.visible.push_back(visible.item({b, h, i, j}));
      }
    }
    if (has_levels) head.level = levels[static_cast<std::size_t>(b)];
    for (std::int64_t j = 0; tokens.count() > 0 && j < s.Tk; ++j)
      head.tokens.push_back(static_cast<std::int64_t>(tokens.item({b, j})));
    for (std::int64_t j = 0; sizes.count() > 0 && j < s.Tk; ++j) head.sizes.push_back(sizes.item({b, h, j}));
    return HeadOracle(std::move(head));
  }
};

Case random_case(std::uint64_t seed) {
  Dice dice(seed + 9000);
  constexpr DType dtypes[] = {DType::f32, DType::f32, DType::bf16, DType::f16, DType::f64};
  Case c;
  c.s = random_sizes(dice, dice.one_in(4) ? 120 : 40, dice.one_in(8) ? 900 : 100);
  if (dice.one_in(2)) c.s.Tk = c.s.Tq;
  c.x = make_call(c.s, random_features(dice) & ~(with_starts | with_dropout), dtypes[dice.below(5)], seed);
  if (!c.x.options.bias && dice.one_in(2)) {  // a sink
    c.x.bias = Tensor({c.s.Tk});
    c.x.bias.data<float>()[dice.below(c.s.Tk)] = static_cast<float>(2 + dice.below(8));
    c.x.options.bias = c.x.bias.view();
  }
  c.visible = Tensor({c.s.B, c.s.H, c.s.Tq, c.s.Tk}), c.levels.resize(static_cast<std::size_t>(c.s.B));
  for (auto& level : c.levels) level.resize(static_cast<std::size_t>(c.s.Tq));
  kernels::Row row;
  for_each_oracle_row(c.x, [&](const OracleRow& at) {
    kernels::reference_row(at.head, at.row, row);
    c.levels[static_cast<std::size_t>(at.b)][static_cast<std::size_t>(at.i)] = at.row + at.head.rules.offset;
    float* to = c.visible.data<float>() + ((at.b * c.s.H + at.h) * c.s.Tq + at.i) * c.s.Tk;
    for (std::int64_t j = 0; j < at.head.Tk; ++j) to[j] = row.logits[j] != -INFINITY;
  });
  c.has_levels = c.x.options.offset || c.s.Tq == c.s.Tk;
  bool inside = true;
  for (const auto& of : c.levels)
    for (const std::int64_t level : of) inside &= level >= 0 && level < c.s.Tk;
  if (!c.has_levels || !inside || dice.one_in(4)) return c;
  c.tokens = Tensor({c.s.B, c.s.Tk}, DType::i64);
  // Ids as vocabularies have them, or beyond what f32 holds.
  const std::int64_t first = dice.one_in(3) ? std::int64_t{1} << 40 : 0, kinds = 1 + dice.below(20);
  for (std::int64_t n = 0; n < c.tokens.count(); ++n) c.tokens.data<std::int64_t>()[n] = first + dice.below(kinds);
  return c;
}

TEST(AttentionHeads, ScoresAndLabelsAreTheOracles) {
  const std::vector<std::uint64_t> seeds = sweep(0, 250);
  std::ptrdiff_t sinks = 0, labelled = 0;
  for (const std::uint64_t seed : seeds) {
    Case c = random_case(seed);
    const AttentionResult result = c.x.run({.lse_low = true});
    c.weights = attention_weights(c.x.Q, c.x.K, result.lse, c.x.options, {.lse_low = *result.lse_low});
    std::optional<View> tokens;
    if (c.tokens.count() > 0) tokens = c.tokens;
    const auto scores = head_scores(c.x.Q, c.x.K, result.lse, c.x.options, tokens, *result.lse_low);
    ASSERT_EQ(std::ssize(scores), c.s.B * c.s.H);
    for (const HeadScores& s : scores) {
      expect_scores(s, c.oracle(s.batch, s.head),
                    fmt::format("seed {} item {} head {}{}", seed, s.batch, s.head, c.x.what));
      if (HasFatalFailure()) return;
      sinks += s.has_label("sink"), labelled += !s.labels.empty();
    }
  }
  EXPECT_GT(sinks, std::ssize(seeds) / 8);
  EXPECT_GT(labelled, std::ssize(seeds) * 4 / 5);
}

// What a key has that nobody sees may be no number.
TEST(AttentionHeads, ByNormTheyAreTheOracles) {
  const std::vector<std::uint64_t> seeds = sweep(400, 550);
  std::ptrdiff_t changed = 0;
  for (const std::uint64_t seed : seeds) {
    Case c = random_case(seed);
    const AttentionResult result = c.x.run({.lse_low = true});
    c.weights = attention_weights(c.x.Q, c.x.K, result.lse, c.x.options, {.lse_low = *result.lse_low});
    c.sizes = key_sizes_of(c.visible, c.x.Q.dtype(), seed);
    std::optional<View> tokens;
    if (c.tokens.count() > 0) tokens = c.tokens;
    const auto score = [&](const std::optional<View>& sizes) {
      return head_scores(c.x.Q, c.x.K, result.lse, c.x.options, tokens, *result.lse_low, sizes);
    };
    const auto scores = score(c.sizes.view()), by_weight = score({});
    for (std::size_t n = 0; n < scores.size(); ++n) {
      const HeadScores& s = scores[n];
      expect_scores(s, c.oracle(s.batch, s.head),
                    fmt::format("seed {} item {} head {}{}", seed, s.batch, s.head, c.x.what), true);
      if (HasFatalFailure()) return;
      changed += s.label_text() != by_weight[n].label_text();
    }
  }
  EXPECT_GT(changed, std::ssize(seeds) / 3);
}

// ---- Heads of one kind ----

// One head whose query i attends to key target(i) alone, where that is 0 or more; else to all that it sees.
template <class Target>
HeadScores scores_of(std::int64_t size, Target target, const std::optional<View>& tokens, DType dtype = DType::f32) {
  const Tensor q({1, 1, size, 4}), k({1, 1, size, 4});
  Tensor bias({size, size});
  for (std::int64_t i = 0; i < size; ++i)
    if (target(i) >= 0) bias.data<float>()[i * size + target(i)] = 60;
  const AttentionOptions options{.causal = true, .bias = bias.view()};
  return head_scores(q.view().to(dtype), k.view().to(dtype), {}, options, tokens)[0];
}

Tensor repeated_tokens(std::int64_t size, std::int64_t kinds) {
  Tensor tokens({size}, DType::i64);
  for (std::int64_t j = 0; j < size; ++j) tokens.data<std::int64_t>()[j] = 1000 + j % kinds * 7;
  return tokens;
}

TEST(AttentionHeads, OfOneKindAreCalledSo) {
  constexpr std::int64_t size = 100;
  const Tensor tokens = repeated_tokens(size, 25);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    const auto looks_at = [&](auto target) { return scores_of(size, target, tokens, dtype); };
    const HeadScores previous = looks_at([](std::int64_t i) { return i - 1; });
    EXPECT_NEAR(*previous.previous, 1, 1e-5);
    EXPECT_EQ(previous.label_text(), "previous 1.00");
    EXPECT_NEAR(*previous.distance, 0.99, 1e-5);  // query 0 sees but itself
    EXPECT_NEAR(*previous.local, 1, 1e-5);
    EXPECT_EQ(looks_at([](std::int64_t i) { return i; }).label_text(), "self 1.00");
    const HeadScores sink = looks_at([](std::int64_t) { return 3; });
    EXPECT_EQ(sink.labels.front().name, "sink");
    EXPECT_EQ(sink.sink_key, 3);
    EXPECT_NEAR(*sink.sink, 1, 1e-5);
    // The key after the last one with the query's token. 3 of 4 rows have one: all that such a head can do.
    const HeadScores induction = looks_at([](std::int64_t i) { return i - 24; });
    EXPECT_NEAR(*induction.induction, 0.75, 0.03);  // the rows without one see all alike
    EXPECT_NEAR(*induction.excess.induction, 1, 0.05);
    EXPECT_EQ(induction.labels.size(), 1u);
    EXPECT_EQ(induction.labels[0].name, "induction");
    EXPECT_NEAR(*induction.duplicate, 0, 1e-3);
    const HeadScores duplicate = looks_at([](std::int64_t i) { return i - 25; });
    EXPECT_NEAR(*duplicate.duplicate, 0.75, 1e-5);
    EXPECT_EQ(duplicate.label_text(), "duplicate 1.00");
    EXPECT_EQ(looks_at([](std::int64_t i) { return i - i % 5; }).labels[0].name, "local");
    EXPECT_EQ(looks_at([](std::int64_t i) { return i / 2; }).labels[0].name, "focused");
  }
}

// 0 beyond what it would be by chance, whatever the length: no length makes a head of it.
TEST(AttentionHeads, UniformAttentionIsBroadAtEveryLength) {
  for (const std::int64_t size : {9, 12, 16, 20, 40, 100, 300}) {
    const Tensor tokens = repeated_tokens(size, 4);
    const HeadScores broad = scores_of(
        size, [](std::int64_t) { return -1; }, tokens);
    for (const std::string_view name : HeadKinds::names())
      if (broad.excess.of(name)) {
        EXPECT_NEAR(*broad.excess.of(name), 0, 1e-5) << name << " of " << size;
      }
    EXPECT_EQ(broad.label_text(), "broad") << size;
    EXPECT_NEAR(broad.effective_keys, broad.keys_seen, 1e-3);
    EXPECT_TRUE(broad.excess.induction.has_value() == (size >= 12)) << size;
  }
}

TEST(AttentionHeads, FewQueriesAreUnknown) {
  for (const std::int64_t size : {1, 3, 5, 8}) {
    const HeadScores sink = scores_of(size, [](std::int64_t) { return 0; }, {});
    EXPECT_TRUE(sink.labels.empty()) << size;
    EXPECT_EQ(sink.label_text(), "unknown");
  }
  EXPECT_EQ(scores_of(9, [](std::int64_t) { return 0; }, {}).labels[0].name, "sink");
}

// Equal tokens throughout: the key level with the query follows an equal one, too.
TEST(AttentionHeads, InductionCountsTheLevelKey) {
  const HeadScores self = scores_of(
      50, [](std::int64_t i) { return i; }, repeated_tokens(50, 1));
  EXPECT_NEAR(*self.induction, 0.98, 1e-5);
}

// Half of each row to a sink, the other half to the key that comes after the last copy of its token.
TEST(AttentionHeads, WhatASinkHeadDoesBesides) {
  constexpr std::int64_t size = 100;
  const Tensor q({1, 1, size, 4}), k({1, 1, size, 4}), tokens = repeated_tokens(size, 25);
  Tensor bias({size, size});
  for (std::int64_t i = 0; i < size; ++i) {
    bias.data<float>()[i * size] = 60;
    if (i >= 25) bias.data<float>()[i * size + i - 24] = 60;
  }
  const HeadScores s = head_scores(q, k, {}, {.causal = true, .bias = bias.view()}, tokens.view())[0];
  EXPECT_EQ(s.labels[0].name, "sink");
  EXPECT_EQ(s.sink_key, 0);
  ASSERT_TRUE(s.without_sink);
  EXPECT_EQ(s.without_sink->labels[0].name, "induction");
  EXPECT_NEAR(s.without_sink->labels[0].value, 1, 1e-3);
  EXPECT_EQ(s.without_sink->rows_left_out, 24);  // row 0 sees nothing else
  EXPECT_TRUE(s.has_label("induction") && s.has_label("sink") && !s.has_label("previous"));
  EXPECT_NE(s.label_text().find("; besides: induction 1.00"), std::string::npos) << s.label_text();
}

TEST(AttentionHeads, LabelsOfUnknownNamesAreRefused) {
  EXPECT_THROW((void)HeadKinds{}.of("broad"), Error);
}

}  // namespace
}  // namespace attend
