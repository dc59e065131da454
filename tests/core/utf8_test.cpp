#include "core/utf8.h"

#include "tests/expect.h"

namespace attend {
namespace {

TEST(Utf8, EveryCodePointRoundTrips) {
  std::u32string all;
  for (char32_t point = 0; point <= 0x10ffff; ++point) {
    if (point < 0xd800 || point >= 0xe000) all.push_back(point);
  }
  EXPECT_EQ(decode_utf8(encode_utf8(all), "text"), all);
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
        ErrorCode::bad_value, [&] { decode_utf8(text, "the sentence"); }, "the sentence is not UTF-8", place);
  }
}

}  // namespace
}  // namespace attend
