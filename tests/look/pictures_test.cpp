// Pictures of a recording: which cells are hidden and what merged ones hold, beside each pair asked one by one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "attend/attention.h"
#include "attend/look.h"
#include "attend/random.h"
#include "tests/expect.h"

namespace attend {
namespace {

struct Case {
  std::int64_t queries, keys, blocks;  // the map's sides, at most
  AttentionOptions options = {};
  bool keep_qk = false;
};

constexpr std::int64_t heads = 2;

Recording record(const Case& of) {
  Generator generator(7);
  const Tensor q = generator.randn({1, heads, of.queries, 8}), k = generator.randn({1, heads, of.keys, 8});
  const AttentionResult rows = attention(q, k, k, of.options, {.lse_low = true});
  Recorder recorder({.map = {of.blocks, of.blocks}, .keep_qk = of.keep_qk});
  recorder.add({"0.self"}, q, k, rows.lse, *rows.lse_low, of.options);
  return recorder.finish();
}

bool sees(const Case& of, std::int64_t i, std::int64_t j) {
  const std::int64_t level = i + (of.options.offset ? of.options.offset->resolve(of.queries, of.keys) : 0);
  const auto& [left, right] = of.options.window;
  return (!of.options.causal || j <= level) && (left < 0 || j >= level - left) && (right < 0 || j <= level + right);
}

const HeatMap& map_of(const Picture& picture) {
  return std::get<HeatMaps>(picture.drawing).maps.at(0);
}

// For each cell of the picture, whether one of its pairs is seen; index begin + i is in block floor(i blocks / count).
void expect_hidden(const Case& of, const Picture& picture) {
  const HeatMap& map = map_of(picture);
  const std::int64_t rows = map.values.size(0), columns = map.values.size(1);
  const Range queries = map.row_range.value_or(Range{0, rows}), keys = map.column_range.value_or(Range{0, columns});
  std::vector<char> seen(static_cast<std::size_t>(rows * columns));
  for (std::int64_t i = queries.begin; i < std::min(queries.end, of.queries); ++i)
    for (std::int64_t j = keys.begin; j < std::min(keys.end, of.keys); ++j)
      if (sees(of, i, j))
        seen[static_cast<std::size_t>((i - queries.begin) * rows / (queries.end - queries.begin) * columns +
                                      (j - keys.begin) * columns / (keys.end - keys.begin))] = 1;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c)
      ASSERT_EQ(map.visible(r, c), seen[static_cast<std::size_t>(r * columns + c)] != 0) << r << ", " << c;
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {300, 300, 256, {.window = {16, 16}}},
      {300, 300, 256, {.causal = true}},
      {257, 257, 256, {.causal = true, .window = {3, -1}}},
      {300, 70, 64, {.window = {5, 0}, .offset = Offset(-200)}},
      {90, 300, 256, {.causal = true, .offset = Offset::bottom_right()}},
      {40, 40, 256, {.causal = true}},
      {40, 40, 16, {.causal = true}, true},  // drawn one by one
      {100, 100, 100, {.window = {0, 2}}},
  };
  return all;
}

TEST(LookPictures, HiddenCellsAreThoseOfHiddenPairsAlone) {
  for (const Case& of : cases()) {
    const Recording recording = record(of);
    expect_hidden(of, head_picture(recording, 0, 1));
    expect_hidden(of, head_picture(recording, 0, 1, {.most = MapSize{23, 31}}));
    const Picture layer = layer_picture(recording, 0);
    EXPECT_EQ(std::ssize(std::get<HeatMaps>(layer.drawing).maps), heads);
    expect_hidden(of, layer);
  }
}

TEST(LookPictures, PartsAreExactWeights) {
  Case of{300, 300, 32, {.window = {16, 16}}, true};
  for (const std::int64_t blocks : {32, 300}) {
    of.blocks = blocks;
    const Recording recording = record(of);
    const Range queries{33, 97}, keys{40, 111};
    const Picture part = head_picture(recording, 0, 1, {.queries = queries, .keys = keys});
    expect_hidden(of, part);
    test::expect_close(map_of(part).values, recording.weights(0, 0, 1, queries, keys), 1e-6);
    EXPECT_EQ(map_of(part).row_range->begin, 33);
  }
}

// Of each merged block what its keys get of a query, on average over the queries that see a key.
TEST(LookPictures, MergedBlocksAddKeysAndAverageQueries) {
  const Case of{300, 300, 256, {.causal = true, .window = {16, 16}, .offset = Offset(-20)}, true};
  const Recording recording = record(of);
  const Tensor weights = recording.weights(0, 0, 1);
  const Picture merged = head_picture(recording, 0, 1, {.most = MapSize{40, 40}});
  const HeatMap& map = map_of(merged);
  const std::int64_t rows = map.values.size(0), columns = map.values.size(1);
  ASSERT_LE(rows, 40);
  Tensor expected({rows, columns}, DType::f64);
  for (std::int64_t r = 0; r < rows; ++r) {
    double seeing = 0;
    for (std::int64_t i = 0; i < 300; ++i) {
      if (i * rows / 300 != r || i < 20) continue;  // 20 queries see nothing
      ++seeing;
      for (std::int64_t j = 0; j < 300; ++j)
        expected.data<double>()[r * columns + j * columns / 300] += weights.data<float>()[i * 300 + j];
    }
    for (std::int64_t c = 0; c < columns; ++c) expected.data<double>()[r * columns + c] /= std::max(1.0, seeing);
  }
  test::expect_close(map.values, expected, 1e-5);
}

bool are_same(const Range& a, const Range& b) {
  return a.begin == b.begin && a.end == b.end;
}

// What is drawn of each head, with NaN where the picture is hatched.
void expect_drawn(const WeightMaps& maps, const Picture& picture, std::int64_t first) {
  const auto& drawn = std::get<HeatMaps>(picture.drawing).maps;
  for (std::int64_t h = 0; h < std::ssize(drawn); ++h) {
    const HeatMap& map = drawn[static_cast<std::size_t>(h)];
    const std::int64_t rows = map.values.size(0), columns = map.values.size(1);
    const Range queries = map.row_range.value_or(Range{0, rows}), keys = map.column_range.value_or(Range{0, columns});
    EXPECT_TRUE(are_same(maps.queries, queries) && are_same(maps.keys, keys));
    EXPECT_EQ(maps.reduction, map.reduction);
    const Tensor values = map.values.to(DType::f32);
    const View own = maps.values.view().select(0, first + h);
    ASSERT_EQ(own.shape(), values.shape());
    for (std::int64_t n = 0; n < values.count(); ++n) {
      const float found = own.data<float>()[n];
      ASSERT_EQ(std::isnan(found), !map.visible(n / columns, n % columns)) << n;
      if (!std::isnan(found)) {
        ASSERT_EQ(found, values.data<float>()[n]) << n;
      }
    }
  }
}

TEST(LookPictures, WeightMapsAreTheNumbersOfThePictures) {
  for (const Case& of : cases()) {
    const Recording recording = record(of);
    for (const LookOptions& options : {LookOptions(), LookOptions{.most = MapSize{23, 31}}}) {
      const WeightMaps all = weight_maps(recording, 0, {}, options), one = weight_maps(recording, 0, 1, options);
      ASSERT_EQ(all.values.size(0), heads);
      expect_drawn(all, layer_picture(recording, 0, options), 0);
      expect_drawn(all, head_picture(recording, 0, 1, options), 1);
      expect_drawn(one, head_picture(recording, 0, 1, options), 0);
    }
  }
}

// Of a part, each pair by itself: its weight, or NaN where the query does not see the key.
TEST(LookPictures, WeightMapsOfAPartAreWeights) {
  const Case of{300, 300, 32, {.causal = true, .window = {16, -1}}, true};
  const Recording recording = record(of);
  const Range queries{33, 97}, keys{40, 111};
  const WeightMaps part = weight_maps(recording, 0, 1, {.queries = queries, .keys = keys});
  EXPECT_TRUE(are_same(part.queries, queries) && are_same(part.keys, keys));
  EXPECT_EQ(part.reduction, "");
  const Tensor weights = recording.weights(0, 0, 1, queries, keys);
  ASSERT_EQ(part.values.shape(), (Dims{1, 64, 71}));
  for (std::int64_t n = 0; n < weights.count(); ++n) {
    const float found = part.values.data<float>()[n];
    const bool seen = sees(of, queries.begin + n / 71, keys.begin + n % 71);
    ASSERT_TRUE(seen ? found == weights.data<float>()[n] : std::isnan(found)) << n;
  }
}

TEST(LookPictures, WhatIsNotThereIsAnError) {
  const Recording recording = record({10, 10, 8, {}});
  using test::expect_error;
  for (const std::int64_t layer : {-1, 1})
    expect_error(
        ErrorCode::bad_value, [&] { (void)head_picture(recording, layer, 0); }, "expected 0 to 0");
  expect_error(
      ErrorCode::bad_value, [&] { (void)head_picture(recording, 0, 2); }, "head 2, expected 0 to 1");
  expect_error(
      ErrorCode::bad_value, [&] { (void)weight_maps(recording, 0, 2); }, "head 2, expected 0 to 1");
  expect_error(
      ErrorCode::bad_value, [&] { (void)layer_picture(recording, 0, {.item = 1}); }, "item 1, expected 0 to 0");
  expect_error(
      ErrorCode::bad_value, [&] { (void)head_strip(recording, 0, 0, "weight"); }, "expected received, lift");
  expect_error(
      ErrorCode::bad_value,
      [&] {
        (void)head_links(recording, 0, 0, {.queries = Range{3, 11}});
      },
      "queries 3 to 11, expected a part of 0 to 10");
  expect_error(
      ErrorCode::bad_value, [&] { (void)recording_picture(Recording(), {}); }, "no layers");
}

TEST(LookPictures, LinksLeaveOutASinkAndSaySo) {
  constexpr std::int64_t count = 30;
  Tensor q({1, 1, count, 8}), k({1, 1, count, 8});
  std::fill_n(q.data<float>(), q.count(), 1.0F);
  std::fill_n(k.data<float>() + 3 * 8, 8, 3.0F);  // key 3
  const AttentionResult rows = attention(q, k, k, {}, {.lse_low = true});
  Recorder recorder;
  recorder.add({"0.self"}, q, k, rows.lse, *rows.lse_low, {});
  const Recording recording = recorder.finish();
  ASSERT_TRUE(recording.scores(0)[0].has_label("sink"));
  const Picture picture = head_links(recording, 0, 0);
  const auto& links = std::get<TokenLinks>(picture.drawing);
  EXPECT_THAT(links.caption, testing::HasSubstr("Lines to the sink, key 3, are left out: it takes 99 %."));
  const Tensor keys = links.top_keys.clone();
  EXPECT_EQ(std::count(keys.data<std::int64_t>(), keys.data<std::int64_t>() + keys.count(), 3), 0);
  EXPECT_EQ(std::count(keys.data<std::int64_t>(), keys.data<std::int64_t>() + keys.count(), -1), count);
}

TEST(LookPictures, IndicesStandForTokensThatAreNotKnown) {
  Recording recording = record({10, 10, 8, {}});
  EXPECT_EQ(std::get<TokenStrip>(head_strip(recording, 0, 0, "entropy").drawing).tokens[9], "9");
  const Picture links = head_links(recording, 0, 0, {.queries = Range{3, 5}});
  EXPECT_EQ(std::get<TokenLinks>(links.drawing).first_query, 3);
  EXPECT_THAT(links.svg(), testing::HasSubstr(">4</text>"));
  recording.model = "a/model";
  EXPECT_THAT(head_strip(recording, 0, 1, "lift").title(), testing::StartsWith("a/model: 0.1"));
}

}  // namespace
}  // namespace attend
