#include <bit>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "tests/expect.h"
#include "tests/io/files.h"

namespace attend {
namespace {

using nlohmann::json;
using Ids = std::vector<std::int64_t>;

// ---- A .spm file: a message of Protocol Buffers ----

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes += static_cast<char>(value);
}

std::string number_field(int number, std::uint64_t value) {
  return varint(static_cast<std::uint64_t>(number) << 3) + varint(value);
}

std::string bytes_field(int number, const std::string& bytes) {
  return varint(static_cast<std::uint64_t>(number) << 3 | 2) + varint(bytes.size()) + bytes;
}

std::string piece(const std::string& text, float score, int type = 1) {
  std::string bytes = bytes_field(1, text) + varint(2 << 3 | 5);
  const auto bits = std::bit_cast<std::uint32_t>(score);
  for (int n = 0; n < 4; ++n) bytes += static_cast<char>(bits >> 8 * n);
  if (type != 1) bytes += number_field(3, static_cast<std::uint64_t>(type));
  return bytes_field(1, bytes);
}

std::string model() {
  return piece("<unk>", 0, 2) + piece("<s>", 0, 3) + piece("</s>", 0, 3) + piece("▁", -2) + piece("▁a", -3) +
         piece("a", -4) + piece("ab", -4.5) + piece("b", -1);
}

const json vocabulary = {{"</s>", 0}, {"<unk>", 1}, {"▁a", 2}, {"a", 3},       {"b", 4},
                         {"▁", 5},    {"ab", 6},    {"▁ö", 7}, {">>fra<<", 8}, {"<pad>", 9}};

struct Files {
  test::Folder folder;
  Files() {
    put("source.spm", model());
    put("vocab.json", vocabulary.dump());
  }
  void put(const char* name, const std::string& bytes) const { test::put(folder / name, bytes); }
  Tokenizer load() const { return Tokenizer::load(folder.path()); }
  void refuse(const std::string& said) const {
    test::expect_error(
        ErrorCode::bad_file, [&] { (void)load(); }, said);
  }
};

TEST(Marian, PiecesHaveTheVocabularysIds) {
  const Tokenizer tokenizer = Files().load();
  const Encoding found = tokenizer.encode("  ab  a?");
  EXPECT_EQ(found.ids, (Ids{2, 4, 2, 1, 0}));
  json offsets = json::array();
  for (const Range& each : found.offsets) offsets.push_back({each.begin, each.end});
  EXPECT_EQ(offsets, json::parse("[[2, 3], [3, 4], [4, 7], [7, 8], [0, 0]]"));
  EXPECT_EQ(tokenizer.decode(found.ids), "ab a");
  EXPECT_EQ(tokenizer.decode(found.ids, false), "ab a<unk> </s>");
  EXPECT_EQ(tokenizer.encode(">>fra<<a", false).ids, (Ids{8, 2}));
  EXPECT_EQ(tokenizer.encode("a</s>b", false).ids, (Ids{2, 0, 5, 4}));
  EXPECT_EQ(tokenizer.encode_pair("a", "b").ids, (Ids{2, 5, 4, 0}));
  EXPECT_EQ(tokenizer.encode("").ids, (Ids{0}));
}

// "▁ö" is no piece of the source's: decoded as it stands.
TEST(Marian, PiecesOfTheOtherLanguageStandAsTheyAre) {
  const Tokenizer tokenizer = Files().load();
  EXPECT_EQ(tokenizer.decode(Ids{7, 4, 7}), "öb ö");
  EXPECT_EQ(tokenizer.decode(Ids{0, 7, 2}, false), "</s>  ö a");
  EXPECT_EQ(tokenizer.decode(Ids{0, 2, 7}, false), "</s> a ö");
}

TEST(Marian, OneTextIsNormalisedAsTheModelSays) {
  Files files;
  files.put("source.spm", model() + bytes_field(3, number_field(3, 0) + number_field(4, 0)));
  EXPECT_EQ(files.load().encode(" b  b", false).ids, (Ids{5, 4, 5, 5, 4}));
}

// A charsmap of "a" alone (charsmap.h), for which 1,000 characters stand.
TEST(Marian, ACharsmapMayMakeTooMuchOfAText) {
  std::string map;
  const auto append = [&](std::uint32_t unit) {
    for (int n = 0; n < 4; ++n) map += static_cast<char>(unit >> 8 * n);
  };
  append(4096);
  for (std::uint32_t unit = 0; unit < 1024; ++unit)
    append(unit == 'a' ? 'a' | 1u << 8 | 512u << 10 : unit == ('a' ^ 512) ? 1u << 31 : 0);
  map += std::string(1000, 'b') + std::string(1, '\0');
  Files files;
  files.put("source.spm", model() + bytes_field(3, bytes_field(2, map)));
  const Tokenizer tokenizer = files.load();
  EXPECT_EQ(tokenizer.encode("a", false).ids.size(), 1001);
  std::string many;
  for (int n = 0; n < 1500; ++n) many += "a</s>";  // each part alone is not too much
  test::expect_error(
      ErrorCode::bad_value, [&] { (void)tokenizer.encode(many); }, "the tokenizer makes more of what it is given than");
}

TEST(Marian, WhatIsNoModelIsRefused) {
  const Files files;
  const auto refuse = [&](const std::string& bytes, const std::string& said) {
    files.put("source.spm", bytes);
    files.refuse(said);
  };
  refuse("", "source.spm': expected pieces");
  refuse(model().substr(0, model().size() - 1), "bytes where");
  refuse(model() + "\x0f", "a field of the type 7");
  refuse(model() + std::string(11, '\xff'), "more than 64 bits");
  refuse(model() + bytes_field(1, bytes_field(1, "\xff")), "the field 1 is not UTF-8");
  refuse(model() + number_field(1, 1), "the field 1 has the type 0, expected 2");
  refuse(model() + bytes_field(1, number_field(2, 1)), "the field 2 has the type 0, expected 5");
  refuse(model() + piece("a", -1), "piece 8: 'a' comes twice");
  refuse(model() + piece("", -1), "piece 8: expected text");
  refuse(model() + piece("c", std::numeric_limits<float>::quiet_NaN()), "piece 8: expected text and a number");
  refuse(model() + piece("c", -1, 4), "piece 8: the type 4 is not known");
  refuse(model() + piece("c", -1, 0), "piece 8: the type 0 is not known");
  refuse(model() + piece("c", 0, 2), "expected one unknown piece");
  refuse(model() + bytes_field(2, number_field(3, 2)), "the model type 2 is not known; Unigram (1) is");
  refuse(model() + bytes_field(2, number_field(24, 1)), "treat_whitespace_as_suffix is not known");
  refuse(model() + bytes_field(2, number_field(35, 1)), "byte_fallback is not known");
  refuse(model() + bytes_field(3, bytes_field(2, "abc")), "precompiled_charsmap: 3 bytes, expected 4 or more");
  refuse(model() + bytes_field(5, bytes_field(2, "abc")), "a denormalizer is not known");
}

TEST(Marian, VocabulariesThatDoNotFitAreRefused) {
  const Files files;
  const auto refuse = [&](const char* token, const json& id, const std::string& said) {
    json changed = vocabulary;
    changed[token] = id;
    if (id.is_null()) changed.erase(token);
    files.put("vocab.json", changed.dump());
    files.refuse(said);
  };
  refuse("<unk>", nullptr, "vocab.json': the token '<unk>' is missing");
  refuse("</s>", nullptr, "the token '</s>' is missing");
  refuse("<pad>", nullptr, "the token '<pad>' is missing");
  refuse("c", 4, "have one id, 4");
  refuse("c", -1, "expected a whole number");
}

TEST(Marian, ConfigurationsThatAreNotKnownAreRefused) {
  const Files files;
  const auto refuse = [&](const json& config, const std::string& said) {
    files.put("tokenizer_config.json", config.dump());
    files.refuse(said);
  };
  refuse({{"separate_vocabs", true}}, "tokenizer_config.json': separate_vocabs: true is not known");
  refuse({{"split_special_tokens", true}}, "split_special_tokens: true is not known");
  refuse({{"sp_model_kwargs", {{"alpha", 0.1}}}}, "sp_model_kwargs: expected an empty object");
  refuse({{"eos_token", {{"content", "</s>"}, {"lstrip", true}}}}, "eos_token: lstrip: true is not known");
  refuse({{"mask_token", "<mask>"}}, "the token '<mask>' is missing");
  refuse({{"added_tokens_decoder", {{"x", "<new>"}}}}, "'x': is no id");
  refuse({{"added_tokens_decoder", {{"4", "<new>"}}}}, "'<new>' has the id 4, which is another's");
  refuse({{"added_tokens_decoder", {{"5", "</s>"}}}}, "'</s>' has the id 5, which is another's");
  refuse(json::array(), "expected an object");
  files.put("tokenizer_config.json", json{{"added_tokens_decoder", {{"20", "<new>"}}}}.dump());
  EXPECT_EQ(files.load().encode("a<new>", false).ids, (Ids{2, 20}));
}

TEST(Marian, OlderFilesStandBesideTheConfiguration) {
  const Files files;
  files.put("tokenizer_config.json", R"({"pad_token": "<none>"})");
  files.put("special_tokens_map.json", R"({"pad_token": {"content": "b"}})");
  files.put("added_tokens.json", R"({"<new>": 20})");
  EXPECT_EQ(files.load().encode("a<new>", false).ids, (Ids{2, 20}));
  EXPECT_EQ(files.load().decode(Ids{2, 4}), "a");
}

TEST(Marian, OtherFilesNeedATokenizerJson) {
  const test::Folder folder;
  test::put(folder / "tokenizer.model", model());
  test::expect_error(
      ErrorCode::bad_file, [&] { (void)Tokenizer::load(folder.path()); }, "tokenizer.model",
      "AutoTokenizer.from_pretrained(folder).save_pretrained(folder)");
}

}  // namespace
}  // namespace attend
