#include <locale>

#include "core/message.h"
#include "picture/colour.h"
#include "tests/expect.h"
#include "tests/picture/sample.h"
#include "tests/picture/xml.h"

namespace attend {
namespace {

using test::Element;
using test::heat_map;
using test::texts_of;
using test::words;
using test::Xml;

double number(const Element& element, const std::string& attribute) {
  return std::stod(element.attributes.at(attribute));
}

std::vector<Element> cells_of(const Xml& svg) {
  std::vector<Element> cells;
  for (const Element& rect : svg.named("rect")) {
    if (rect.attributes.contains("class")) cells.push_back(rect);
  }
  return cells;
}

std::int64_t occurrences(const std::vector<std::string>& texts, const std::string& text) {
  return std::count(texts.begin(), texts.end(), text);
}

TEST(SvgHeatMap, ShowsCellsLabelsValuesAndTitle) {
  const Tensor values = Tensor::from({2, 3}, {0.2912f, 0.0106f, 0.0982f, 0.0625f, 0.4917f, -0.001f});
  const Xml svg(svg_heat_map({heat_map(values, {"short", "eat"}, {"a", "b", "c"})}, "Life is short"));
  const std::vector<Element> cells = cells_of(svg);
  ASSERT_EQ(cells.size(), 6u);
  for (const Element& cell : cells) EXPECT_EQ(number(cell, "width"), number(cell, "height"));
  EXPECT_GT(number(cells[1], "x"), number(cells[0], "x"));
  EXPECT_EQ(number(cells[1], "y"), number(cells[0], "y"));
  EXPECT_GT(number(cells[3], "y"), number(cells[0], "y"));
  const std::vector<std::string> texts = texts_of(svg);
  for (const char* text : {"short", "eat", "a", "b", "c", "queries", "keys", "Life is short", "0.29", "0.01", "0.10",
                           "0.06", "0.49", "0.00"}) {
    EXPECT_EQ(occurrences(texts, text), 1) << text;
  }
  const std::vector<Element> titles = svg.named("title");
  EXPECT_EQ(titles[0].text, "Life is short");
  EXPECT_EQ(titles[1].text, "short → a: 0.2912");
  EXPECT_EQ(svg.named("desc")[0].text, "Heat map, 2 x 3 (queries x keys), colours from -0.0010 to 0.4917.");
}

TEST(SvgHeatMap, LightestAndDarkestAreTheEndsOfTheScale) {
  HeatMap map = heat_map(Tensor());
  const Tensor values = Tensor::from({1, 4}, {-1, 0, 2, 9});
  map.values = values;
  const std::vector<Element> open = cells_of(Xml(svg_heat_map({map}, "")));
  map.low = 0;
  map.high = 2;
  const std::vector<Element> fixed = cells_of(Xml(svg_heat_map({map}, "")));
  EXPECT_EQ(open[0].attributes.at("fill"), fixed[0].attributes.at("fill"));
  EXPECT_NE(open[1].attributes.at("fill"), fixed[1].attributes.at("fill"));
  EXPECT_EQ(fixed[0].attributes.at("fill"), fixed[1].attributes.at("fill"));
  EXPECT_EQ(fixed[2].attributes.at("fill"), fixed[3].attributes.at("fill"));
}

TEST(SvgHeatMap, TheScaleColoursTheCellsAndIsNamed) {
  const Tensor values = Tensor::from({1, 4}, {0, 0.25F, 0.01F, 1});
  HeatMap map = heat_map(values);
  const auto colour = [](double place) {
    const Colour c = ramp_colour(place);
    return fmt::format("#{:02x}{:02x}{:02x}", c.red, c.green, c.blue);
  };
  map.scale = PictureScale::sqrt;
  const Xml root(svg_heat_map({map}, ""));
  EXPECT_EQ(cells_of(root)[1].attributes.at("fill"), colour(0.5));
  EXPECT_EQ(occurrences(texts_of(root), "Colour scale: square root."), 1);
  map.scale = PictureScale::log;
  const Xml log(svg_heat_map({map}, ""));
  EXPECT_EQ(cells_of(log)[0].attributes.at("fill"), colour(0));
  EXPECT_EQ(cells_of(log)[2].attributes.at("fill"), colour(0.5));
  EXPECT_EQ(occurrences(texts_of(log), "Colour scale: logarithm."), 1);
  EXPECT_EQ(occurrences(texts_of(log), "≤ 0.0001"), 1);
  EXPECT_NE(png_heat_map({map}, ""), png_heat_map({heat_map(values)}, ""));
}

TEST(SvgHeatMap, NegativeValuesHaveNoPlaceOnRootsAndLogarithmsUnlessHidden) {
  const Tensor values = Tensor::from({2, 2}, {1, -INFINITY, 0.5F, -0.25F});
  for (const PictureScale scale : {PictureScale::sqrt, PictureScale::log}) {
    HeatMap map = heat_map(values);
    map.scale = scale;
    const auto name = std::string(name_of(scale));
    test::expect_error(
        ErrorCode::bad_value, [&] { svg_heat_map({map}, ""); },
        "svg_heat_map: values have -0.25 at [1,1], expected 0 or more on the scale " + name);
    test::expect_error(
        ErrorCode::bad_value, [&] { (void)terminal_heat_map(map, {}); },
        "terminal_heat_map: values have -0.25 at [1,1]");
    map.visible = [](std::int64_t row, std::int64_t column) { return column <= row - 1; };
    EXPECT_EQ(cells_of(Xml(svg_heat_map({map}, ""))).size(), 5U);
    map.low = -1;
    test::expect_error(
        ErrorCode::bad_value, [&] { svg_heat_map({map}, ""); }, "low is -1, expected 0 or more on the scale " + name);
  }
}

TEST(SvgHeatMap, AnyTextIsValidXml) {
  const std::vector<std::string> labels = test::odd_labels();
  const auto count = static_cast<std::int64_t>(labels.size());
  const Tensor values = test::ramp(count, count);
  HeatMap map = heat_map(values, labels, labels);
  map.title = "<title>";
  map.row_axis = "a & b";
  map.column_axis = "\"c\"";
  const Xml svg(svg_heat_map({map}, "]]> <!-- & \x02"));
  const std::vector<std::string> texts = texts_of(svg);
  EXPECT_EQ(occurrences(texts, "注意力"), 2);
  EXPECT_EQ(occurrences(texts, "الانتباه"), 2);
  EXPECT_EQ(occurrences(texts, "👩‍💻🍰"), 2);
  EXPECT_EQ(occurrences(texts, "<b>&\"'</b>"), 2);
  EXPECT_EQ(occurrences(texts, "a b c\ufffd\ufffd"), 2);
  EXPECT_EQ(occurrences(texts, "nul\ufffdnul\ufffd"), 2);
  EXPECT_EQ(occurrences(texts, "<title>"), 1);
  EXPECT_EQ(occurrences(texts, "]]> <!-- & \ufffd"), 1);
}

TEST(SvgHeatMap, LongTextIsCutWithAnEllipsis) {
  const std::string word(100, 'w');
  const Tensor values = test::ramp(1, 1);
  const Xml svg(svg_heat_map({heat_map(values, {word}, {word})}, std::string(1000, 'm')));
  int cut = 0;
  for (const std::string& text : texts_of(svg)) {
    EXPECT_LT(text.size(), 60u);
    cut += text.ends_with("…");
  }
  EXPECT_EQ(cut, 3);
  EXPECT_LT(number(svg.elements()[0], "width"), 640);
}

TEST(SvgHeatMap, ACutNeverSplitsACharacter) {
  const Tensor values = test::ramp(1, 1);
  int cut = 0;
  for (std::size_t before = 0; before < 8; ++before) {  // so that the cut would fall at either half of a character
    std::string label(before, 'i');
    for (int i = 0; i < 100; ++i) label += "👩‍💻";
    for (const std::string& text : texts_of(Xml(svg_heat_map({heat_map(values, {label}, {"a"})}, "")))) {
      if (!text.ends_with("…")) continue;
      EXPECT_TRUE(text.ends_with("💻…")) << text;
      ++cut;
    }
  }
  EXPECT_EQ(cut, 8);
}

TEST(SvgHeatMap, WhatIsHiddenIsHatchedAndNaNIsOrange) {
  const Tensor values = Tensor::from({2, 3}, {1, NAN, -INFINITY, 0, 0.5f, 0});
  HeatMap map = heat_map(values);
  map.visible = [](std::int64_t row, std::int64_t column) { return row == 0 || column < 2; };
  const Xml svg(svg_heat_map({map}, ""));
  const std::vector<Element> cells = cells_of(svg);
  ASSERT_EQ(cells.size(), 6u + 1);  // and the sign beside the scale
  for (const std::size_t hidden : {2u, 5u, 6u}) EXPECT_EQ(cells[hidden].attributes.at("fill"), "#eeeeee");
  EXPECT_EQ(cells[1].attributes.at("fill"), "#ee9b3a");
  EXPECT_EQ(cells[3].attributes.at("fill"), "#fcfbec");  // a visible 0 has the scale's own colour
  const std::vector<std::string> texts = texts_of(svg);
  EXPECT_EQ(occurrences(texts, "0.00"), 1);
  EXPECT_EQ(occurrences(texts, "hidden"), 1);
  EXPECT_EQ(occurrences(texts, "nan"), 1);
  EXPECT_THAT(svg.named("desc")[0].text, testing::EndsWith("Hidden pairs are hatched."));
  EXPECT_EQ(svg.named("title")[6].text, "1 → 2: hidden");
  const std::vector<Element> hatch = svg.named("path");
  ASSERT_EQ(hatch.size(), 1u);
  EXPECT_GT(hatch[0].attributes.at("d").size(), 100u);
  EXPECT_TRUE(Xml(svg_heat_map({heat_map(test::ramp(2, 2))}, "")).named("path").empty());
}

TEST(SvgHeatMap, HeadsWrapIntoRowsAndShareLabels) {
  const Tensor values = test::ramp(6, 6);
  std::vector<HeatMap> maps(16, heat_map(values, words, words));
  for (std::size_t i = 0; i < maps.size(); ++i) maps[i].title = "head " + std::to_string(i);
  const Xml svg(svg_heat_map(maps, "Sixteen heads"));
  EXPECT_EQ(cells_of(svg).size(), 16u * 36);
  const std::vector<std::string> texts = texts_of(svg);
  EXPECT_EQ(occurrences(texts, "head 15"), 1);
  EXPECT_EQ(occurrences(texts, "dessert"), 4 + 4);  // four rows of panels, four columns
  EXPECT_EQ(occurrences(texts, "queries"), 1);
  maps[3].row_axis = "positions";
  EXPECT_EQ(occurrences(texts_of(Xml(svg_heat_map(maps, ""))), "queries"), 15);
}

TEST(SvgHeatMap, NothingLeavesThePicture) {
  const std::vector<std::string> labels = test::odd_labels();
  const Tensor square = test::ramp(8, 8);
  const Tensor wide = test::ramp(1, 300);
  const Tensor tall = test::ramp(300, 1);
  const std::vector<std::vector<HeatMap>> pictures = {{heat_map(square, labels, labels)},
                                                      {heat_map(wide), heat_map(tall)},
                                                      {heat_map(wide)},
                                                      {heat_map(tall)},
                                                      std::vector<HeatMap>(7, heat_map(square, labels, labels))};
  for (const std::vector<HeatMap>& maps : pictures) {
    const Xml svg(svg_heat_map(maps, "title"));
    const double width = number(svg.elements()[0], "width");
    const double height = number(svg.elements()[0], "height");
    for (const Element& element : svg.elements()) {
      if (!element.attributes.contains("x")) continue;
      EXPECT_GE(number(element, "x"), 0);
      EXPECT_GE(number(element, "y"), 0);
      EXPECT_LT(number(element, "x"), width);
      EXPECT_LT(number(element, "y"), height);
    }
  }
}

TEST(SvgHeatMap, LargeMapsAreImagesWithThinnedLabels) {
  for (const std::int64_t side : {65, 512, 513, 600}) {
    const Tensor values = test::ramp(side, side);
    const Xml svg(
        svg_heat_map({heat_map(values, std::vector<std::string>(static_cast<std::size_t>(side), "token"))}, ""));
    EXPECT_TRUE(cells_of(svg).empty());
    ASSERT_EQ(svg.named("image").size(), 1u);
    EXPECT_TRUE(svg.named("image")[0].attributes.at("href").starts_with("data:image/png;base64,iVBORw0KGgo"));
    EXPECT_LT(svg.named("text").size(), 120u);
    std::string text;
    for (const std::string& line : texts_of(svg)) text += line + "\n";
    EXPECT_EQ(text.find("mean of 2 × 2") != std::string::npos, side > 512) << side;
  }
}

TEST(SvgHeatMap, AMapOfBlocksSaysWhatACellIsAndCountsIndices) {
  const Tensor values = test::ramp(4, 3);
  HeatMap map = heat_map(values);
  map.row_range = {2000, 2064};
  map.column_range = {0, 10};
  map.reduction = "sum over keys, mean over <queries>";
  const Xml svg(svg_heat_map({map}, ""));
  const std::vector<std::string> texts = texts_of(svg);
  const char* note = "Each cell is 16 queries × up to 4 keys: sum over keys, mean over <queries>.";
  EXPECT_EQ(occurrences(texts, note), 1);
  // floor(i * 3 / 10): 0 0 0 0 1 1 1 2 2 2
  EXPECT_EQ(svg.named("title")[1].text, "2000–2015 → 0–3: 0.0000");
  EXPECT_EQ(svg.named("title")[12].text, "2048–2063 → 7–9: 0.9167");
  EXPECT_EQ(occurrences(texts, "2000"), 1);
  EXPECT_EQ(occurrences(texts, "8"), 1);  // a key of the third column
  EXPECT_THAT(svg.named("desc")[0].text, testing::StartsWith("Heat map, 4 x 3 ("));

  map.row_range = {5, 9};
  map.column_range = {};
  const std::vector<std::string> tile = texts_of(Xml(svg_heat_map({map}, "")));
  EXPECT_EQ(occurrences(tile, "8"), 1);
  EXPECT_EQ(occurrences(tile, "Each cell: sum over keys, mean over <queries>."), 1);
  map.reduction.clear();
  for (const std::string& text : texts_of(Xml(svg_heat_map({map}, "")))) EXPECT_FALSE(text.starts_with("Each")) << text;
}

TEST(SvgHeatMap, RangesHoldTheRows) {
  const Tensor values = test::ramp(4, 3);
  HeatMap map = heat_map(values);
  for (const Range range : {Range{0, 3}, Range{-1, 8}, Range{8, 4}}) {
    map.row_range = range;
    test::expect_error(
        ErrorCode::bad_shape, [&] { svg_heat_map({map}, ""); }, "svg_heat_map: row_range is", "expected 4 or more");
  }
  map.row_range = {0, 5};
  map.row_labels = {"a", "b", "c", "d"};
  test::expect_error(
      ErrorCode::bad_shape, [&] { svg_heat_map({map}, ""); }, "4 row labels for 5 rows");
  map.row_labels.emplace_back("e");
  EXPECT_EQ(occurrences(texts_of(Xml(svg_heat_map({map}, ""))), "e"), 1);
  map.reduction = "\xff";
  test::expect_error(
      ErrorCode::bad_value, [&] { svg_heat_map({map}, ""); }, "reduction is not UTF-8");
}

TEST(SvgHeatMap, TheSameBytesInAnyLocale) {
  struct Comma : std::numpunct<char> {
    char do_decimal_point() const override { return ','; }
    char do_thousands_sep() const override { return '.'; }
    std::string do_grouping() const override { return "\3"; }
  };
  const Tensor values = test::ramp(7, 2);
  const std::string before = svg_heat_map({heat_map(values)}, "t");
  EXPECT_EQ(svg_heat_map({heat_map(values)}, "t"), before);
  const std::locale old = std::locale::global(std::locale(std::locale(), new Comma));
  const std::string after = svg_heat_map({heat_map(values)}, "t");
  std::locale::global(old);
  EXPECT_EQ(after, before);
}

TEST(SvgHeatMap, DrawsAnyMagnitude) {
  for (const float size : {0.0f, 1e-30f, 1e-5f, 123.456f, 54321.0f, 3e38f}) {
    const Tensor values = Tensor::from({2, 2}, {size, -size, 0, size / 2});
    EXPECT_EQ(cells_of(Xml(svg_heat_map({heat_map(values)}, ""))).size(), 4u) << size;
  }
  Tensor doubles({1, 2}, DType::f64);
  doubles.data<double>()[0] = 1.7e308;
  doubles.data<double>()[1] = -1.7e308;
  EXPECT_EQ(cells_of(Xml(svg_heat_map({heat_map(doubles)}, ""))).size(), 2u);
  const Tensor nothing = Tensor::from({1, 1}, {NAN});
  EXPECT_EQ(cells_of(Xml(svg_heat_map({heat_map(nothing)}, ""))).size(), 1u);
}

TEST(SvgHeatMap, ReadsAnyFloatingTypeAndStrides) {
  const Tensor values = Tensor::from({2, 2}, {0.25f, 0.5f, 0.75f, 1});
  const Tensor turned = Tensor::from({2, 2}, {0.25f, 0.75f, 0.5f, 1});
  const std::string expected = svg_heat_map({heat_map(values)}, "");
  for (const DType dtype : {DType::f64, DType::f16, DType::bf16}) {
    EXPECT_EQ(svg_heat_map({heat_map(values.view().to(dtype))}, ""), expected);
  }
  EXPECT_EQ(svg_heat_map({heat_map(turned.view().transpose(0, 1))}, ""), expected);
}

TEST(SvgHeatMap, Errors) {
  const Tensor values = test::ramp(2, 3);
  const auto expect = [](ErrorCode code, const HeatMap& map, const auto&... texts) {
    test::expect_error(
        code, [&] { svg_heat_map({map}, ""); }, "svg_heat_map: ", texts...);
    test::expect_error(
        code, [&] { png_heat_map({map}, ""); }, "png_heat_map: ", texts...);
    test::expect_error(
        code,
        [&] {
          svg_heat_map({heat_map(test::ramp(1, 1)), map}, "");
        },
        texts...);
  };
  expect(ErrorCode::bad_shape, heat_map(values, {"a"}), "1 row labels for 2 rows", "[2,3]");
  expect(ErrorCode::bad_shape, heat_map(values, {}, {"a", "b"}), "2 column labels for 3 columns");
  expect(ErrorCode::bad_shape, heat_map(Tensor({0, 3})), "[0,3]");
  expect(ErrorCode::bad_shape, heat_map(Tensor({3, 0})), "[3,0]");
  expect(ErrorCode::bad_shape, heat_map(Tensor({3})), "[rows,columns]");
  expect(ErrorCode::bad_dtype, heat_map(Tensor({2, 2}, DType::i64)), "i64");
  expect(ErrorCode::bad_value, heat_map(values, {"a", "\xff"}), "row_labels[1] is not UTF-8");
  HeatMap map = heat_map(values);
  map.low = 1;
  expect(ErrorCode::bad_value, map, "low 1", "high 0");
  map.high = NAN;
  expect(ErrorCode::bad_value, map);
  test::expect_error(
      ErrorCode::bad_value, [] { svg_heat_map({}, ""); }, "svg_heat_map: no maps");
  test::expect_error(
      ErrorCode::bad_value, [] { png_heat_map({}, ""); }, "png_heat_map: no maps");
  test::expect_error(
      ErrorCode::bad_value, [&] { svg_heat_map({heat_map(values)}, "\xff"); }, "title is not UTF-8");
}

}  // namespace
}  // namespace attend
