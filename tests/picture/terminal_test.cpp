#include <gmock/gmock.h>

#include <sstream>

#include "core/utf8.h"
#include "picture/colour.h"
#include "tests/expect.h"

namespace attend {
namespace {

using Strings = std::vector<std::string>;
using testing::HasSubstr;
using testing::Not;

Strings lines_of(const std::string& text) {
  Strings lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// What stands on the screen: the text without its escape sequences.
std::string without_colour(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b') {
      i = text.find('m', i);
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

// A causal row of weights for each query: 1/(i+1).
Tensor causal(std::int64_t rows, std::int64_t columns) {
  Tensor weights({rows, columns});
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j <= i && j < columns; ++j)
      weights.data<float>()[i * columns + j] = 1 / static_cast<float>(i + 1);
  }
  return weights;
}

Strings words(std::int64_t count) {
  Strings out;
  for (std::int64_t i = 0; i < count; ++i) out.push_back(i % 3 == 0 ? "the" : "word" + std::to_string(i));
  return out;
}

HeatMap map_of(const Tensor& values, const Strings& rows = {}, const Strings& columns = {}) {
  HeatMap map;
  map.values = values;
  map.row_labels = rows;
  map.column_labels = columns;
  return map;
}

TEST(TerminalHeatMap, PlainTakesShadesAndNumbers) {
  const Tensor weights = Tensor::from({2, 3}, {0.75F, 0.25F, 0, 0.125F, 0.375F, 0.5F});
  HeatMap map = map_of(weights, {"to", "be"}, {"eat", "dessert", "甜点"});
  map.title = "weights";
  EXPECT_EQ(terminal_heat_map(map, {.width = 80, .colour = false}),
            "weights\n"
            "          keys →\n"
            "queries ↓    eat    dessert   甜点\n"
            "       to│███ 0.75 ░░░ 0.25     0.00 │\n"
            "       be│░░░ 0.12 ▒▒▒ 0.38 ▓▓▓ 0.50 │\n"
            "          0 │   ░░░░░▒▒▒▒▓▓▓▓▓███│ 0.75\n");
}

TEST(TerminalHeatMap, ColourIsOnTheCellAndEndsWithTheLine) {
  const Tensor weights = Tensor::from({1, 2}, {0, 1});
  const Strings lines =
      lines_of(terminal_heat_map(map_of(weights, {"to"}, {"be", "or"}), {.width = 80, .colour = true}));
  ASSERT_EQ(lines.size(), 4);
  EXPECT_EQ(lines[2],
            "       to \x1b[38;2;0;0;0;48;2;252;251;236m 0.0000 \x1b[38;2;255;255;255;48;2;26;20;70m 1.0000 \x1b[0m");
  EXPECT_THAT(lines[3], HasSubstr("\x1b[0m 1"));
}

TEST(TerminalHeatMap, NoLineIsWiderThanTheTerminal) {
  const Strings wide = {"注意力机制", "👍🏽emoji", "e\u0301\u0301", "ordinary", "\x1b[31mred\n", "x\u202ey"};
  for (const int width : {1, 2, 7, 11, 20, 40, 80, 120, 300}) {
    for (const bool colour : {false, true}) {
      for (const std::int64_t size : {1, 2, 6, 13, 45, 61, 200}) {
        Strings labels = words(size);
        for (std::size_t i = 0; i < labels.size() && i < wide.size(); ++i) labels[i] = wide[i];
        const Tensor weights = causal(size, size);
        for (const Strings& columns : {labels, words(size), Strings()}) {
          HeatMap map = map_of(weights, labels, columns);
          map.title = "a title that is rather long for a narrow terminal 注意力";
          const std::string text = terminal_heat_map(map, {.width = width, .colour = colour});
          ASSERT_TRUE(text.ends_with('\n'));
          for (const std::string& line : lines_of(text)) {
            const std::string plain = colour ? without_colour(line) : line;
            ASSERT_LE(display_width(decode_utf8(plain, {"", "line"})), width) << line;
            ASSERT_THAT(plain, Not(HasSubstr("\x1b")));
            const std::size_t last = line.rfind('\x1b');
            ASSERT_TRUE(last == std::string::npos || line.substr(last, 4) == "\x1b[0m") << line;
          }
        }
      }
    }
  }
}

TEST(TerminalHeatMap, NarrowColumnsAreNumberedInTheRowLabels) {
  const Tensor weights = causal(12, 12);
  const std::string text = terminal_heat_map(map_of(weights, words(12), words(12)), {.width = 60, .colour = false});
  EXPECT_THAT(text, HasSubstr("\nqueries ↓  1   2   3   4   5   6"));
  EXPECT_THAT(text, HasSubstr("\n12 word11│"));
  EXPECT_THAT(text, Not(HasSubstr("keys:")));
}

TEST(TerminalHeatMap, NarrowColumnsOfOtherWordsAreExplainedBelow) {
  const Tensor weights = causal(3, 24);
  const std::string text = terminal_heat_map(map_of(weights, words(3), words(24)), {.width = 40, .colour = false});
  EXPECT_THAT(text, HasSubstr("\nqueries ↓ 1  "));
  EXPECT_THAT(text, HasSubstr("\n    word1│"));
  EXPECT_THAT(text, HasSubstr("\nkeys:  1 the  2 word1  3 word2  4 the\n"));
  EXPECT_THAT(text, HasSubstr("  24 word23\n"));
}

TEST(TerminalHeatMap, NumbersBeginWhereTheMapSays) {
  const Tensor weights = causal(12, 12), wide = causal(3, 24);
  HeatMap square = map_of(weights, words(12), words(12)), other = map_of(wide, words(3), words(24));
  square.numbers_from = other.numbers_from = 0;
  const std::string text = terminal_heat_map(square, {.width = 60, .colour = false});
  EXPECT_THAT(text, HasSubstr("\nqueries ↓  0   1   2   3   4   5"));
  EXPECT_THAT(text, HasSubstr("\n11 word11│"));
  EXPECT_THAT(terminal_heat_map(other, {.width = 40, .colour = false}), HasSubstr("\nkeys:  0 the  1 word1"));
}

// One label that is far too long takes nothing from the others.
TEST(TerminalHeatMap, NumberedLabelsAreCutOneByOne) {
  const Tensor weights = causal(24, 24);
  Strings labels = words(24);
  labels[3] = std::string(70, 'w');
  const std::string text = terminal_heat_map(map_of(weights, labels, labels), {.width = 60, .colour = false});
  EXPECT_THAT(text, HasSubstr("\n 4 wwwwwwwwwwwwwwww…│"));
  EXPECT_THAT(text, HasSubstr("\n24            word23│"));
}

TEST(TerminalHeatMap, LongMapsAreAveragedAndSaySo) {
  const Tensor square = causal(2000, 2000);
  for (const bool colour : {false, true}) {
    const std::string text =
        terminal_heat_map(map_of(square, words(2000), words(2000)), {.width = 80, .colour = colour});
    EXPECT_THAT(text, HasSubstr("each cell averages 34 x 34 weights\n"));
    EXPECT_EQ(lines_of(text).size(), colour ? 34 : 63);  // 59 rows, with colour two on a line
    EXPECT_THAT(without_colour(text), HasSubstr("  69   word68"));
  }
  // Means: of 61 rows the last stands alone; each pair of rows is 1 and 3.
  Tensor tall({61, 1});
  for (std::int64_t i = 0; i < 61; ++i) tall.data<float>()[i] = i % 2 == 0 ? 1 : 3;
  const Strings lines = lines_of(terminal_heat_map(map_of(tall), {.width = 80, .colour = false}));
  ASSERT_EQ(lines.size(), 2 + 31 + 2);
  EXPECT_THAT(lines[2], HasSubstr("0│███ 2.00 │"));
  EXPECT_THAT(lines[32], HasSubstr("60│▒▒▒ 1.00 │"));
  EXPECT_EQ(lines.back(), "each cell averages 2 x 1 weights");
  const Tensor sixty = causal(60, 2);
  EXPECT_THAT(terminal_heat_map(map_of(sixty), {}), Not(HasSubstr("averages")));
}

TEST(TerminalHeatMap, AMapOfBlocksSaysWhatACellIsAndCountsIndices) {
  const Tensor weights = Tensor::from({2, 2}, {0.75F, 0.25F, 0.5F, 0.5F});
  HeatMap map = map_of(weights);
  map.row_range = {100, 132};
  map.column_range = {0, 5};
  map.reduction = "sum over keys, mean over queries";
  EXPECT_EQ(terminal_heat_map(map, {}),
            "          keys →\n"
            "queries ↓     0        3\n"
            "      100│███ 0.75 ░░░ 0.25 │\n"
            "      116│▓▓▓ 0.50 ▓▓▓ 0.50 │\n"
            "          0 │   ░░░░░▒▒▒▒▓▓▓▓▓███│ 0.75\n"
            "Each cell is 16 queries × up to 3 keys: sum over keys, mean over queries.\n");
  EXPECT_THAT(terminal_heat_map(map, {.width = 50}),
              HasSubstr("\nEach cell is 16 queries × up to 3 keys: sum over\nkeys, mean over queries.\n"));
  const Tensor large = causal(256, 256);
  map = map_of(large);
  map.row_range = map.column_range = {0, 4096};
  const std::string text = terminal_heat_map(map, {});
  EXPECT_THAT(text, HasSubstr("Each cell is 16 queries × 16 keys.\neach cell shown averages 5 x 5 of these\n"));
  EXPECT_THAT(text, HasSubstr("\n     4080│"));
}

TEST(TerminalHeatMap, NanAndInfinityAreShown) {
  const Tensor scores = Tensor::from({1, 4}, {NAN, -INFINITY, -2, 2});
  const std::string plain = terminal_heat_map(map_of(scores), {.width = 80, .colour = false});
  EXPECT_THAT(plain, HasSubstr("│???   nan ╱╱╱╱╱╱╱╱╱╱    -2.00 ███  2.00 │"));
  EXPECT_THAT(plain, HasSubstr("? nan  ╱╱ hidden\n"));
  EXPECT_THAT(plain, HasSubstr("-2 │   ░░"));  // no negative value hides below 0
  EXPECT_THAT(terminal_heat_map(map_of(scores), {.width = 16, .colour = false}), HasSubstr("? nan"));
  const std::string colour = terminal_heat_map(map_of(scores), {.width = 80, .colour = true});
  EXPECT_THAT(colour, HasSubstr("48;2;238;155;58m"));
  EXPECT_THAT(colour, HasSubstr(" nan \x1b[0m  \x1b[38;2;128;128;128;49m╱╱\x1b[0m hidden\n"));

  Tensor large = causal(100, 100);
  large.data<float>()[50] = NAN;  // one in a block of many is not averaged away
  EXPECT_THAT(terminal_heat_map(map_of(large), {.width = 40, .colour = true}), HasSubstr(" nan \x1b[0m\n"));
}

TEST(TerminalHeatMap, HiddenPairsAreHatched) {
  const Tensor weights = causal(3, 3);
  HeatMap map = map_of(weights, {"a", "b", "c"}, {"a", "b", "c"});
  map.visible = [](std::int64_t row, std::int64_t column) { return column <= row; };
  EXPECT_EQ(lines_of(terminal_heat_map(map, {}))[3], "        b│▒▒▒ 0.50 ▒▒▒ 0.50 ╱╱╱╱╱╱╱╱╱│");
  EXPECT_THAT(terminal_heat_map(map, {.colour = true}), HasSubstr("\x1b[38;2;128;128;128;49m╱╱"));
  // Two rows on a line: of a hidden and a visible one, the hidden half stays unpainted.
  const Tensor large = causal(90, 90);
  map = map_of(large);
  map.visible = [](std::int64_t row, std::int64_t column) { return column <= row; };
  const std::string halves = lines_of(terminal_heat_map(map, {.width = 60, .colour = true}))[2];
  EXPECT_THAT(halves, HasSubstr(";49m▄\x1b[38;2;128;128;128;49m╱╱"));
}

TEST(TerminalHeatMap, ItsOwnEndsDecideTheColours) {
  const Tensor weights = Tensor::from({1, 2}, {0.25F, 0.5F});
  HeatMap map = map_of(weights);
  map.low = 0.25;
  map.high = 4.25;
  const std::string text = terminal_heat_map(map, {.width = 80, .colour = false});
  EXPECT_THAT(text, HasSubstr("│    0.25     0.50 │"));
  EXPECT_THAT(text, HasSubstr("0.25 │   ░"));
  EXPECT_THAT(text, HasSubstr("█│ 4.25\n"));
}

TEST(TerminalHeatMap, TheScaleIsInTheShadesAndNamed) {
  const Tensor weights = Tensor::from({1, 3}, {0.0001F, 0.01F, 1});
  HeatMap map = map_of(weights);
  EXPECT_THAT(terminal_heat_map(map, {}), HasSubstr("│    0.00     0.01 ███ 1.00 │"));
  map.scale = PictureScale::log;
  const std::string log = terminal_heat_map(map, {});
  EXPECT_THAT(log, HasSubstr("│    0.00 ▒▒▒ 0.01 ███ 1.00 │"));
  EXPECT_THAT(log, HasSubstr("≤ 0.0001 │"));
  EXPECT_THAT(log, testing::EndsWith(" 1\nColour scale: logarithm.\n"));
  map.scale = PictureScale::sqrt;
  EXPECT_THAT(terminal_heat_map(map, {}), testing::EndsWith("\nColour scale: square root.\n"));
}

TEST(TerminalHeatMap, SeveralMapsShareAScaleAndATitle) {
  const Tensor low = Tensor::from({1, 2}, {0.25F, 0.5F});
  const Tensor high = Tensor::from({1, 2}, {0, 1});
  std::vector<HeatMap> maps = {map_of(low), map_of(high)};
  maps[1].title = "two";
  const std::string text = terminal_heat_maps(maps, "both", {});
  EXPECT_THAT(text, testing::StartsWith("both\n"));
  EXPECT_THAT(text, HasSubstr("\n\nboth: two\n"));
  EXPECT_THAT(text, HasSubstr("│░░░ 0.25 ▒▒▒ 0.50 │"));  // as parts of 1
  EXPECT_THAT(terminal_heat_map(maps[0], {}), HasSubstr("│▒▒▒ 0.25 ███ 0.50 │"));
  test::expect_error(
      ErrorCode::bad_value, [] { (void)terminal_heat_maps({}, "", {}); }, "no maps");
  const Tensor empty({0, 1});
  maps[1].values = empty;
  test::expect_error(
      ErrorCode::bad_shape, [&] { (void)terminal_heat_maps(maps, "", {}); }, "maps[1]: values have shape [0,1]");
}

TEST(TerminalHeatMap, NumbersTakeTheFormThatFits) {
  const Tensor tiny = Tensor::from({1, 2}, {2e-7F, 0});
  EXPECT_THAT(terminal_heat_map(map_of(tiny), {}), HasSubstr("2e-07"));
  const Tensor large = Tensor::from({1, 2}, {-512.25F, 3});
  EXPECT_THAT(terminal_heat_map(map_of(large), {}), HasSubstr("-512.25"));
  EXPECT_THAT(terminal_heat_map(map_of(large), {.width = 18}), HasSubstr("-512"));
  const Tensor weights = causal(12, 12);
  EXPECT_THAT(terminal_heat_map(map_of(weights), {.width = 60}), HasSubstr("▒.50▒.50 .00"));
}

TEST(TerminalHeatMap, RefusesWhatItCanNotDraw) {
  const Tensor weights = causal(2, 3);
  const Tensor vector({3});
  const Tensor empty({0, 3});
  const Tensor integers({2, 3}, DType::i64);
  const auto draw = [](const HeatMap& map, int width = 80) {
    return [map, width] { (void)terminal_heat_map(map, {.width = width}); };
  };
  using test::expect_error;
  expect_error(ErrorCode::bad_shape, draw(map_of(vector)), "terminal_heat_map", "[3]");
  expect_error(ErrorCode::bad_shape, draw(map_of(empty)), "terminal_heat_map", "[0,3]");
  expect_error(ErrorCode::bad_dtype, draw(map_of(integers)), "terminal_heat_map", "i64");
  expect_error(ErrorCode::bad_shape, draw(map_of(weights, {"one"})), "terminal_heat_map", "row", "[2,3]");
  expect_error(ErrorCode::bad_shape, draw(map_of(weights, {}, {"one", "two"})), "terminal_heat_map", "column");
  expect_error(ErrorCode::bad_value, draw(map_of(weights, {"one", "\xff"})), "terminal_heat_map", "row_labels", "0xff");
  expect_error(ErrorCode::bad_value, draw(map_of(weights), 0), "terminal_heat_map", "width", "0");
  HeatMap turned = map_of(weights);
  turned.low = 2;
  turned.high = 1;
  expect_error(ErrorCode::bad_value, draw(turned), "terminal_heat_map", "low 2", "high 1");
}

}  // namespace
}  // namespace attend
