#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "core/utf8.h"
#include "tests/expect.h"

namespace attend {
namespace {

using Strings = std::vector<std::string>;

const nlohmann::json& golden() {
  static const nlohmann::json data = nlohmann::json::parse(std::ifstream(test::data("golden/words.json")));
  return data;
}

TEST(Words, SplitAndSortAsPython) {
  ASSERT_GE(golden()["cases"].size(), 26);
  for (const nlohmann::json& one : golden()["cases"]) {
    const std::string text = one["text"];
    const Strings tokens = split_words(text);
    EXPECT_EQ(tokens, one["tokens"].get<Strings>()) << text;
    EXPECT_EQ(Vocabulary(tokens).words(), one["vocabulary"].get<Strings>()) << text;
  }
}

TEST(Words, WhiteSpaceIsPythons) {
  std::vector<std::uint32_t> found;
  for (char32_t point = 0; point <= 0x10ffff; ++point) {
    if (point >= 0xd800 && point < 0xe000) continue;
    if (split_words(encode_utf8(std::u32string{U'a', point, U'b'})).size() == 2) found.push_back(point);
  }
  EXPECT_EQ(found, golden()["white_space"].get<std::vector<std::uint32_t>>());
}

TEST(Words, AByteOrderMarkAtTheStartIsDropped) {
  EXPECT_EQ(split_words("\xef\xbb\xbf"
                        "a b"),
            (Strings{"a", "b"}));
  EXPECT_EQ(split_words("a \xef\xbb\xbf"
                        "b"),
            (Strings{"a",
                     "\xef\xbb\xbf"
                     "b"}));
}

TEST(Words, RefusesTextThatIsNotUtf8) {
  test::expect_error(
      ErrorCode::bad_value, [] { split_words("caf\xe9 au lait"); }, "split_words", "byte 3 is 0xe9");
}

TEST(Words, IdsArePlacesInTheVocabulary) {
  const Strings tokens = split_words("Life is short, eat dessert first");
  const Vocabulary vocabulary(tokens);
  EXPECT_EQ(vocabulary.size(), 6);
  EXPECT_EQ(vocabulary.ids(tokens), (std::vector<std::int64_t>{0, 4, 5, 2, 1, 3}));
  EXPECT_TRUE(vocabulary.ids({}).empty());
}

TEST(Words, AnUnknownWordIsNamed) {
  const Vocabulary vocabulary(split_words("to be or not"));
  for (const std::string word : {"zzz", "", "bee", "a"}) {
    const Strings tokens = {"to", word};
    test::expect_error(
        ErrorCode::bad_value, [&] { (void)vocabulary.ids(tokens); }, "\"" + word + "\"", "4 words");
  }
  const Strings tokens = {"to"};
  test::expect_error(
      ErrorCode::bad_value, [&] { (void)Vocabulary({}).ids(tokens); }, "\"to\"");
}

TEST(Words, ManyWords) {
  Strings tokens;
  for (int i = 0; i < 20000; ++i) tokens.push_back(fmt::format("w{:05d}", i * 7919 % 20000));
  const Vocabulary vocabulary(tokens);
  const std::vector<std::int64_t> ids = vocabulary.ids(tokens);
  ASSERT_EQ(vocabulary.size(), 20000);
  for (std::size_t i = 0; i < ids.size(); ++i) ASSERT_EQ(ids[i], static_cast<std::int64_t>(i * 7919 % 20000));
}

}  // namespace
}  // namespace attend
