// The scale of values on both sides of 0: its colours, its ends, and its signs where there is no colour.
#include <gmock/gmock.h>

#include "picture/colour.h"
#include "picture/ticks.h"
#include "tests/expect.h"
#include "tests/picture/sample.h"
#include "tests/picture/xml.h"

namespace attend {
namespace {

using test::Element;
using test::Xml;
using testing::HasSubstr;

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double inf = std::numeric_limits<double>::infinity();

HeatMap map_of(const Tensor& values, double low = 0, double high = 0) {
  HeatMap map = test::heat_map(values);
  map.scale = PictureScale::diverging;
  map.low = low, map.high = high;
  return map;
}

std::string hex(Colour c) {
  return fmt::format("#{:02x}{:02x}{:02x}", c.red, c.green, c.blue);
}

TEST(Diverging, BothSidesDarkenFromWhiteAlike) {
  EXPECT_EQ(diverging_colour(0.5), (Colour{0xfa, 0xfa, 0xfa}));
  EXPECT_EQ(diverging_colour(nan), diverging_nan_colour);
  EXPECT_EQ(diverging_colour(-1), diverging_colour(0));
  for (int i = 0; i <= 128; ++i) {
    const double away = i / 256.0;
    const Colour below = diverging_colour(0.5 - away), above = diverging_colour(0.5 + away);
    for (const Colour colour : {below, above}) EXPECT_GE(contrast(colour, text_colour(colour)), 4.5) << i;
    if (i < 16) continue;
    EXPECT_GT(below.blue, below.red) << i;
    EXPECT_GT(above.red, above.blue) << i;
    // As light as the other side: Oklab's lightness is not quite what contrast measures.
    EXPECT_LT(contrast(below, above), 1.35) << i;
    EXPECT_LT(contrast(below, black), contrast(diverging_colour(0.5 - away + 1.0 / 16), black)) << i;
    EXPECT_LT(contrast(above, black), contrast(diverging_colour(0.5 + away - 1.0 / 16), black)) << i;
  }
}

TEST(Diverging, ItReachesAsFarOnBothSides) {
  const auto ends = [](const std::vector<HeatMap>& maps) {
    const ColourScale scale = colour_scale(maps, "test");
    EXPECT_EQ(scale.place(0), 0.5);
    return std::pair(scale.low, scale.high);
  };
  const Tensor values = Tensor::from({1, 4}, {-0.5F, 0.25F, INFINITY, NAN}),
               more = Tensor::from({1, 2}, {0.75F, -0.25F});
  const Tensor zeros({1, 2}), below = Tensor::from({1, 2}, {-4, -2}), none = Tensor::from({1, 1}, {NAN});
  EXPECT_EQ(ends({map_of(values)}), std::pair(-0.5, 0.5));
  EXPECT_EQ(ends({map_of(values), map_of(more)}), std::pair(-0.75, 0.75));
  EXPECT_EQ(ends({map_of(values, -1, 2)}), std::pair(-2.0, 2.0));
  EXPECT_EQ(ends({map_of(below)}), std::pair(-4.0, 4.0));
  EXPECT_EQ(ends({map_of(zeros)}), std::pair(-1.0, 1.0));
  EXPECT_EQ(ends({map_of(none)}), std::pair(-1.0, 1.0));
  const ColourScale scale = colour_scale(std::vector{map_of(values)}, "test");
  EXPECT_EQ(scale.at(0.5), diverging_colour(1));
  EXPECT_EQ(scale.at(-0.25), diverging_colour(0.25));
  EXPECT_EQ(scale.at(-inf), diverging_colour(0));
  EXPECT_EQ(scale.at(nan), diverging_nan_colour);
  const std::vector<Tick> ticks = ticks_of(scale);
  EXPECT_EQ(ticks.front().value, -ticks.back().value);
  EXPECT_EQ(ticks[ticks.size() / 2].text, U"0.0");
  EXPECT_EQ(picture_scale("diverging"), PictureScale::diverging);
  EXPECT_EQ(name_of(PictureScale::diverging), "diverging");
}

TEST(Diverging, PicturesAndTheirBarHaveItsColours) {
  const Tensor values = Tensor::from({1, 3}, {-2, 0, 1});
  const Xml svg(svg_heat_map({map_of(values)}, ""));
  std::vector<std::string> cells, marks;
  for (const Element& rect : svg.named("rect")) {
    if (rect.attributes.contains("class"))
      cells.push_back(rect.attributes.at("fill"));
    else
      marks.push_back(rect.attributes.at("fill"));
  }
  EXPECT_EQ(cells, (std::vector{hex(diverging_colour(0)), hex(diverging_colour(0.5)), hex(diverging_colour(0.75))}));
  EXPECT_THAT(marks, testing::Contains(hex(diverging_colour(0.005))));
  EXPECT_THAT(marks, testing::Contains(hex(diverging_colour(0.995))));
  EXPECT_FALSE(png_heat_map({map_of(values)}, "").empty());
}

// What is below 0 is strokes, so that signs are read without colours and without numbers.
TEST(Diverging, InTheTerminalSignsAreSeen) {
  const Tensor values = Tensor::from({6}, {-2, -1, 0, 1, 2, NAN});
  TokenStrip strip{.tokens = {"a", "b", "c", "d", "e", "f"}, .values = values, .scale = PictureScale::diverging};
  EXPECT_EQ(terminal_token_strip(strip, {}),
            "≡a -b  c ▒d █e ╱f\n"
            "-2 │≡≡==--···  ░░░▒▒▓▓██│ 2  ╱╱ no value\n");
  const std::string colour = terminal_token_strip(strip, {.colour = true});
  for (const double place : {0.0, 0.5, 1.0}) {
    const Colour c = diverging_colour(place);
    EXPECT_THAT(colour, HasSubstr(fmt::format("48;2;{};{};{}m", c.red, c.green, c.blue)));
  }
  Tensor many({1, 60});
  for (std::int64_t n = 0; n < 60; ++n) many.data<float>()[n] = n < 30 ? -1.0F : 1.0F;
  EXPECT_THAT(terminal_heat_map(map_of(many), {}), HasSubstr(fmt::format("│{:≡>30}{:█>30}│", "", "")));
}

}  // namespace
}  // namespace attend
