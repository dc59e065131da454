#include "core/utf8.h"

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "tests/expect.h"

namespace attend {
namespace {

TEST(Utf8, EveryCodePointRoundTrips) {
  std::u32string all;
  for (char32_t point = 0; point <= 0x10ffff; ++point) {
    if (point < 0xd800 || point >= 0xe000) all.push_back(point);
  }
  EXPECT_EQ(decode_utf8(encode_utf8(all), {"", "text"}), all);
}

TEST(Utf8, NamesTheBadByte) {
  using namespace std::string_literals;
  const std::pair<std::string, const char*> cases[] = {
      {"ab\xff", "byte 2 is 0xff"},
      {"a\x80", "byte 1 is 0x80"},  // a stray continuation
      {"\xc3", "byte 0 is 0xc3"},
      {"\xe2\x82", "byte 0"},  // cut short
      {"\xc3(", "byte 0"},
      {"\xc0\x80"s, "byte 0"},  // no continuation; overlong
      {"\xe0\x80\xaf", "byte 0"},
      {"\xed\xa0\x80", "byte 0"},  // overlong; a surrogate
      {"\xf4\x90\x80\x80", "byte 0 is 0xf4"},
      {"\xf8\x88\x80\x80\x80", "0xf8"},  // beyond U+10FFFF; five bytes
  };
  for (const auto& [text, place] : cases) {
    test::expect_error(
        ErrorCode::bad_value,
        [&text = text] {
          decode_utf8(text, {"", "the sentence"});
        },
        "the sentence is not UTF-8", place);
  }
}

TEST(DisplayWidth, EveryCharacterAsPythonsUnicodeDatabaseSays) {
  std::ifstream file(test::data("golden/widths.json"));
  using Characters = std::istreambuf_iterator<char>;
  const nlohmann::json golden = nlohmann::json::parse(Characters(file), Characters());
  int characters = 0;
  for (const nlohmann::json& run : golden["runs"]) {
    for (char32_t point = run[0].get<char32_t>(); point <= run[1].get<char32_t>(); ++point, ++characters)
      ASSERT_EQ(display_width({&point, 1}), run[2].get<int>()) << "U+" << std::hex << std::uint32_t{point};
  }
  EXPECT_GT(characters, 140000);
}

TEST(DisplayWidth, OfTexts) {
  EXPECT_EQ(display_width(U""), 0);
  EXPECT_EQ(display_width(U"attention"), 9);
  EXPECT_EQ(display_width(U"注意力"), 6);
  EXPECT_EQ(display_width(U"e\u0301té"), 3);
  EXPECT_EQ(display_width(U"한국어 \u1112\u1161\u11ab"), 9);  // composed and conjoining Hangul
  EXPECT_EQ(display_width(U"🇩🇪👍🏽"), 6);
  EXPECT_EQ(display_width(U"…░▒▓█→↓│"), 8);
}

TEST(DisplayWidth, TextIsCutToColumns) {
  EXPECT_EQ(fit_to_columns(U"dessert", 7), U"dessert");
  EXPECT_EQ(fit_to_columns(U"dessert", 6), U"desse…");
  EXPECT_EQ(fit_to_columns(U"dessert", 1), U"…");
  EXPECT_EQ(fit_to_columns(U"dessert", 0), U"");
  EXPECT_EQ(fit_to_columns(U"", 0), U"");
  EXPECT_EQ(fit_to_columns(U"注意力", 6), U"注意力");
  EXPECT_EQ(fit_to_columns(U"注意力", 5), U"注意…");
  EXPECT_EQ(fit_to_columns(U"注意力", 4), U"注…");  // half a character is none
  EXPECT_EQ(fit_to_columns(U"e\u0301e\u0301e\u0301", 3), U"e\u0301e\u0301e\u0301");
  EXPECT_EQ(fit_to_columns(U"e\u0301e\u0301e\u0301", 2), U"e\u0301…");
}

}  // namespace
}  // namespace attend
