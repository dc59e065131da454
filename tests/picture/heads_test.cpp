// Maps of many heads: of one array, and as a grid of thumbnails.
#include <gmock/gmock.h>

#include "picture/layout.h"
#include "tests/expect.h"
#include "tests/picture/sample.h"
#include "tests/picture/xml.h"

namespace attend {
namespace {

using test::Element;
using test::texts_of;
using test::Xml;

TEST(HeatMaps, OneForEachHeadOfAnArray) {
  const Tensor weights = test::ramp(1, 2 * 3 * 4).view().reshape({1, 2, 3, 4}).clone();
  const std::vector<HeatMap> maps = heat_maps(weights);
  ASSERT_EQ(maps.size(), 2U);
  EXPECT_EQ(maps[1].title, "head 1");
  EXPECT_EQ(maps[1].values.shape(), (Dims{3, 4}));
  EXPECT_EQ(maps[1].values.item({2, 3}), weights.view().item({0, 1, 2, 3}));
  EXPECT_EQ(heat_maps(weights, {}, {}, {"a", "b"})[0].title, "a");
  const Tensor one = test::ramp(3, 4);
  HeatMap like;
  like.title = "mine";
  like.scale = PictureScale::log;
  const std::vector<HeatMap> single = heat_maps(one, like);
  ASSERT_EQ(single.size(), 1U);
  EXPECT_EQ(single[0].title, "mine");
  EXPECT_EQ(single[0].scale, PictureScale::log);
}

TEST(HeatMaps, MasksBroadcastAndNanIsHidden) {
  Tensor weights = test::ramp(1, 2 * 2 * 2).view().reshape({2, 2, 2}).clone();
  weights.data<float>()[4] = NAN;
  Tensor mask({2, 2}, DType::boolean);
  mask.data<bool>()[0] = mask.data<bool>()[2] = mask.data<bool>()[3] = true;
  const std::vector<HeatMap> maps = heat_maps(weights, {}, mask);
  for (const HeatMap& map : maps) {
    EXPECT_TRUE(map.visible(1, 0));
    EXPECT_FALSE(map.visible(0, 1));
  }
  std::vector<std::string> fills;
  for (const Element& rect : Xml(svg_heat_map(maps, "")).named("rect")) {
    if (rect.attributes.contains("class")) fills.push_back(rect.attributes.at("fill"));
  }
  ASSERT_EQ(fills.size(), 9U);  // with the sign
  for (const std::size_t hidden : {1U, 4U, 5U, 8U}) EXPECT_EQ(fills[hidden], "#eeeeee") << hidden;
  for (const std::size_t seen : {0U, 2U, 3U, 6U, 7U}) EXPECT_NE(fills[seen], "#eeeeee") << seen;
  // Turned: the mask's own strides.
  EXPECT_FALSE(heat_maps(weights, {}, mask.view().transpose(0, 1))[0].visible(1, 0));

  test::expect_error(
      ErrorCode::bad_shape,
      [&] {
        heat_maps(weights, {}, Tensor({3, 2}, DType::boolean).view());
      },
      "heat_maps: mask [3,2] does not broadcast to weights [2,2,2]");
  test::expect_error(
      ErrorCode::bad_dtype, [&] { heat_maps(weights, {}, weights.view()); }, "heat_maps: mask is f32, expected bool");
  test::expect_error(
      ErrorCode::bad_shape,
      [&] {
        heat_maps(Tensor({2, 2, 2, 2}));
      },
      "[2,2,2,2], expected [Tq,Tk] or [H,Tq,Tk]");
  test::expect_error(
      ErrorCode::bad_shape, [&] { heat_maps(Tensor({3})); }, "[3], expected");
  test::expect_error(
      ErrorCode::bad_shape,
      [&] {
        heat_maps(Tensor({0, 3, 3}));
      },
      "expected a head");
  test::expect_error(
      ErrorCode::bad_shape, [&] { heat_maps(weights, {}, {}, {"a"}); }, "1 titles for 2 heads");
}

HeadGrid grid_of(const Tensor& values, std::size_t maps, std::int64_t columns) {
  HeadGrid grid;
  HeatMap map;
  map.values = values;
  grid.maps.assign(maps, map);
  grid.columns = columns;
  return grid;
}

TEST(HeadGrid, ARowForEachLayerAndAColumnForEachHead) {
  const Tensor values = test::ramp(8, 8);
  HeadGrid grid = grid_of(values, 6, 3);
  grid.title = "Two & three";
  grid.row_labels = {"<one>", "two"};
  const Xml svg(svg_head_grid(grid));
  const std::vector<Element> images = svg.named("image");
  ASSERT_EQ(images.size(), 6U);
  EXPECT_EQ(images[0].attributes.at("y"), images[2].attributes.at("y"));
  EXPECT_EQ(images[0].attributes.at("x"), images[3].attributes.at("x"));
  EXPECT_NE(images[0].attributes.at("y"), images[3].attributes.at("y"));
  for (const char* text : {"<one>", "two", "0", "1", "2", "layers", "heads", "Two & three"})
    EXPECT_THAT(texts_of(svg), testing::Contains(text));
  EXPECT_EQ(svg.named("desc")[0].text, "2 x 3 heat maps (layers x heads), colours from 0.0000 to 0.9844.");
  EXPECT_EQ(svg_head_grid(grid), svg_head_grid(grid));
  EXPECT_EQ(png_head_grid(grid), png_head_grid(grid));
}

TEST(HeadGrid, ThumbnailsShareAScaleAndHaveWholePixels) {
  Tensor low = test::ramp(5, 5), high = test::ramp(5, 5);
  low.data<float>()[0] = NAN;
  for (std::int64_t i = 0; i < 25; ++i) high.data<float>()[i] *= 10;
  HeadGrid grid = grid_of(low, 2, 2);
  grid.maps[0].nan_is_hidden = true;
  grid.maps[1].values = high;
  const Font font;
  const Layout layout = lay_out(grid, font, "test");
  const Image& first = layout.images[0];
  EXPECT_EQ(first.columns % 5, 0);
  EXPECT_EQ(first.area.width * 2, first.columns);
  const int cell = first.columns / 5;
  // The last value, 0.96, is a tenth of the scale's end.
  EXPECT_EQ(first.pixels.back(), ramp_colour(0.1));
  EXPECT_EQ(layout.images[1].pixels.back(), ramp_colour(1));
  EXPECT_TRUE(first.pixels[static_cast<std::size_t>(cell / 2)] == Colour({0xee, 0xee, 0xee}) ||
              first.pixels[static_cast<std::size_t>(cell / 2)] == hatch_colour);
  EXPECT_THAT(texts_of(Xml(svg_head_grid(grid))), testing::Contains("hidden"));
}

TEST(HeadGrid, AnyShapeHasAPlace) {
  for (const auto& [rows, columns] : {std::pair(1, 1), {1, 600}, {600, 1}, {65, 65}, {129, 130}, {700, 700}}) {
    const Tensor values = test::ramp(rows, columns);
    const HeadGrid grid = grid_of(values, 9 * 4, 9);
    const Xml svg(svg_head_grid(grid));
    for (const Element& image : svg.named("image")) {
      EXPECT_GE(std::stod(image.attributes.at("width")), 12) << rows;
      EXPECT_GE(std::stod(image.attributes.at("height")), 12) << rows;
      EXPECT_LE(std::stod(image.attributes.at("width")), 96) << rows;
      EXPECT_LE(std::stod(image.attributes.at("height")), 96) << rows;
    }
    const bool averaged = std::max(rows, columns) > 128;
    bool said = false;
    for (const std::string& text : texts_of(svg)) said |= text.starts_with("Each point is the mean of");
    EXPECT_EQ(said, averaged) << rows;
  }
}

TEST(HeadGrid, Errors) {
  const Tensor values = test::ramp(2, 2);
  const auto expect = [](ErrorCode code, const HeadGrid& grid, const std::string& text) {
    test::expect_error(
        code, [&] { (void)svg_head_grid(grid); }, "svg_head_grid: ", text);
    test::expect_error(
        code, [&] { (void)png_head_grid(grid); }, "png_head_grid: ", text);
  };
  expect(ErrorCode::bad_value, {}, "no maps");
  expect(ErrorCode::bad_shape, grid_of(values, 5, 3), "5 maps are no rows of 3 columns");
  expect(ErrorCode::bad_shape, grid_of(values, 5, 0), "5 maps are no rows of 0 columns");
  HeadGrid grid = grid_of(values, 4, 2);
  grid.row_labels = {"a"};
  expect(ErrorCode::bad_shape, grid, "1 row labels for 2 rows of maps");
  grid.row_labels = {"a", "\xff"};
  expect(ErrorCode::bad_value, grid, "row_labels is not UTF-8");
  grid.row_labels = {};
  const Tensor empty({0, 2});
  grid.maps[3].values = empty;
  expect(ErrorCode::bad_shape, grid, "maps[3]: values have shape [0,2]");
  grid.maps[3].values = values;
  grid.maps[3].scale = PictureScale::log;
  expect(ErrorCode::bad_value, grid, "one map has the scale linear, another log");
}

}  // namespace
}  // namespace attend
