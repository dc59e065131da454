// Wide cells, with texts and without, and pictures one below the other.
#include <gmock/gmock.h>

#include "picture/colour.h"
#include "tests/expect.h"
#include "tests/picture/sample.h"
#include "tests/picture/xml.h"

namespace attend {
namespace {

using test::Element;
using test::texts_of;
using test::Xml;

std::vector<Element> cells_of(const Xml& svg) {
  std::vector<Element> cells;
  for (const Element& rect : svg.named("rect"))
    if (rect.attributes.contains("class")) cells.push_back(rect);
  return cells;
}

HeatMap map_of_texts(const Tensor& values) {
  HeatMap map = test::heat_map(values, {"0", "1"}, {"The", " cat"});
  map.texts = {" Paris", "<b>", "", "注意"};
  map.high = 1;
  return map;
}

TEST(Cells, TextsStandInTheirMiddle) {
  const Tensor values = Tensor::from({2, 2}, {0, 0.25F, 0.5F, 1});
  const HeatMap map = map_of_texts(values);
  const Xml svg(svg_heat_map({map}, "title"));
  const std::vector<std::string> texts = texts_of(svg);
  for (const char* text : {"Paris", "<b>", "注意"}) EXPECT_THAT(texts, testing::Contains(text));
  EXPECT_THAT(texts, testing::Not(testing::Contains("0.25")));
  EXPECT_EQ(svg.named("title")[1].text, "0 → The:  Paris, 0.0000");
  for (const Element& cell : cells_of(svg)) {
    EXPECT_EQ(cell.attributes.at("height"), "19");
    EXPECT_GT(std::stod(cell.attributes.at("width")), 30);
  }
  EXPECT_TRUE(png_heat_map({map}, "").starts_with("\x89PNG"));
}

TEST(Cells, ManyTextsKeepRoomToBeRead) {
  const Tensor values({100, 30});
  HeatMap map = test::heat_map(values);
  for (int n = 0; n < 3000; ++n) map.texts.emplace_back("international");
  const Xml svg(svg_heat_map({map}, ""));
  const std::vector<Element> cells = cells_of(svg);
  ASSERT_EQ(cells.size(), 3000U);  // and no image of blocks
  EXPECT_GE(std::stod(cells[0].attributes.at("width")), 40);
  EXPECT_THAT(texts_of(svg), testing::Contains("inter…"));
}

TEST(Cells, TextsInTheTerminal) {
  const Tensor values = Tensor::from({2, 2}, {0, 0.25F, 0.5F, 1});
  HeatMap map = map_of_texts(values);
  map.row_axis = "layer", map.column_axis = "tokens";
  EXPECT_EQ(terminal_heat_map(map, {}),
            "        tokens →\n"
            "layer ↓  The    cat\n"
            "      0│ Paris ░<b>   │\n"
            "      1│▒      █注意  │\n"
            "        0 │   ░░░░░▒▒▒▒▓▓▓▓▓███│ 1\n");
  const Colour c = ramp_colour(0.25);
  EXPECT_THAT(terminal_heat_map(map, {.colour = true}),
              testing::HasSubstr(fmt::format("48;2;{};{};{}m<b>   \x1b", c.red, c.green, c.blue)));
  EXPECT_THAT(terminal_heat_map(map, {.width = 18}), testing::HasSubstr("│ Pa… ░<b> │"));
  test::expect_error(
      ErrorCode::bad_shape,
      [&] {
        map.texts.pop_back();
        (void)terminal_heat_map(map, {});
      },
      "3 texts for values [2,2]");
}

TEST(Cells, WideOnesLeaveOutSmallNumbers) {
  const Tensor values = Tensor::from({1, 4}, {-2, 0.25F, 0.0625F, -0.0625F});
  HeatMap map = test::heat_map(values);
  map.wide = true, map.scale = PictureScale::diverging;
  const auto in_cells = [&] {
    const Xml svg(svg_heat_map({map}, ""));
    const std::vector<std::string> all = texts_of(svg);
    std::vector<std::string> numbers;
    for (const std::string& text : all)
      if (text.find('.') != std::string::npos && text.size() - text.find('.') == 3) numbers.push_back(text);
    return numbers;
  };
  EXPECT_EQ(in_cells(), (std::vector<std::string>{"-2.00", "0.25"}));
  EXPECT_THAT(terminal_heat_map(map, {}), testing::HasSubstr("│≡≡≡ -2.00 ░░░  0.25                     │"));
  map.low = -1, map.high = 1;  // the scale's end, not the value beyond it
  EXPECT_EQ(in_cells(), (std::vector<std::string>{"-2.00", "0.25", "0.06", "-0.06"}));
}

TEST(Stack, PartsStandOneBelowTheOther) {
  const Tensor values = Tensor::from({2}, {1, 2}), map = Tensor::from({2, 2}, {3, 4, 5, 6});
  PictureStack stack;
  stack.parts.emplace_back(TokenStrip{.tokens = {"the", "cat"}, .values = values, .title = "Both"});
  stack.parts.emplace_back(HeatMaps{{test::heat_map(map)}, ""});
  const Xml strip(svg_token_strip(std::get<TokenStrip>(stack.parts[0])));
  const Xml maps(svg_heat_map(std::get<HeatMaps>(stack.parts[1]).maps, ""));
  const Xml svg(svg_picture_stack(stack));
  EXPECT_EQ(svg.named("title")[0].text, "Both");
  const auto side = [](const Xml& of, const char* name) { return std::stod(of.elements()[0].attributes.at(name)); };
  EXPECT_EQ(side(svg, "width"), std::max(side(strip, "width"), side(maps, "width")));
  EXPECT_EQ(side(svg, "height"), side(strip, "height") + side(maps, "height") - 24);
  const std::vector<Element> cells = cells_of(svg);
  ASSERT_EQ(cells.size(), 6U);
  EXPECT_GT(std::stod(cells[2].attributes.at("y")), std::stod(cells[0].attributes.at("y")) + 24);
  Picture picture;
  picture.drawing = stack;
  EXPECT_EQ(picture.svg(), svg_picture_stack(stack));
  EXPECT_EQ(picture.png(), png_picture_stack(stack));
  EXPECT_EQ(picture.title(), "Both");
  EXPECT_EQ(picture.text(), "Boththecat");
  EXPECT_EQ(*picture.terminal({}), terminal_token_strip(std::get<TokenStrip>(stack.parts[0]), {}) + "\n" +
                                       terminal_heat_map(test::heat_map(map), {}));
  for (const auto draw : {+[](const PictureStack& x) { return svg_picture_stack(x); },
                          +[](const PictureStack& x) { return png_picture_stack(x); },
                          +[](const PictureStack& x) { return terminal_picture_stack(x, {}); }})
    test::expect_error(
        ErrorCode::bad_value, [&] { (void)draw({}); }, "no parts, expected at least one");
}

// Cells are as wide as the numbers that are written need, also where all of them are below 1.
TEST(Cells, WideOnesHaveRoomForSmallNumbersInTheTerminal) {
  const Tensor values = Tensor::from({1, 3}, {0.2f, 0.004f, -0.05f});
  HeatMap map;
  map.values = values, map.wide = true;
  const std::string text = terminal_heat_map(map, {.width = 80, .colour = true});
  EXPECT_THAT(text, testing::HasSubstr("0.2000"));
  EXPECT_THAT(text, testing::HasSubstr("-0.0500"));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("0.0040")));
}

}  // namespace
}  // namespace attend
