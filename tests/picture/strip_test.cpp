// Tokens coloured by a value each: in the terminal, as SVG, as PNG.
#include <gmock/gmock.h>

#include "core/message.h"
#include "picture/colour.h"
#include "tests/expect.h"
#include "tests/picture/sample.h"
#include "tests/picture/xml.h"

namespace attend {
namespace {

using test::Element;
using test::Xml;
using testing::HasSubstr;

TokenStrip strip_of(const Tensor& values, std::vector<std::string> tokens) {
  TokenStrip strip;
  strip.tokens = std::move(tokens);
  strip.values = values;
  return strip;
}

std::string fill(double place) {
  const Colour c = ramp_colour(place);
  return fmt::format("#{:02x}{:02x}{:02x}", c.red, c.green, c.blue);
}

std::vector<Element> cells_of(const Xml& svg) {
  std::vector<Element> cells;
  for (const Element& rect : svg.named("rect")) {
    if (rect.attributes.contains("class")) cells.push_back(rect);
  }
  return cells;
}

TEST(TokenStrip, EachTokenStandsOnItsColour) {
  const Tensor values = Tensor::from({4}, {0, 0.25F, 1, NAN});
  TokenStrip strip = strip_of(values, {"the", " <script>", "cat & dog", "\n"});
  strip.name = "received";
  strip.title = "Who \"gets\" it";
  strip.scale = PictureScale::sqrt;
  const Xml svg(svg_token_strip(strip));
  const std::vector<Element> cells = cells_of(svg);
  ASSERT_EQ(cells.size(), 5U);  // and the sign for no value
  for (const std::size_t i : {0U, 1U, 2U})
    EXPECT_EQ(cells[i].attributes.at("fill"), fill(std::sqrt(values.data<float>()[i])));
  EXPECT_EQ(cells[3].attributes.at("fill"), "#eeeeee");
  EXPECT_EQ(svg.named("path").size(), 1U);
  EXPECT_EQ(svg.named("title")[0].text, "Who \"gets\" it");
  EXPECT_EQ(svg.named("title")[2].text, "1  <script>: 0.2500");
  EXPECT_EQ(svg.named("title")[4].text, "3  : no value");
  const std::vector<std::string> texts = test::texts_of(svg);
  for (const char* text : {"the", "<script>", "cat & dog", "received", "no value", "Colour scale: square root."})
    EXPECT_THAT(texts, testing::Contains(text));
  EXPECT_EQ(svg.named("desc")[0].text,
            "4 tokens, each on the colour of its value (received), from 0.0000 to 1.0000. A token without a value is "
            "hatched.");
  EXPECT_EQ(svg_token_strip(strip), svg_token_strip(strip));
  EXPECT_EQ(png_token_strip(strip), png_token_strip(strip));
  EXPECT_TRUE(png_token_strip(strip).starts_with("\x89PNG"));
}

TEST(TokenStrip, TwoThousandTokensWrapInOrderAndCount) {
  const std::int64_t count = 2000;
  std::vector<std::string> tokens;
  for (std::int64_t i = 0; i < count; ++i) tokens.push_back(i % 7 == 0 ? "," : "word" + std::to_string(i));
  Tensor values({count});
  for (std::int64_t i = 0; i < count; ++i) values.data<float>()[i] = static_cast<float>(i);
  const TokenStrip strip = strip_of(values, tokens);
  const Xml svg(svg_token_strip(strip));
  const std::vector<Element> cells = cells_of(svg);
  ASSERT_EQ(cells.size(), 2000U);
  const auto number = [](const Element& e, const char* name) { return std::stod(e.attributes.at(name)); };
  const double width = number(svg.elements()[0], "width");
  EXPECT_LT(width, 700);
  int lines = 1;
  for (std::size_t i = 1; i < cells.size(); ++i) {
    const double end = number(cells[i - 1], "x") + number(cells[i - 1], "width");
    if (number(cells[i], "y") > number(cells[i - 1], "y")) {
      ++lines;
      EXPECT_EQ(number(cells[i], "x"), number(cells[0], "x"));
    } else {
      EXPECT_GE(number(cells[i], "x"), end);
    }
    EXPECT_LE(number(cells[i], "x") + number(cells[i], "width"), width - 20);
  }
  EXPECT_GT(lines, 100);
  EXPECT_FALSE(png_token_strip(strip).empty());
}

TEST(TokenStrip, InTheTerminalAShadeOrAColourStandsWithTheToken) {
  const Tensor values = Tensor::from({4}, {0, 0.5F, 1, NAN});
  TokenStrip strip = strip_of(values, {"the", "cat", "sat", "down"});
  strip.name = "lift";
  EXPECT_EQ(terminal_token_strip(strip, {}),
            " the ▒cat █sat ╱down\n"
            "lift:\n"
            "0 │   ░░░░░▒▒▒▒▓▓▓▓▓███│ 1  ╱╱ no value\n");
  const std::string colour = terminal_token_strip(strip, {.colour = true});
  EXPECT_THAT(colour, HasSubstr("48;2;252;251;236mthe\x1b[0m"));
  EXPECT_THAT(colour, HasSubstr("╱\x1b[0mdown"));
  const std::string narrow = terminal_token_strip(strip, {.width = 12});
  EXPECT_THAT(narrow, testing::StartsWith("0   the ▒cat\n2  █sat\n3  ╱down\n"));
}

TEST(TokenStrip, RefusesWhatItCanNotDraw) {
  const Tensor values = Tensor::from({2}, {1, -1});
  const auto expect = [](ErrorCode code, const TokenStrip& strip, const std::string& text) {
    test::expect_error(
        code, [&] { (void)svg_token_strip(strip); }, "svg_token_strip: ", text);
    test::expect_error(
        code, [&] { (void)png_token_strip(strip); }, "png_token_strip: ", text);
    test::expect_error(
        code, [&] { (void)terminal_token_strip(strip, {}); }, "terminal_token_strip: ", text);
  };
  expect(ErrorCode::bad_shape, strip_of(values, {"one"}), "1 tokens for 2 values");
  const Tensor none({0}), matrix({2, 2}), whole({2}, DType::i64);
  expect(ErrorCode::bad_shape, strip_of(none, {}), "[0], expected [tokens]");
  expect(ErrorCode::bad_shape, strip_of(matrix, {"a", "b"}), "[2,2], expected [tokens]");
  expect(ErrorCode::bad_dtype, strip_of(whole, {"a", "b"}), "i64");
  expect(ErrorCode::bad_value, strip_of(values, {"a", "\xff"}), "tokens[1] is not UTF-8");
  TokenStrip log = strip_of(values, {"a", "b"});
  log.scale = PictureScale::log;
  expect(ErrorCode::bad_value, log, "values have -1 at [0,1], expected 0 or more on the scale log");
  test::expect_error(
      ErrorCode::bad_value,
      [&] {
        (void)terminal_token_strip(strip_of(values, {"a", "b"}), {.width = 0});
      },
      "width");
}

TEST(TokenStrip, OneBelowAnotherNeedsNoScaleOfItsOwn) {
  const Tensor values = Tensor::from({30}, std::vector<float>(30, 0.25F));
  TokenStrip strip = strip_of(values, std::vector<std::string>(30, "token"));
  strip.high = 1, strip.name = "received", strip.scale = PictureScale::sqrt;
  const std::string whole = svg_token_strip(strip), told = terminal_token_strip(strip, {.width = 60});
  EXPECT_THAT(whole, HasSubstr("received"));
  EXPECT_THAT(told, HasSubstr("received:"));
  strip.has_scale = strip.has_indices = false;
  const std::string bare = svg_token_strip(strip);
  for (const char* part : {"received<", "Colour scale", ">10<"})
    EXPECT_THAT(bare, testing::Not(HasSubstr(part))) << part;
  EXPECT_EQ(cells_of(Xml(bare)).size(), 30u);
  EXPECT_THAT(terminal_token_strip(strip, {.width = 60}), testing::Not(HasSubstr("received")));
  // As far to the left as a shorter one.
  const Tensor two = Tensor::from({2}, {0.25F, 0.25F});
  TokenStrip other = strip_of(two, {"a", "b"});
  other.high = 1, other.has_scale = other.has_indices = false;
  EXPECT_EQ(cells_of(Xml(svg_token_strip(other)))[0].attributes.at("x"), cells_of(Xml(bare))[0].attributes.at("x"));
}

}  // namespace
}  // namespace attend
