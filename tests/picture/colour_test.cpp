#include "picture/colour.h"

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
