#include "picture/colour.h"

#include "core/utf8.h"
#include "picture/ticks.h"
#include "tests/expect.h"

namespace attend {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double inf = std::numeric_limits<double>::infinity();

HeatMap map_of(const Tensor& values, double low = 0, double high = 0) {
  HeatMap map;
  map.values = values;
  map.low = low;
  map.high = high;
  return map;
}

TEST(Colour, RampHasItsAnchors) {
  EXPECT_EQ(ramp_colour(0), (Colour{0xfc, 0xfb, 0xec}));
  EXPECT_EQ(ramp_colour(0.5), (Colour{0x20, 0x97, 0x99}));
  EXPECT_EQ(ramp_colour(1), (Colour{0x1a, 0x14, 0x46}));
  EXPECT_EQ(ramp_colour(-3), ramp_colour(0));
  EXPECT_EQ(ramp_colour(inf), ramp_colour(1));
  EXPECT_EQ(ramp_colour(nan), nan_colour);
}

TEST(Colour, RampDarkensAtEveryStepAndTextIsReadable) {
  for (int i = 0; i <= 256; ++i) {
    const Colour here = ramp_colour(i / 256.0);
    EXPECT_GE(contrast(here, text_colour(here)), 4.5) << i;
    if (i < 4) continue;  // a single step may be lost in the rounding to bytes
    EXPECT_LT(contrast(here, black), contrast(ramp_colour((i - 4) / 256.0), black)) << i;
  }
  EXPECT_EQ(text_colour(ramp_colour(0)), black);
  EXPECT_EQ(text_colour(ramp_colour(1)), white);
  EXPECT_NEAR(contrast(black, white), 21, 1e-12);
  EXPECT_GE(contrast(nan_colour, text_colour(nan_colour)), 4.5);
}

TEST(Colour, ScaleTakesItsOpenEndsFromTheValues) {
  const auto scale_of = [](const HeatMap& map) { return colour_scale(std::span(&map, 1), "test"); };
  const Tensor weights = Tensor::from({1, 3}, {0.25F, 0.5F, 0.125F});
  EXPECT_EQ(scale_of(map_of(weights)).low, 0);
  EXPECT_EQ(scale_of(map_of(weights)).high, 0.5);
  EXPECT_EQ(scale_of(map_of(weights, -1, 2)).low, -1);
  EXPECT_EQ(scale_of(map_of(weights, -1, 2)).high, 2);

  const Tensor scores = Tensor::from({1, 4}, {-3, -1, INFINITY, NAN});
  EXPECT_EQ(scale_of(map_of(scores)).low, -3);
  EXPECT_EQ(scale_of(map_of(scores)).high, -1);
  for (const float lone : {0.0F, NAN}) {
    const Tensor flat = Tensor::from({1, 1}, {lone});
    EXPECT_EQ(scale_of(map_of(flat)).low, 0);
    EXPECT_EQ(scale_of(map_of(flat)).high, 1);
  }
  const HeatMap both[] = {map_of(weights), map_of(scores, -0.5, 0.75)};
  EXPECT_EQ(colour_scale(both, "test").low, -0.5);
  EXPECT_EQ(colour_scale(both, "test").high, 0.75);
}

TEST(Colour, PlaceIsLinearAndClamped) {
  const ColourScale scale{-1, 3};
  EXPECT_EQ(scale.place(-1), 0);
  EXPECT_EQ(scale.place(0), 0.25);
  EXPECT_EQ(scale.place(3), 1);
  EXPECT_EQ(scale.place(-inf), 0);
  EXPECT_EQ(scale.place(inf), 1);
  EXPECT_TRUE(std::isnan(scale.place(nan)));
  EXPECT_EQ((ColourScale{-1e308, 1e308}.place(0)), 0.5);
}

TEST(Colour, SquareRootsAndLogarithmsSpreadSmallValues) {
  const ColourScale root{0, 4, PictureScale::sqrt};
  EXPECT_EQ(root.place(0), 0);
  EXPECT_EQ(root.place(1), 0.5);
  EXPECT_EQ(root.place(4), 1);
  EXPECT_EQ(root.place(9), 1);
  EXPECT_DOUBLE_EQ((ColourScale{1, 9, PictureScale::sqrt}.place(4)), 0.5);
  const ColourScale decades{1e-4, 1, PictureScale::log};
  EXPECT_EQ(decades.place(0), 0);
  EXPECT_EQ(decades.place(1e-5), 0);
  EXPECT_DOUBLE_EQ(decades.place(1e-3), 0.25);
  EXPECT_DOUBLE_EQ(decades.place(1e-1), 0.75);
  EXPECT_TRUE(std::isnan(decades.place(nan)));
  EXPECT_EQ(decades.place(inf), 1);
}

// The power of ten from three to four decades below the largest value, unless low says otherwise.
TEST(Colour, ALogarithmBeginsAtARoundFloor) {
  const auto floor_of = [](float high, double low = 0) {
    const Tensor values = Tensor::from({1, 2}, {0, high});
    HeatMap map = map_of(values, low, low == 0 ? 0 : 1);
    map.scale = PictureScale::log;
    return colour_scale(std::span(&map, 1), "test").low;
  };
  EXPECT_DOUBLE_EQ(floor_of(1), 1e-4);
  EXPECT_DOUBLE_EQ(floor_of(0.11F), 1e-4);
  EXPECT_DOUBLE_EQ(floor_of(0.09F), 1e-5);
  EXPECT_DOUBLE_EQ(floor_of(5000), 1);
  EXPECT_EQ(floor_of(1, 0.25), 0.25);
  EXPECT_DOUBLE_EQ(floor_of(0), 1e-4);  // no value above 0: the scale ends at 1
}

TEST(Colour, TicksAreRoundApartAndOnTheScale) {
  const auto texts_of = [](const ColourScale& scale) {
    std::vector<std::string> texts;
    for (const Tick& tick : ticks_of(scale)) texts.push_back(encode_utf8(tick.text));
    return texts;
  };
  using Strings = std::vector<std::string>;
  EXPECT_EQ(texts_of({0, 1, PictureScale::sqrt}), (Strings{"0", "0.02", "0.1", "0.2", "0.5", "1"}));
  EXPECT_EQ(texts_of({1e-4, 1, PictureScale::log}), (Strings{"≤ 0.0001", "0.001", "0.01", "0.1", "1"}));
  EXPECT_EQ(texts_of({0, 1}), (Strings{"0.0", "0.2", "0.4", "0.6", "0.8", "1.0"}));
  for (const PictureScale kind : {PictureScale::sqrt, PictureScale::log}) {
    for (const double high : {1e-300, 3e-9, 0.07, 0.11, 0.73, 1.0, 7.0, 5e11, 1e308}) {
      for (const double low : {1e-4 * high, 0.5 * high}) {
        const ColourScale scale{low, high, kind};
        const std::vector<Tick> ticks = ticks_of(scale);
        EXPECT_GE(ticks.size(), 1U);
        EXPECT_LE(ticks.size(), 8U);
        for (std::size_t i = 1; i < ticks.size(); ++i) {
          EXPECT_GE(scale.place(ticks[i].value) - scale.place(ticks[i - 1].value), 0.13) << high;
          EXPECT_LE(ticks[i].value, high * (1 + 1e-9));
        }
      }
    }
  }
}

TEST(Colour, ScaleHasOneKindOfAName) {
  for (const PictureScale kind : {PictureScale::linear, PictureScale::sqrt, PictureScale::log})
    EXPECT_EQ(picture_scale(name_of(kind)), kind);
  test::expect_error(
      ErrorCode::bad_value, [] { (void)picture_scale("cubic"); },
      "picture_scale: scale: expected 'linear', 'sqrt', 'log' or 'diverging', got 'cubic'");
  const Tensor one = Tensor::from({1, 1}, {1});
  HeatMap both[] = {map_of(one), map_of(one)};
  both[1].scale = PictureScale::log;
  test::expect_error(
      ErrorCode::bad_value, [&] { colour_scale(both, "svg_heat_map"); },
      "svg_heat_map: one map has the scale linear, another log: they share one");
}

TEST(Colour, ScaleRefusesEndsThatMakeNoRange) {
  const Tensor one = Tensor::from({1, 1}, {1});
  for (const auto& [low, high] : {std::pair(1.0, 0.5), std::pair(0.0, inf), std::pair(nan, 1.0)}) {
    const HeatMap map = map_of(one, low, high);
    test::expect_error(
        ErrorCode::bad_value, [&] { colour_scale(std::span(&map, 1), "svg_heat_map"); },
        "svg_heat_map: expected finite low <= high");
  }
}

}  // namespace
}  // namespace attend
