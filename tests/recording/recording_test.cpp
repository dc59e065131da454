// Recorder and Recording: one pass says what attention_summary() says; a generation, call by call, what one pass over
// all of its rows says; a file what was saved.
#include "attend/recording.h"

#include <fmt/format.h>

#include <cmath>
#include <functional>

#include "attend/threads.h"
#include "tests/attention/call.h"
#include "tests/fault.h"
#include "tests/io/files.h"
#include "tests/threads_at_most.h"

namespace attend {
namespace {

using namespace test;

struct Arguments {
  Tensor q, k;
  AttentionOptions options = {};
  std::optional<Tensor> sizes = {};  // of keys [B,H,Tk]
};

Arguments with_sizes(Arguments x) {
  const Dims shape{x.q.size(0), x.q.size(1), x.k.size(2)};
  Tensor sizes = Generator(8).randn(shape);
  for (std::int64_t n = 0; n < sizes.count(); ++n) sizes.data<float>()[n] = std::abs(sizes.data<float>()[n]);
  x.sizes = sizes.view().to(x.q.dtype() == DType::f64 ? DType::f64 : DType::f32);
  return x;
}

Arguments make_arguments(std::int64_t B, std::int64_t H, std::int64_t Hkv, std::int64_t Tq, std::int64_t Tk,
                         std::int64_t D, DType dtype = DType::f32) {
  Generator generator(static_cast<std::uint64_t>(Tq * 1000 + Tk));
  return {generator.randn({B, H, Tq, D}).view().to(dtype), generator.randn({B, Hkv, Tk, D}).view().to(dtype), {}};
}

AttentionResult forward(const View& q, const View& k, const AttentionOptions& options) {
  return attention(q, k, k, options, {.lse_low = true});
}

void record(Recorder& recorder, const RecordCall& call, const View& q, const View& k, const AttentionOptions& options) {
  const AttentionResult result = forward(q, k, options);
  recorder.add(call, q, k, result.lse, *result.lse_low, options);
}

Recording record_once(const Arguments& x, const RecordOptions& wanted = {.keep_qk = true},
                      RecordCall call = {"0.self"}) {
  Recorder recorder(wanted);
  if (x.sizes) call.key_sizes = *x.sizes;
  record(recorder, call, x.q, x.k, x.options);
  return recorder.finish();
}

void expect_near(const std::optional<double>& a, const std::optional<double>& b, double tolerance) {
  ASSERT_EQ(a.has_value(), b.has_value());
  if (a) {
    EXPECT_LE(std::abs(*a - *b), tolerance);
  }
}

void expect_labels(const std::vector<HeadLabel>& a, const std::vector<HeadLabel>& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t n = 0; n < a.size(); ++n) {
    EXPECT_EQ(a[n].name, b[n].name);
    EXPECT_LE(std::abs(a[n].value - b[n].value), tolerance * (1 + b[n].value));
  }
}

void expect_scores(const HeadScores& a, const HeadScores& b, double tolerance) {
  EXPECT_EQ(a.batch, b.batch);
  EXPECT_EQ(a.head, b.head);
  EXPECT_EQ(a.sink_key, b.sink_key);
  EXPECT_EQ(a.rows, b.rows);
  expect_near(a.sink, b.sink, tolerance), expect_near(a.self, b.self, tolerance);
  expect_near(a.previous, b.previous, tolerance), expect_near(a.local, b.local, tolerance);
  expect_near(a.duplicate, b.duplicate, tolerance), expect_near(a.induction, b.induction, tolerance);
  expect_near(a.distance, b.distance, tolerance), expect_near(a.entropy, b.entropy, tolerance);
  expect_near(a.effective_keys, b.effective_keys, tolerance), expect_near(a.keys_seen, b.keys_seen, tolerance);
  for (const std::string_view name : HeadKinds::names())
    expect_near(a.excess.of(name), b.excess.of(name), 20 * tolerance);  // of a range of at least 0.1
  expect_labels(a.labels, b.labels, 20 * tolerance);
  ASSERT_EQ(a.without_sink.has_value(), b.without_sink.has_value());
  if (!a.without_sink) return;
  EXPECT_EQ(a.without_sink->rows_left_out, b.without_sink->rows_left_out);
  for (const std::string_view name : HeadKinds::names())
    expect_near(a.without_sink->excess.of(name), b.without_sink->excess.of(name), 200 * tolerance);
  expect_labels(a.without_sink->labels, b.without_sink->labels, 200 * tolerance);
}

void expect_carried(const Arguments& x, const Recording& r, const AttentionResult& result, const AttentionSummary& s) {
  for (const SummaryStatistic& statistic : summary_statistics()) {
    if (statistic.needs != SummaryStatistic::Needs::key_sizes) continue;
    if (statistic.name == "carried_received")  // of a sum in double
      expect_close(r.numbers(0, statistic.name), *statistic.in(s), 1e-6);
    else
      expect_same(r.numbers(0, statistic.name), *statistic.in(s), std::string(statistic.name).c_str());
  }
  expect_same(r.numbers(0, "key_sizes"), *x.sizes);
  const auto scores = head_scores(x.q, x.k, result.lse, x.options, {}, *result.lse_low, *x.sizes);
  const auto recorded = r.scores(0, WeighedBy::norm);
  for (std::size_t n = 0; n < scores.size(); ++n) expect_scores(recorded[n], scores[n], 0);
  const Tensor carried =
      attention_weights(x.q, x.k, result.lse, x.options, {.lse_low = *result.lse_low, .key_sizes = *x.sizes});
  expect_close(r.weights(0, 0, 1, {}, {}, WeighedBy::norm), carried.view().select(0, 0).select(0, 1), 1e-6);
}

// Its numbers have the bits of attention_summary()'s.
void expect_one_pass(const Arguments& x, const Recording& r, const SummaryOptions& wanted) {
  const AttentionResult result = forward(x.q, x.k, x.options);
  SummaryOptions with_low = wanted;
  with_low.lse_low = *result.lse_low;
  if (x.sizes) with_low.key_sizes = *x.sizes;
  const AttentionSummary s = attention_summary(x.q, x.k, result.lse, x.options, with_low);
  expect_same(r.numbers(0, "lse"), result.lse), expect_same(r.numbers(0, "lse_low"), *result.lse_low);
  expect_same(r.numbers(0, "top_keys"), s.top_keys), expect_same(r.numbers(0, "top_weights"), s.top_weights);
  expect_same(r.numbers(0, "entropy"), s.entropy);
  if (s.distance) expect_same(r.numbers(0, "distance"), *s.distance);
  if (s.sink_weights) expect_same(r.numbers(0, "sink_weights"), *s.sink_weights);
  expect_same(r.numbers(0, "received"), s.received), expect_same(r.numbers(0, "lift"), s.lift);
  expect_same(r.numbers(0, "map"), *s.map), expect_same(r.numbers(0, "map_max"), *s.map_max);
  if (x.sizes) expect_carried(x, r, result, s);
  EXPECT_EQ(r.layers()[0].has_distance, s.distance.has_value());
  const auto scores = head_scores(x.q, x.k, result.lse, x.options, {}, *result.lse_low);
  ASSERT_EQ(r.scores(0).size(), scores.size());
  for (std::size_t n = 0; n < scores.size(); ++n) expect_scores(r.scores(0)[n], scores[n], 0);
  const Tensor weights = attention_weights(x.q, x.k, result.lse, x.options, {.lse_low = *result.lse_low});
  for (std::int64_t b = 0; b < x.q.size(0); ++b) {
    for (std::int64_t h = 0; h < x.q.size(1); ++h) {
      expect_close(r.weights(0, b, h), weights.view().select(0, b).select(0, h), 1e-6);
    }
  }
}

TEST(Recording, OnePassIsItsSummary) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    Arguments x = make_arguments(2, 4, 2, 70, 70, 16, dtype);
    x.options.causal = true;
    const RecordOptions wanted{.top = 3, .map = {8, 16}, .keep_qk = true};
    expect_one_pass(x, record_once(x, wanted), {.top = 3, .map = MapSize{8, 16}});
    x = with_sizes(std::move(x));
    expect_one_pass(x, record_once(x, wanted), {.top = 3, .map = MapSize{8, 16}});
  }
}

TEST(Recording, EveryOptionIsKept) {
  Generator generator(3);
  const Tensor mask = coins(generator, {2, 1, 1, 40}, 0.7), bias = generator.randn({1, 4, 30, 40});
  const Tensor slopes = Tensor::from({4}, {0.1f, 0.2f, 0.3f, 0.4f}), sinks = generator.randn({4});
  const Tensor distances = generator.randn({4, 9}), lengths = whole_numbers({33, 40});
  const auto with = [&](const std::function<void(AttentionOptions&)>& set) {
    Arguments x = make_arguments(2, 4, 2, 30, 40, 8);
    set(x.options);
    expect_one_pass(x, record_once(x), {.map = MapSize{256, 256}});
    x = with_sizes(std::move(x));
    expect_one_pass(x, record_once(x), {.map = MapSize{256, 256}});
  };
  with([&](AttentionOptions& o) { o.mask = mask; });
  with([&](AttentionOptions& o) { o.mask = mask.view().broadcast_to({2, 4, 30, 40}); });
  with([&](AttentionOptions& o) { o.bias = bias, o.scale = 0.3, o.softcap = 5; });
  with([&](AttentionOptions& o) { o.alibi_slopes = slopes, o.offset = Offset(10); });
  with([&](AttentionOptions& o) { o.sinks = sinks, o.window = {7, 2}, o.offset = Offset::bottom_right(); });
  with([&](AttentionOptions& o) { o.distance_bias = distances, o.causal = true, o.offset = Offset(5); });
  with([&](AttentionOptions& o) { o.key_lengths = lengths; });
}

TEST(Recording, AMaskThatIsRepeatedIsKeptOnce) {
  const Tensor mask = Tensor::from({1, 1, 1, 400}, std::vector<float>(400, 1)).view().to(DType::boolean);
  Arguments x = make_arguments(1, 2, 2, 400, 400, 8);
  const std::int64_t without = [&] {
    Recorder recorder({.keep_qk = true});
    record(recorder, {"a"}, x.q, x.k, x.options);
    return recorder.bytes();
  }();
  Recorder recorder({.keep_qk = true});
  x.options.mask = mask.view().broadcast_to({1, 2, 400, 400});
  record(recorder, {"a"}, x.q, x.k, x.options);
  EXPECT_EQ(recorder.bytes(), without + 400);
}

// ---- Generations ----

// What a call of a generation sees: queries [begin, end) of all, and keys [first, last).
struct Step {
  Range queries, keys;
};

Recording record_steps(const Arguments& x, const std::vector<Step>& steps, RecordOptions wanted,
                       const std::function<AttentionOptions(const Step&)>& options_of,
                       const std::optional<View>& tokens = {}) {
  wanted.grows = true;
  Recorder recorder(wanted);
  for (const Step& step : steps) {
    const View q = x.q.view().slice(2, step.queries.begin, step.queries.end);
    const View k = x.k.view().slice(2, step.keys.begin, step.keys.end);
    RecordCall call{"0.self"};
    if (tokens) call.tokens = tokens->slice(-1, 0, step.queries.end);
    if (x.sizes) {  // of all of the call's keys, or of those that are new
      const bool all = step.queries.begin % 2 == 0 || step.keys.end > step.queries.end;
      call.key_sizes = x.sizes->view().slice(2, all ? step.keys.begin : step.queries.begin, step.keys.end);
    }
    record(recorder, call, q, k, options_of(step));
  }
  return recorder.finish();
}

std::vector<Step> one_by_one(std::int64_t prompt, std::int64_t all) {
  std::vector<Step> steps = {{{0, prompt}, {0, prompt}}};
  for (std::int64_t i = prompt; i < all; ++i) steps.push_back({{i, i + 1}, {0, i + 1}});
  return steps;
}

// A head's map, from its weights: blocks of row_range / row_blocks rows.
void expect_map(const Recording& steps, const Tensor& weights, std::int64_t h, const std::string& prefix) {
  const RecordedLayer& layer = steps.layers()[0];
  const std::int64_t rows = layer.row_range / layer.row_blocks, columns = layer.column_range / layer.column_blocks;
  Tensor map({layer.row_blocks, layer.column_blocks}), most({layer.row_blocks, layer.column_blocks});
  const std::int64_t Tq = weights.size(0), Tk = weights.size(1);
  for (std::int64_t i = 0; i < Tq; ++i) {
    const std::int64_t in_block = std::min(rows, Tq - i / rows * rows);
    for (std::int64_t j = 0; j < Tk; ++j) {
      const float w = weights.data<float>()[i * Tk + j];
      const std::int64_t cell = i / rows * layer.column_blocks + j / columns;
      map.data<float>()[cell] += w / static_cast<float>(in_block);
      most.data<float>()[cell] = std::max(most.data<float>()[cell], w);
    }
  }
  const auto head = [&](const Tensor& t) { return t.view().select(0, 0).select(0, h).clone(); };
  expect_close(head(steps.numbers(0, prefix + "map")), map, 1e-5);
  expect_close(head(steps.numbers(0, prefix + "map_max")), most, 1e-5);
}

// The recording is, but for the order of sums, that of one pass over all rows.
void expect_whole(const Recording& steps, const Arguments& x, const RecordOptions& wanted,
                  const std::optional<View>& tokens = {}) {
  RecordCall call{"0.self"};
  call.tokens = tokens;
  const Recording whole = record_once(x, wanted, call);
  const RecordedLayer& layer = steps.layers()[0];
  EXPECT_EQ(layer.queries, x.q.size(2));
  EXPECT_EQ(layer.keys, x.k.size(2));
  expect_same(steps.numbers(0, "top_keys"), whole.numbers(0, "top_keys"));
  for (const char* name : {"lse", "top_weights", "entropy", "distance", "received", "lift"}) {
    expect_close(steps.numbers(0, name), whole.numbers(0, name), 1e-5, name);
  }
  for (std::size_t n = 0; n < whole.scores(0).size(); ++n) expect_scores(steps.scores(0)[n], whole.scores(0)[n], 1e-5);
  if (x.sizes) {
    expect_same(steps.numbers(0, "carried_top_keys"), whole.numbers(0, "carried_top_keys"));
    expect_same(steps.numbers(0, "key_sizes"), whole.numbers(0, "key_sizes"));
    for (const char* name : {"carried_top_weights", "carried_received"})
      expect_close(steps.numbers(0, name), whole.numbers(0, name), 1e-5, name);
    const auto by_norm = steps.scores(0, WeighedBy::norm), expected = whole.scores(0, WeighedBy::norm);
    for (std::size_t n = 0; n < expected.size(); ++n) expect_scores(by_norm[n], expected[n], 1e-5);
  }
  for (const WeighedBy by : {WeighedBy::weight, WeighedBy::norm}) {
    for (std::int64_t h = 0; h < x.q.size(1) && (x.sizes || by == WeighedBy::weight); ++h) {
      const Tensor weights = whole.weights(0, 0, h, {}, {}, by), found = steps.weights(0, 0, h, {}, {}, by);
      expect_close(found, weights, 1e-5);
      expect_map(steps, weights, h, by == WeighedBy::norm ? "carried_" : "");
    }
  }
}

TEST(Recording, GenerationIsOnePassOverAllOfItsRows) {
  Arguments x = make_arguments(1, 4, 2, 75, 75, 16);
  x.options.causal = true;
  const auto options_of = [](const Step& step) {
    return AttentionOptions{.causal = true, .offset = Offset(step.queries.begin - step.keys.begin)};
  };
  Tensor tokens({75}, DType::i64);
  for (std::int64_t j = 0; j < 75; ++j) tokens.data<std::int64_t>()[j] = j % 25;
  for (const MapSize& map : {MapSize{256, 256}, MapSize{16, 16}, MapSize{5, 7}, MapSize{1, 1}}) {
    const RecordOptions wanted{.top = 4, .map = map, .keep_qk = true};
    const Recording steps = record_steps(x, one_by_one(60, 75), wanted, options_of, tokens.view());
    EXPECT_EQ(steps.layers()[0].calls.size(), 1u);  // they continue each other
    expect_whole(steps, x, wanted, tokens.view());
    EXPECT_LE(steps.layers()[0].row_blocks, map.rows);
    // A prompt in pieces.
    const std::vector<Step> pieces = {{{0, 3}, {0, 3}}, {{3, 40}, {0, 40}}, {{40, 75}, {0, 75}}};
    expect_whole(record_steps(x, pieces, wanted, options_of), x, wanted);
    const Arguments sized = with_sizes(Arguments{x.q.clone(), x.k.clone(), x.options});
    expect_whole(record_steps(sized, one_by_one(60, 75), wanted, options_of, tokens.view()), sized, wanted,
                 tokens.view());
    expect_whole(record_steps(sized, pieces, wanted, options_of), sized, wanted);
  }
}

// The cache forgets: with a window of 10, keys before the last 10 are not there.
TEST(Recording, GenerationWithASlidingCache) {
  Arguments x = with_sizes(make_arguments(1, 2, 1, 50, 50, 8));
  x.options.window = {9, 0};
  std::vector<Step> steps = {{{0, 30}, {0, 30}}};
  for (std::int64_t i = 30; i < 50; ++i) steps.push_back({{i, i + 1}, {i - 9, i + 1}});
  const RecordOptions wanted{.map = {8, 8}, .keep_qk = true};
  expect_whole(
      record_steps(x, steps, wanted,
                   [](const Step& step) {
                     return AttentionOptions{.window = {9, 0}, .offset = Offset(step.queries.begin - step.keys.begin)};
                   }),
      x, wanted);
}

// The cache has room that nobody may look into yet, hidden by causality or by a mask.
TEST(Recording, GenerationWithAStaticCache) {
  Arguments x = with_sizes(make_arguments(1, 2, 2, 40, 40, 8));
  x.options.causal = true;
  Arguments room = with_sizes(make_arguments(1, 2, 2, 40, 64, 8));
  room.sizes->view().slice(2, 0, 40).copy_from(*x.sizes);
  for (std::int64_t n = 0; n < 2 * 64; ++n)
    if (n % 64 >= 40) room.sizes->data<float>()[n] = NAN;
  room.q = x.q.clone();
  room.k.view().slice(2, 0, 40).copy_from(x.k);
  for (std::int64_t n = 0; n < 2 * 64 * 8; ++n)
    if (n / 8 % 64 >= 40) room.k.data<float>()[n] = NAN;
  std::vector<Step> steps = {{{0, 20}, {0, 64}}};
  for (std::int64_t i = 20; i < 40; ++i) steps.push_back({{i, i + 1}, {0, 64}});
  const RecordOptions wanted{.map = {16, 16}, .keep_qk = true};
  expect_whole(record_steps(room, steps, wanted,
                            [](const Step& step) {
                              return AttentionOptions{.causal = true, .offset = Offset(step.queries.begin)};
                            }),
               x, wanted);
  std::vector<Tensor> masks;
  expect_whole(record_steps(room, steps, wanted,
                            [&](const Step& step) {
                              Tensor& mask = masks.emplace_back(
                                  Tensor({1, 1, step.queries.end - step.queries.begin, 64}, DType::boolean));
                              for (std::int64_t n = 0; n < mask.count(); ++n)
                                mask.data<bool>()[n] = n % 64 <= step.queries.begin + n / 64;
                              return AttentionOptions{.mask = mask};
                            }),
               x, wanted);
}

// Rows of a batch that begin with padding: a mask of keys that grows with them.
TEST(Recording, GenerationWithPaddingOnTheLeft) {
  Arguments x = make_arguments(2, 2, 2, 30, 30, 8);
  Tensor mask({2, 1, 1, 30}, DType::boolean);
  for (std::int64_t j = 0; j < 60; ++j) mask.data<bool>()[j] = j < 30 ? j >= 4 : true;
  x.options.causal = true, x.options.mask = mask;
  const RecordOptions wanted{.keep_qk = true};
  const Recording steps = record_steps(x, one_by_one(20, 30), wanted, [&](const Step& step) {
    AttentionOptions options{.causal = true, .offset = Offset(step.queries.begin)};
    options.mask = mask.view().slice(3, 0, step.keys.end);
    return options;
  });
  EXPECT_EQ(steps.layers()[0].calls.size(), 1u);
  const Recording whole = record_once(x, wanted);
  expect_same(steps.numbers(0, "top_keys"), whole.numbers(0, "top_keys"));
  for (const char* name : {"entropy", "distance", "received", "lift", "map"}) {
    expect_close(steps.numbers(0, name), whole.numbers(0, name), 1e-5, name);
  }
  for (std::int64_t b = 0; b < 2; ++b) expect_close(steps.weights(0, b, 1), whole.weights(0, b, 1), 1e-5);
}

// One mask stands for all calls that it continues: its bytes are those of the last one.
TEST(Recording, AMaskThatGrowsTakesItsOwnBytes) {
  const Arguments x = make_arguments(1, 1, 1, 40, 40, 8);
  const auto bytes_with = [&](bool masked) {
    Recorder recorder({.keep_qk = true, .grows = true});
    for (const Step& step : one_by_one(20, 40)) {
      Tensor mask({1, 1, 1, step.keys.end}, DType::boolean);
      std::fill_n(mask.data<bool>(), mask.count(), true);
      AttentionOptions options{.causal = true, .offset = Offset(step.queries.begin)};
      if (masked) options.mask = mask;
      record(recorder, {"a"}, x.q.view().slice(2, step.queries.begin, step.queries.end),
             x.k.view().slice(2, 0, step.keys.end), options);
    }
    return recorder.bytes();
  };
  EXPECT_EQ(bytes_with(true) - bytes_with(false), 40);
}

TEST(Recording, VisibleKeysAreThoseOfEachCall) {
  Arguments x = make_arguments(1, 1, 1, 6, 6, 8);
  x.options.window = {2, 0};
  const std::vector<std::pair<std::int64_t, std::int64_t>> expected = {{0, 1}, {0, 2}, {0, 3}, {1, 4}, {2, 5}, {3, 6}};
  const auto expect = [&](const Recording& recording) {
    const std::vector<Range> visible = recording.visible_keys(0);
    ASSERT_EQ(visible.size(), expected.size());
    for (std::size_t i = 0; i < visible.size(); ++i) {
      EXPECT_EQ(std::pair(visible[i].begin, visible[i].end), expected[i]) << i;
    }
  };
  expect(record_once(x));
  expect(record_steps(x, {{{0, 4}, {0, 4}}, {{4, 5}, {2, 5}}, {{5, 6}, {3, 6}}}, {}, [](const Step& step) {
    return AttentionOptions{.window = {2, 0}, .offset = Offset(step.queries.begin - step.keys.begin)};
  }));
  x.options.window = {}, x.options.causal = false;
  for (const Range& keys : record_once(x).visible_keys(0))
    EXPECT_EQ(std::pair(keys.begin, keys.end), (std::pair<std::int64_t, std::int64_t>(0, 6)));
}

TEST(Recording, CrossAttentionGrowsByRows) {
  Arguments x = make_arguments(1, 2, 2, 12, 20, 8);
  const RecordOptions wanted{.map = {64, 64}, .keep_qk = true, .grows = true};
  Recorder recorder(wanted);
  for (std::int64_t i = 0; i < 12; ++i)
    record(recorder, {"decoder.0.cross", "cross"}, x.q.view().slice(2, i, i + 1), x.k, {});
  const Recording r = recorder.finish(), whole = record_once(x, {.keep_qk = true}, {"decoder.0.cross", "cross"});
  EXPECT_FALSE(r.layers()[0].has_distance);
  for (const char* name : {"entropy", "received", "lift", "map"}) {
    expect_close(r.numbers(0, name), whole.numbers(0, name), 1e-5, name);
  }
  expect_close(r.weights(0, 0, 1), whole.weights(0, 0, 1), 1e-5);
}

// On one thread, so that it is the one that asks.
TEST(Recording, AnInterruptedEndLosesNothing) {
  const ThreadsAtMost limit(1);
  const Arguments x = make_arguments(2, 12, 12, 20, 20, 8);
  Recorder recorder({.grows = true}), other({.grows = true});
  for (const char* layer : {"0", "1"})
    record(recorder, {layer}, x.q, x.k, x.options), record(other, {layer}, x.q, x.k, x.options);
  {
    const RacingClock clock;
    int asked = 0;  // three times a layer: it is the second one that ends early
    const InterruptCheck check([&] { return ++asked > 3; });
    expect_error(
        ErrorCode::interrupted, [&] { recorder.finish(); }, "interrupted");
  }
  const Recording ended = recorder.finish(), whole = other.finish();
  ASSERT_EQ(ended.layers().size(), 2u);
  for (std::int64_t layer = 0; layer < 2; ++layer) {
    for (const char* name : {"scores", "map", "entropy", "received"})
      expect_same(ended.numbers(layer, name), whole.numbers(layer, name), name);
  }
}

TEST(Recording, KeysOfAnotherSequenceAreLevelWithNothing) {
  Arguments x = make_arguments(1, 2, 2, 12, 12, 8);
  const Recording cross = record_once(x, {}, {"decoder.0.cross", "cross"});
  EXPECT_FALSE(cross.layers()[0].has_distance);
  EXPECT_FALSE(cross.scores(0)[0].distance.has_value());
  EXPECT_FALSE(cross.scores(0)[0].previous.has_value());
  EXPECT_FALSE(cross.scores(0)[0].local.has_value());
  x.options.offset = Offset(0);
  EXPECT_GT(record_once(x, {}, {"decoder.0.cross", "cross"}).scores(0)[0].local, 0);
  x.options.offset = {};
  EXPECT_GT(record_once(x).scores(0)[0].local, 0);
}

TEST(Recording, PartsOfWeights) {
  Arguments x = make_arguments(1, 4, 2, 40, 40, 8);
  x.options.causal = true;
  const Recording r =
      record_steps(x, {{{0, 25}, {0, 25}}, {{25, 40}, {0, 40}}}, {.keep_qk = true}, [](const Step& step) {
        // Another scale for the second call: two calls, whose rows meet in a part.
        return AttentionOptions{
            .scale = step.queries.begin == 0 ? 0.3 : 0.4, .causal = true, .offset = Offset(step.queries.begin)};
      });
  EXPECT_EQ(r.layers()[0].calls.size(), 2u);
  const Tensor all = r.weights(0, 0, 3), part = r.weights(0, 0, 3, Range{20, 30}, Range{5, 35});
  expect_close(part, all.view().slice(0, 20, 30).slice(1, 5, 35), 1e-6);
  EXPECT_EQ(r.weights(0, 0, 3, Range{7, 7}).shape().str(), "[0,40]");
}

TEST(Recording, SomeHeads) {
  Arguments x = make_arguments(1, 3, 3, 20, 20, 8);
  const std::int64_t numbers[] = {1, 4, 7};
  const Recording r = record_once(x, {.keep_qk = true}, {.layer = "0.self", .heads = numbers});
  EXPECT_EQ(r.scores(0)[2].head, 7);
  EXPECT_EQ(r.head(0, 4), 1);
  expect_error(
      ErrorCode::bad_value, [&] { r.weights(0, 0, 2); }, "layer 0.self: head 2, expected one of 1, 4, 7");
}

// ---- Files ----

TEST(Recording, AFileIsWhatWasSaved) {
  Folder folder;
  Generator generator(5);
  const Tensor sinks = generator.randn({2});
  Arguments x = with_sizes(make_arguments(2, 2, 1, 30, 30, 8, DType::bf16));
  x.options.causal = true, x.options.sinks = sinks;
  Recorder recorder({.keep_qk = true});
  record(recorder, {.layer = "encoder.0.self", .key_sizes = x.sizes->view()}, x.q, x.k, x.options);
  record(recorder, {"decoder.0.cross", "cross"}, x.q, x.k, {});
  Recording saved = recorder.finish();
  saved.model = "tiny \"model\"";
  saved.tokens = {std::vector<std::string>(30, "wörd"), std::vector<std::string>(30, "<img>")};
  Tensor ids({2, 30}, DType::i64);
  saved.set_ids(ids);
  saved.save(folder / "x.attend");
  const Recording read = Recording::load(folder / "x.attend");
  EXPECT_EQ(read.model, saved.model);
  EXPECT_EQ(read.tokens, saved.tokens);
  EXPECT_EQ(read.query_tokens(0), saved.tokens);
  ASSERT_EQ(read.layers().size(), 2u);
  EXPECT_EQ(read.layer("decoder.0.cross"), 1);
  EXPECT_EQ(read.layers()[0].calls[0].offset, 0);
  for (std::int64_t n = 0; n < 2; ++n) {
    for (const char* name :
         {"lse", "lse_low", "top_keys", "top_weights", "entropy", "received", "lift", "map", "map_max", "q", "k"}) {
      expect_same(read.numbers(n, name), saved.numbers(n, name), name);
    }
    for (std::size_t at = 0; at < 4; ++at) expect_scores(read.scores(n)[at], saved.scores(n)[at], 0);
    expect_same(read.weights(n, 1, 1), saved.weights(n, 1, 1));
  }
  EXPECT_TRUE(read.layers()[0].has_key_sizes && !read.layers()[1].has_key_sizes);
  for (const char* name : {"key_sizes", "carried_top_keys", "carried_top_weights", "carried_received", "carried_map"})
    expect_same(read.numbers(0, name), saved.numbers(0, name), name);
  expect_same(read.weights(0, 1, 1, {}, {}, WeighedBy::norm), saved.weights(0, 1, 1, {}, {}, WeighedBy::norm));
  for (std::size_t at = 0; at < 4; ++at)
    expect_scores(read.scores(0, WeighedBy::norm)[at], saved.scores(0, WeighedBy::norm)[at], 0);
  // One that was read can be written, over itself too.
  read.save(folder / "x.attend");
  expect_same(Recording::load(folder / "x.attend").numbers(1, "map"), saved.numbers(1, "map"));
  expect_same(read_tensors(folder / "x.attend").at("layers.0.map"), saved.numbers(0, "map"));
}

TEST(Recording, AFileThatChangesIsAnError) {
  Folder folder;
  const Arguments x = make_arguments(1, 1, 1, 20, 20, 8);
  record_once(x).save(folder / "x.attend");
  const Recording read = Recording::load(folder / "x.attend");
  std::filesystem::resize_file(folder / "x.attend", 900);
  expect_error(
      ErrorCode::bad_file, [&] { read.numbers(0, "entropy"); }, "x.attend", "has changed since it was opened");
  expect_error(
      ErrorCode::bad_file, [&] { read.weights(0, 0, 0); }, "has changed since it was opened");
}

// x.attend, a small recording, and y.attend with its metadata changed.
void write_changed(const Folder& folder, const std::string& from, const std::string& to) {
  Arguments x = make_arguments(1, 2, 1, 6, 6, 4);
  x.options.causal = true;
  record_once(x, {.top = 2, .map = {2, 2}, .keep_qk = true}).save(folder / "x.attend");
  Safetensors file = read_safetensors(folder / "x.attend");
  std::string& text = file.metadata["attend.recording"];
  const std::size_t at = text.find(from);
  ASSERT_NE(at, std::string::npos) << from << " in " << text;
  text.replace(at, from.size(), to);
  write_safetensors(folder / "y.attend", views_of(file.tensors), file.metadata);
}

void expect_refused(const std::string& from, const std::string& to, const std::string& message) {
  Folder folder;
  write_changed(folder, from, to);
  expect_error(
      ErrorCode::bad_file, [&] { Recording::load(folder / "y.attend"); }, "Recording::load: '", "y.attend'", message);
}

// Older files say "causal" where newer ones have a window without keys after the query.
TEST(Recording, CausalOfAnOlderFile) {
  Folder folder;
  write_changed(folder, "\"window\":[-1,0]", "\"causal\":true");
  const Recording old = Recording::load(folder / "y.attend");
  EXPECT_EQ(old.layers()[0].calls[0].window.right, 0);
  expect_same(old.weights(0, 0, 1), Recording::load(folder / "x.attend").weights(0, 0, 1));
}

TEST(Recording, BadFiles) {
  expect_refused("{", "[", "attend.recording: is not JSON");
  expect_refused("\"version\":2", "\"version\":3", "version 3, expected 1 to 2");
  expect_refused("\"version\":2", "\"version\":\"1\"", "version: expected a whole number");
  expect_refused("\"model\":\"\"", "\"model\":3", "model: expected text");
  expect_refused("\"model\":\"\"", "\"mode\":3", "model is missing");
  expect_refused("\"dtype\":\"f32\"", "\"dtype\":\"i64\"", "layers: 0: dtype: 'i64' is not f32, f64, bf16 or f16");
  expect_refused("\"dtype\":\"f32\"", "\"dtype\":\"bf16\"",
                 "tensor 'layers.0.q' is f32 [1,2,6,4], expected bf16 [1,2,6,4]");
  expect_refused("\"heads\":[0,1]", "\"heads\":[1,0]", "heads: 1: expected a whole number from 2");
  expect_refused("\"heads\":[0,1]", "\"heads\":[0,1,2]", "tensor 'layers.0.lse' is f32 [1,2,6], expected f32 [1,3,6]");
  expect_refused("\"keys\":6", "\"keys\":-6", "keys: expected a whole number from 0");
  expect_refused("\"keys\":6", "\"keys\":9223372036854775808", "keys: expected a whole number from 0");
  expect_refused("\"kind\":\"self\"", "\"kind\":\"both\"", "kind: 'both' is neither self nor cross");
  expect_refused("\"queries\":[0,6]", "\"queries\":[1,6]", "calls: 0: queries begin at 1, expected 0");
  expect_refused("\"queries\":[0,6]", "\"queries\":[0,5]", "calls: of 6 queries, 5 are there");
  expect_refused("\"queries\":[0,6]", "\"queries\":[0,7]", "queries: 1: expected a whole number from 0 to 6");
  expect_refused("[\"distance\",\"qk\"]", "[\"distance\"]", "tensor 'layers.0.k' belongs to no layer");
  expect_refused("\"range\":[6,6]", "\"range\":[0,6]", "map: 2 blocks for a range of 0 do not hold 6 indices");
  expect_refused("\"range\":[6,6]", "\"range\":[6,5]", "map: 2 blocks for a range of 5 do not hold 6 indices");
  expect_refused("\"blocks\":[2,2]", "\"blocks\":[2,0]", "map: 0 blocks for a range of 6 do not hold 6 indices");
  expect_refused("\"window\":[-1,0]", "\"tensors\":[\"mask\"]", "tensor 'layers.0.calls.0.mask' is missing");
  expect_refused("\"window\":[-1,0]", "\"tensors\":[\"key_starts\"]", "'key_starts' is not an option");
  expect_refused("\"layers\":[", "\"layers\":[{},", "layers: 0: name is missing");
  Folder folder;
  const Arguments x = make_arguments(1, 1, 1, 6, 6, 4);
  write_safetensors(folder / "plain.safetensors", {{"x", x.q}});
  expect_error(
      ErrorCode::bad_file, [&] { Recording::load(folder / "plain.safetensors"); },
      "is not a recording: its metadata has no attend.recording");
  expect_error(
      ErrorCode::bad_file, [&] { Recording::load(folder / "none"); }, "'", "none': can't be opened");
  record_once(x).save(folder / "x.attend");
  Safetensors file = read_safetensors(folder / "x.attend");
  file.tensors.at("layers.0.top_keys").data<std::int64_t>()[3] = 6;
  write_safetensors(folder / "y.attend", views_of(file.tensors), file.metadata);
  expect_error(
      ErrorCode::bad_file, [&] { Recording::load(folder / "y.attend").numbers(0, "top_keys"); },
      "a top key is 6, expected -1 to 5");
}

// ---- Mistakes ----

TEST(Recording, BudgetIsSaidBeforehand) {
  const Arguments x = make_arguments(1, 2, 2, 300, 300, 64);
  Recorder recorder({.budget = 3 << 20});
  const RecordCall call{"encoder.7.self"};
  recorder.check(call, x.q.shape(), x.k.shape(), DType::f32, {});
  record(recorder, call, x.q, x.k, {});
  EXPECT_LT(recorder.bytes(), 3 << 20);
  const std::int64_t one = recorder.bytes();
  while (recorder.bytes() + one <= 3 << 20) record(recorder, {fmt::format("{}", recorder.bytes())}, x.q, x.k, {});
  const std::int64_t before = recorder.bytes();
  const auto expect = [&](auto body) {
    expect_error(ErrorCode::bad_value, body, "layer 'last' [1,2,300] needs 1.", " MiB more", "the budget of 3.0 MiB",
                 "expected fewer layers");
  };
  expect([&] { recorder.check({"last"}, x.q.shape(), x.k.shape(), DType::f32, {}); });
  expect([&] { record(recorder, {"last"}, x.q, x.k, {}); });
  EXPECT_EQ(recorder.bytes(), before);
  // q and k count where they are kept.
  const auto bytes_of = [&](bool keep) {
    Recorder r({.keep_qk = keep});
    record(r, {"a"}, x.q, x.k, {});
    return r.bytes();
  };
  EXPECT_EQ(bytes_of(true) - bytes_of(false), 2 * 2 * 300 * 64 * 4);
}

TEST(Recording, Mistakes) {
  const Arguments x = make_arguments(1, 2, 2, 10, 10, 8);
  const Recording r = record_once(x, {});
  expect_error(
      ErrorCode::bad_value, [&] { r.weights(0, 0, 0); }, "layer 0.self: q and k were not kept");
  expect_error(
      ErrorCode::bad_value, [&] { r.numbers(0, "q"); }, "q and k were not kept");
  expect_error(
      ErrorCode::bad_value, [&] { r.numbers(0, "entropies"); }, "has no 'entropies', expected one of lse, ");
  expect_error(
      ErrorCode::bad_value, [&] { r.numbers(1, "lse"); }, "layer 1, expected 0 to 0");
  expect_error(
      ErrorCode::bad_value, [&] { r.layer("1.self"); }, "layer '1.self', expected one of 0.self");
  expect_error(
      ErrorCode::bad_value, [&] { (void)r.scores(0, WeighedBy::norm); }, "layer 0.self was recorded by weight only");
  const Recording kept = record_once(x);
  expect_error(
      ErrorCode::bad_value, [&] { kept.weights(0, 0, 0, {}, {}, WeighedBy::norm); }, "record with key_sizes");
  expect_error(
      ErrorCode::bad_value, [&] { kept.weights(0, 1, 0); }, "item 1, expected 0 to 0");
  expect_error(
      ErrorCode::bad_value, [&] { kept.weights(0, 0, 2); }, "head 2, expected 0 to 1");
  expect_error(
      ErrorCode::bad_value,
      [&] {
        kept.weights(0, 0, 0, Range{0, 11});
      },
      "queries are 0 to 11, expected a part of 0 to 10");
  expect_error(
      ErrorCode::bad_value, [] { Recorder({.top = 0}); }, "top is 0, expected at least 1");
  expect_error(
      ErrorCode::bad_value,
      [] {
        Recorder({.map = {0, 4}});
      },
      "map of 0 x 4 blocks");
  Recorder recorder;
  record(recorder, {"a"}, x.q, x.k, {});
  expect_error(
      ErrorCode::bad_value, [&] { record(recorder, {"a"}, x.q, x.k, {}); },
      "layer 'a' is there already: a recording is of one forward pass");
  expect_error(
      ErrorCode::bad_value,
      [&] {
        record(recorder, {"b", "sidewise"}, x.q, x.k, {});
      },
      "kind is 'sidewise', expected self or cross");
  expect_error(
      ErrorCode::bad_value, [&] { record(recorder, {""}, x.q, x.k, {}); }, "the layer's name is empty");
  const std::int64_t heads[] = {1};
  expect_error(
      ErrorCode::bad_value, [&] { record(recorder, {.layer = "b", .heads = heads}, x.q, x.k, {}); },
      "heads are 1 numbers for 2 query heads");
  Recorder grows({.grows = true});
  const auto step = [&](std::int64_t Tq, std::int64_t Tk, std::int64_t offset) {
    const Arguments y = make_arguments(1, 2, 2, Tq, Tk, 8);
    record(grows, {"a"}, y.q, y.k, {.causal = true, .offset = Offset(offset)});
  };
  step(5, 5, 0);
  expect_error(
      ErrorCode::bad_value, [&] { step(1, 3, -1); }, "further ones have keys 6 to 9: they do not continue it");
  step(1, 6, 5);
  expect_error(
      ErrorCode::bad_value, [&] { step(1, 4, 9); }, "they do not continue it");
  const Tensor sizes({1, 2, 1});
  expect_error(
      ErrorCode::bad_shape,
      [&] {
        const Arguments y = make_arguments(1, 2, 2, 1, 7, 8);
        record(grows, {.layer = "a", .key_sizes = sizes.view()}, y.q, y.k, {.causal = true, .offset = Offset(6)});
      },
      "layer a: key_sizes are f32 [1,2,1], expected none: all calls of a layer give them, or none");
  expect_error(
      ErrorCode::bad_shape,
      [&] {
        const Arguments y = make_arguments(1, 2, 2, 7, 7, 8);
        record(grows, {.layer = "b", .key_sizes = sizes.view()}, y.q, y.k, {});
      },
      "layer b: key_sizes are f32 [1,2,1], expected f32 [1,2,7 to 7]");
  const Arguments other = make_arguments(1, 3, 3, 1, 7, 8);
  expect_error(
      ErrorCode::bad_shape, [&] { record(grows, {"a"}, other.q, other.k, {}); }, "layer a continues with q [1,3,1,8]");
}

}  // namespace
}  // namespace attend
