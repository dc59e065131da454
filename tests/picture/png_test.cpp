#include <png.h>
#include <zlib.h>

#include <cstdlib>
#include <fstream>
#include <optional>
#include <set>
#include <thread>

#include "picture/layout.h"
#include "picture/png_file.h"
#include "tests/allocations.h"
#include "tests/expect.h"
#include "tests/picture/sample.h"

extern "C" {
extern const char attend_font_begin[];
extern const char attend_font_end[];
}

namespace attend {
namespace {

using test::heat_map;
using test::words;

Pixels decode(const std::string& file) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  if (png_image_begin_read_from_memory(&image, file.data(), file.size()) == 0) {
    ADD_FAILURE() << image.message;
    return {};
  }
  image.format = PNG_FORMAT_RGB;
  Pixels pixels{static_cast<int>(image.width), static_cast<int>(image.height), {}};
  pixels.colours.resize(static_cast<std::size_t>(image.width) * image.height);
  EXPECT_NE(png_image_finish_read(&image, nullptr, pixels.colours.data(), 0, nullptr), 0) << image.message;
  return pixels;
}

// The content of the first chunk of this type; each chunk's checksum must be right.
std::optional<std::string> chunk(const std::string& file, const std::string& type) {
  const auto number = [&](std::size_t at) {
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(file[at + i]);
    return value;
  };
  for (std::size_t at = 8; at < file.size();) {
    const std::uint32_t size = number(at);
    const auto* bytes = reinterpret_cast<const Bytef*>(file.data() + at + 4);
    EXPECT_EQ(crc32(0, bytes, size + 4), number(at + 8 + size));
    if (file.substr(at + 4, 4) == type) return file.substr(at + 8, size);
    at += 12 + size;
  }
  return std::nullopt;
}

Colour pixel(const Pixels& pixels, double x, double y) {
  return pixels.colours[static_cast<std::size_t>(y * 2) * static_cast<std::size_t>(pixels.width) +
                        static_cast<std::size_t>(x * 2)];
}

struct Case {
  std::vector<HeatMap> maps;
  std::string title;
};

// Every cell has exactly its colour a little inside its corner, where no number stands.
void expect_cells(const Case& c) {
  const Font font;
  const Layout layout = lay_out(c.maps, c.title, font, "test");
  const Pixels pixels = decode(png_heat_map(c.maps, c.title));
  EXPECT_EQ(pixels.width, static_cast<int>(std::ceil(2 * layout.width)));
  EXPECT_EQ(pixels.height, static_cast<int>(std::ceil(2 * layout.height)));
  for (const Cell& cell : layout.cells) {
    if (cell.hatched) continue;
    EXPECT_EQ(pixel(pixels, cell.area.x + 1, cell.area.y + 1), cell.colour);
    EXPECT_EQ(pixel(pixels, cell.area.x + cell.area.width - 1, cell.area.y + cell.area.height - 1), cell.colour);
  }
}

TEST(PngHeatMap, CellsHaveTheirColours) {
  const Tensor square = test::ramp(6, 6);
  const Tensor one = test::ramp(1, 1);
  const Tensor wide = test::ramp(2, 7);
  const Tensor many = test::ramp(64, 64);
  expect_cells({{heat_map(square, words, words)}, "Life is short eat dessert first"});
  expect_cells({{heat_map(one)}, ""});
  expect_cells({{heat_map(wide)}, "2 x 7"});
  expect_cells({{heat_map(many)}, "64 x 64"});
  expect_cells({std::vector<HeatMap>(16, heat_map(square, words, words)), "16 heads"});
  expect_cells({{heat_map(square), heat_map(wide), heat_map(one)}, "mixed"});
}

TEST(PngHeatMap, LargeMapsAreMeansOfBlocks) {
  const std::int64_t side = 600;
  Tensor values({side, side});
  // Blocks of 2 x 2 whose mean is 0 or 1, and none of whose values is.
  for (std::int64_t i = 0; i < side * side; ++i) {
    const bool right = i % side >= side / 2;
    values.data<float>()[i] = (right ? 1.0f : 0.0f) + (i % 2 == 0 ? 0.5f : -0.5f);
  }
  const Font font;
  const std::vector<HeatMap> maps = {heat_map(values)};
  const Layout layout = lay_out(maps, "", font, "test");
  ASSERT_EQ(layout.images.size(), 1u);
  EXPECT_EQ(layout.images[0].columns % 300, 0);
  const Rect& area = layout.images[0].area;
  const Pixels pixels = decode(png_heat_map(maps, ""));
  EXPECT_EQ(pixel(pixels, area.x, area.y), ramp_colour(0));
  EXPECT_EQ(pixel(pixels, area.x + area.width / 2 - 1, area.y + area.height - 1), ramp_colour(0));
  EXPECT_EQ(pixel(pixels, area.x + area.width / 2 + 1, area.y), ramp_colour(1));
  EXPECT_EQ(pixel(pixels, area.x + area.width - 1, area.y + area.height - 1), ramp_colour(1));
}

TEST(PngHeatMap, MasksAreLeftOutOfMeans) {
  Tensor values({1024, 2});
  for (std::int64_t i = 0; i < values.count(); ++i) {
    values.data<float>()[i] = i % 4 < 2 ? -INFINITY : i < 1024 ? NAN : 1.0f;
  }
  const Font font;
  const std::vector<HeatMap> maps = {heat_map(values)};
  const Layout layout = lay_out(maps, "", font, "test");
  const std::vector<Colour>& shown = layout.images[0].pixels;
  EXPECT_EQ(layout.images[0].rows % 512, 0);
  EXPECT_EQ(shown.back(), ramp_colour(1));
  EXPECT_EQ(shown.front(), nan_colour);
  // Blocks that are hidden as a whole are hatched, those that are hidden in part are not.
  HeatMap causal = heat_map(values);
  const Tensor zeros({600, 600});
  causal.values = zeros;
  causal.visible = [](std::int64_t row, std::int64_t column) { return column <= row; };
  const Image image = lay_out({causal}, "", font, "test").images[0];
  const int cell = image.columns / 300;
  for (int y = 0; y < image.rows; ++y) {
    for (int x = 0; x < image.columns; ++x) {
      const Colour colour = image.pixels[static_cast<std::size_t>(y) * static_cast<std::size_t>(image.columns) +
                                         static_cast<std::size_t>(x)];
      // Lines of two pixels, which are one of CSS, whatever the size of a cell.
      const Colour hatched = (x + y) % 12 < 2 ? hatch_colour : Colour{0xee, 0xee, 0xee};
      ASSERT_EQ(colour, x / cell <= y / cell ? ramp_colour(0) : hatched) << x << ", " << y;
    }
  }
}

TEST(PngHeatMap, SaysWhatItIs) {
  const Tensor values = test::ramp(6, 6);
  const std::string plain = png_heat_map({heat_map(values, words, words)}, "Life is short");
  EXPECT_LT(plain.size(), 100u * 1024);
  EXPECT_EQ(chunk(plain, "tEXt"), std::string("Title\0Life is short", 19));
  EXPECT_EQ(chunk(plain, "sRGB"), std::string("\0", 1));
  EXPECT_EQ(chunk(plain, "pHYs"), std::string("\0\0\x1d\x87\0\0\x1d\x87\1", 9));
  const std::string chinese = png_heat_map({heat_map(values)}, "注意力");
  EXPECT_EQ(chunk(chinese, "iTXt"), std::string("Title\0\0\0\0\0", 10) + "注意力");
  const std::string untitled = png_heat_map({heat_map(values)}, "");
  EXPECT_EQ(chunk(untitled, "tEXt"), std::nullopt);
  EXPECT_EQ(chunk(untitled, "iTXt"), std::nullopt);
}

TEST(PngHeatMap, TextIsDrawnInsideItsPlace) {
  const Tensor values = test::ramp(2, 2);
  const Font font;
  for (const std::string label : {"word", "注意力", "👩‍💻", "a much longer label that must be cut"}) {
    const std::vector<HeatMap> maps = {heat_map(values, {label, label}, {label, label})};
    const Layout layout = lay_out(maps, "title", font, "test");
    const Pixels pixels = decode(png_heat_map(maps, "title"));
    for (const Text& text : layout.texts) {
      if (text.degrees != 0) continue;
      const double width = font.width(text.text, text.size);
      const double left = text.x - (text.anchor == Anchor::start ? 0 : text.anchor == Anchor::end ? width : width / 2);
      EXPECT_GE(left, 0);
      EXPECT_LE(left + width, layout.width);
      std::set<int> reds;
      for (double x = left; x < left + width; x += 0.5) {
        for (double y = text.y - text.size * 0.7; y < text.y; y += 0.5) reds.insert(pixel(pixels, x, y).red);
      }
      EXPECT_GT(reds.size(), 2u) << "nothing antialiased at " << left << ", " << text.y;
    }
  }
}

TEST(PngHeatMap, OddLabelsAndNaN) {
  const std::vector<std::string> labels = test::odd_labels();
  Tensor values = test::ramp(8, 8);
  values.data<float>()[9] = -INFINITY;
  const std::vector<HeatMap> maps = {heat_map(values, labels, labels)};
  expect_cells({maps, std::string(1000, 'm')});
  const Font font;
  const Cell masked = lay_out(maps, "", font, "test").cells[9];
  const Pixels pixels = decode(png_heat_map(maps, ""));
  std::set<int> reds;
  for (double x = 0; x < masked.area.width; x += 0.5) reds.insert(pixel(pixels, masked.area.x + x, masked.area.y).red);
  EXPECT_TRUE(reds.contains(masked.colour.red));
  EXPECT_TRUE(reds.contains(hatch_colour.red));
}

TEST(PngHeatMap, SaysWhichCharactersAreMissing) {
  EXPECT_EQ(missing_characters("Life, naïve to₅ e\u0301 \u200d\n"), "");
  EXPECT_EQ(missing_characters("a注意力b注"), "注意力");
}

TEST(PngHeatMap, TheSameBytesFromAnyThread) {
  const Tensor values = test::ramp(6, 6);
  const std::vector<HeatMap> maps = {heat_map(values, words, words)};
  const std::string expected = png_heat_map(maps, "title");
  EXPECT_EQ(png_heat_map(maps, "title"), expected);
  std::vector<std::string> drawn(4);
  std::vector<std::thread> threads;
  for (std::string& bytes : drawn) threads.emplace_back([&] { bytes = png_heat_map(maps, "title"); });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& bytes : drawn) EXPECT_EQ(bytes, expected);
}

// ATTEND_FONT for the length of a scope.
class OtherFont {
 public:
  explicit OtherFont(const std::string& path) { setenv("ATTEND_FONT", path.c_str(), 1); }
  ~OtherFont() { unsetenv("ATTEND_FONT"); }
};

TEST(PngHeatMap, TakesAnotherFont) {
  const Tensor values = test::ramp(6, 6);
  const std::vector<HeatMap> maps = {heat_map(values, words, words)};
  const std::string expected = png_heat_map(maps, "title");
  const std::filesystem::path folder = testing::TempDir();
  const std::string copy = folder / "attend_copy.ttf";
  std::ofstream(copy, std::ios::binary).write(attend_font_begin, attend_font_end - attend_font_begin);
  {
    const OtherFont font(copy);
    EXPECT_EQ(png_heat_map(maps, "title"), expected);
  }
  std::ofstream(copy, std::ios::binary | std::ios::trunc).write(attend_font_begin, 1000);
  for (const std::string& path : {copy, std::string(folder), (folder / "no such font.ttf").string()}) {
    const OtherFont font(path);
    test::expect_error(
        ErrorCode::bad_file, [&] { png_heat_map(maps, "title"); }, path);
    EXPECT_NO_THROW(svg_heat_map(maps, "title"));
  }
  std::filesystem::remove(copy);
}

TEST(PngFile, RefusesASizeThatPngCanNotHold) {
  test::expect_error(
      ErrorCode::bad_value,
      [] {
        encode_png({0, 0, {}}, "", 0);
      },
      "0 x 0");
}

// Of libpng and zlib too.
TEST(PngFile, EveryAllocationMayFail) {
  const Tensor values = test::ramp(6, 6);
  const std::vector<HeatMap> map = {heat_map(values, words, words)};
  const std::string expected = png_heat_map(map, "a title");
  std::int64_t n = 0;
  for (bool failed = true; failed; ++n) {
    test::CountAllocations fail(n);
    try {
      EXPECT_EQ(png_heat_map(map, "a title"), expected);
    } catch (const Error& error) {
      EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(ErrorCode::out_of_memory)) << n << error.what();
    } catch (const std::bad_alloc&) {  // of a short string or list
    }
    failed = fail.failed();
  }
  EXPECT_GT(n, 10);
}

TEST(PngFile, KeepsEveryPixel) {
  Pixels pixels{5, 3, {}};
  for (std::uint8_t i = 0; i < 15; ++i) pixels.colours.push_back({i, static_cast<std::uint8_t>(255 - i), 7});
  EXPECT_EQ(decode(encode_png(pixels, "", 0)).colours, pixels.colours);
}

}  // namespace
}  // namespace attend
