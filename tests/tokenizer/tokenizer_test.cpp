#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/allocations.h"
#include "tests/expect.h"
#include "tests/io/files.h"

namespace attend {
namespace {

using nlohmann::json;

const json& golden() {
  static const json data = json::parse(std::ifstream(test::data("golden/tokenizers.json")));
  return data;
}

Tokenizer tokenizer_of(const json& from) {
  return Tokenizer::parse(from.dump());
}

Encoding encode(const Tokenizer& tokenizer, const json& one) {
  const std::string text = one["text"];
  return one["pair"].is_null() ? tokenizer.encode(text) : tokenizer.encode_pair(text, one["pair"].get<std::string>());
}

void check(const Tokenizer& tokenizer, const json& one) {
  SCOPED_TRACE(one["text"].dump() + one["pair"].dump());
  const Encoding found = encode(tokenizer, one);
  json offsets = json::array();
  for (const Range& each : found.offsets) offsets.push_back({each.begin, each.end});
  EXPECT_EQ(json(found.ids), one["ids"]);
  EXPECT_EQ(offsets, one["offsets"]);
  EXPECT_EQ(json(std::vector<int>(found.special.begin(), found.special.end())), one["special"]);
  EXPECT_EQ(json(found.types), one["types"]);
  EXPECT_EQ(json(found.texts), one["texts"]);
  EXPECT_EQ(tokenizer.decode(found.ids), one["decoded"].get<std::string>());
  EXPECT_EQ(tokenizer.decode(found.ids, false), one["with_special"].get<std::string>());
}

TEST(Tokenizer, AsThePackageTokenizers) {
  ASSERT_EQ(golden().size(), 9);
  for (const json& each : golden()) {
    SCOPED_TRACE(each["name"]);
    const Tokenizer tokenizer = tokenizer_of(each["tokenizer"]);
    for (const json& one : each["cases"]) check(tokenizer, one);
  }
}

TEST(Tokenizer, FourThreadsAtOnce) {
  for (const json& each : golden()) {
    const Tokenizer tokenizer = tokenizer_of(each["tokenizer"]);
    std::vector<std::thread> threads;
    for (int n = 0; n < 4; ++n) {
      threads.emplace_back([copy = tokenizer, &each] {
        for (const json& one : each["cases"]) EXPECT_EQ(json(encode(copy, one).ids), one["ids"]);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

// Words are kept for all models of a thread: none may take another's, whichever numbers they have.
TEST(Tokenizer, ModelsOfBothKindsDoNotShareWords) {
  const auto ids = [](const json& each) { return tokenizer_of(each["tokenizer"]).encode("a").ids; };
  const auto expected = ids(golden()[0]);
  for (const json& each : golden()) ids(each);
  for (std::size_t n = 0; n < 3 * golden().size(); ++n) EXPECT_EQ(ids(golden()[0]), expected) << n;
}

TEST(Tokenizer, TokensHaveIds) {
  const json& file = golden()[0]["tokenizer"];
  const Tokenizer tokenizer = tokenizer_of(file);
  const auto vocabulary = file["model"]["vocab"].get<std::map<std::string, std::int64_t>>();
  EXPECT_EQ(tokenizer.size(), std::ssize(vocabulary));
  for (const auto& [token, id] : vocabulary) {
    EXPECT_EQ(tokenizer.id(token), id);
    EXPECT_EQ(tokenizer.token(id), token);
  }
  EXPECT_EQ(tokenizer.id("no such token"), std::nullopt);
  for (const std::int64_t id : {std::int64_t{-1}, tokenizer.size(), std::int64_t{1} << 32}) {
    test::expect_error(
        ErrorCode::bad_value, [&] { (void)tokenizer.token(id); }, fmt::format("{} is not a token's id", id));
    test::expect_error(ErrorCode::bad_value, [&] { (void)tokenizer.decode(std::vector<std::int64_t>{id}); });
  }
}

TEST(Tokenizer, TokensOfACharactersBytesSayWhichPartTheyAre) {
  using Texts = std::vector<std::optional<std::string>>;
  for (const json& each : golden()) {
    if (each["name"] != "gpt2" && each["name"] != "llama2") continue;  // the bytes in an alphabet, and <0xE7>
    SCOPED_TRACE(each["name"]);
    const Tokenizer tokenizer = tokenizer_of(each["tokenizer"]);
    const std::vector<std::int64_t> ids = tokenizer.encode("猫", false).ids, x = tokenizer.encode("x", false).ids;
    ASSERT_GE(ids.size(), 3);
    const std::int64_t a = ids[ids.size() - 3], b = ids[ids.size() - 2], c = ids.back(), none = tokenizer.size() + 5;
    const auto texts = [&](const std::vector<std::int64_t>& of) { return tokenizer.texts(of); };
    EXPECT_EQ(texts({x[0], a, b, c, x[0]}),
              (Texts{tokenizer.text(x[0]), "猫 1/3", "猫 2/3", "猫 3/3", tokenizer.text(x[0])}));
    EXPECT_EQ(texts({a, b}), (Texts{"�", "�"}));  // not all of it
    EXPECT_EQ(texts({a, none, c}), (Texts{"�", std::nullopt, "�"}));
    EXPECT_EQ(texts({a, x[0], a, b, c}), (Texts{"�", tokenizer.text(x[0]), "猫 1/3", "猫 2/3", "猫 3/3"}));
    EXPECT_TRUE(texts({}).empty());
  }
}

TEST(Tokenizer, WhatIsNotUtf8IsRefused) {
  const Tokenizer tokenizer = tokenizer_of(golden()[1]["tokenizer"]);
  test::expect_error(
      ErrorCode::bad_value, [&] { (void)tokenizer.encode("caf\xe9!"); }, "Tokenizer::encode: text", "byte 3 is 0xe9");
  test::expect_error(
      ErrorCode::bad_value, [&] { (void)tokenizer.encode_pair("a", "\xff"); }, "second", "byte 0 is 0xff");
}

TEST(Tokenizer, ALongWordTakesNoLongTime) {
  const Tokenizer tokenizer = tokenizer_of(golden()[5]["tokenizer"]);  // which cuts no words
  const std::string text(1 << 20, 'a');
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(text).ids), text);
}

TEST(Tokenizer, LoadsFiles) {
  const test::Folder folder;
  const auto path = folder / "tokenizer.json";
  write_file(path, golden()[0]["tokenizer"].dump());
  EXPECT_EQ(Tokenizer::load(path).encode("a").ids, tokenizer_of(golden()[0]["tokenizer"]).encode("a").ids);
  write_file(path, "{");
  test::expect_error(
      ErrorCode::bad_file, [&] { (void)Tokenizer::load(path); }, "Tokenizer::load", "tokenizer.json", "is not JSON");
  test::expect_error(
      ErrorCode::bad_file, [&] { (void)Tokenizer::load(folder / "none"); }, "none");
}

// The golden WordPiece with one change, and what must be said of it.
void refuse(const std::string& pointer, const json& value, const std::string& said) {
  json file = golden()[0]["tokenizer"];
  file[json::json_pointer(pointer)] = value;
  SCOPED_TRACE(pointer + " " + value.dump());
  test::expect_error(
      ErrorCode::bad_file, [&] { (void)tokenizer_of(file); }, "Tokenizer::parse", said);
}

TEST(Tokenizer, UnknownPartsAreNamed) {
  refuse("/normalizer", {{"type", "New"}}, "normalizer: the normalizer 'New' is not known");
  refuse("/pre_tokenizer", {{"type", "FixedLength"}}, "the pre-tokenizer 'FixedLength' is not known");
  refuse("/post_processor", {{"type", "New"}}, "the post-processor 'New' is not known");
  refuse("/decoder", {{"type", "New"}}, "the decoder 'New' is not known");
  refuse("/model/type", "New", "the model 'New' is not known");
  refuse("/more", 1, "'more' is not known");
  refuse("/version", "2.0", "version: expected 1.0");
  refuse("/normalizer/more", true, "normalizer: 'more' is not known");
  refuse("/model/more", true, "model: 'more' is not known");
  refuse("/added_tokens/0/more", true, "added_tokens: 0: 'more' is not known");
}

TEST(Tokenizer, WhatContradictsItselfIsRefused) {
  refuse("/added_tokens/0/id", 77, "has the id 77, expected 0");
  refuse("/added_tokens/1/content", "[UNK]", "expected 0");
  refuse("/model/unk_token", "[NONE]", "the token '[NONE]' is not in the vocabulary");
  refuse("/model/vocab/a", -1, "vocab: expected a whole number");
  refuse("/model/vocab/a", std::int64_t{1} << 32, "vocab: expected a whole number");
  refuse("/model/vocab", json::object(), "vocab: expected tokens");
  refuse("/post_processor/special_tokens/[CLS]/ids/0", 5000, "5000 is not a token's id");
  refuse("/post_processor/single/0/SpecialToken/id", "[NONE]", "[NONE] is missing");
  refuse("/post_processor/pair/1/Sequence/id", "C", "the text 'C' is neither A nor B");
  refuse("/post_processor/single/1/Sequence/id", "B", "expected the text A");
}

TEST(Tokenizer, WhatPatternsMeanOtherwiseIsRefused) {
  for (const auto& [expression, said] : {std::pair(R"(\w+)", R"('\w' in the pattern)"),
                                         {R"(^a)", "'^'"},
                                         {R"(\p{Greek})", R"('\p{Greek}')"},
                                         {"[[a]b]", "'[a'"},
                                         {"[a&&b]", "'&&'"},
                                         {R"((?<=a)b)", "'(?<='"},
                                         {"a{,3}", "'{,'"},
                                         {R"([^\S])", R"(\S)"},
                                         {"(a", "can't be read"},
                                         {"a)", "can't be read"},
                                         {"[a", "[ without ]"}}) {
    refuse("/pre_tokenizer",
           {{"type", "Split"}, {"pattern", {{"Regex", expression}}}, {"behavior", "Isolated"}, {"invert", false}},
           said);
  }
  refuse("/pre_tokenizer",
         {{"type", "Split"}, {"pattern", {{"String", ""}}}, {"behavior", "Isolated"}, {"invert", false}}, "empty");
}

json split(const std::string& expression) {
  return {{"type", "Split"}, {"pattern", {{"Regex", expression}}}, {"behavior", "Isolated"}, {"invert", false}};
}

// To Oniguruma, ß is ss without case, and ﬁ is fi.
TEST(Tokenizer, WhereCaseDoesNotMatterOneCharacterMayBeSeveral) {
  for (const auto& [expression, said] : {std::pair("(?i:SS)", "'ss', where case does not matter"),
                                         {"(?i:Ss)", "'ss'"},
                                         {"(?i:aff)", "'ff'"},
                                         {"(?i:fi)", "'fi'"},
                                         {"(?i:fl)", "'fl'"},
                                         {"(?i:'t|st)", "'st'"},
                                         {"(?i:s(?:s|t))", "'ss'"},
                                         {"(?i:(?:s)s)", "'ss'"},
                                         {"(?i:s{1}s)", "'ss'"},
                                         {"(?i:a(?:b(ss)))", "'ss'"},
                                         {"(?i:ß)", "'ß'"},
                                         {"(?i:[aß])", "'ß'"},
                                         {R"(a(?i:b\p{L}))", R"('\p{L}', where)"}}) {
    refuse("/pre_tokenizer", split(expression), said);
  }
  json file = golden()[0]["tokenizer"];
  for (const char* known : {"(?i:'s|'t|'re|'ve|'m|'ll|'d)", "'(?i:[sdmt]|ll|ve|re)", "(?i:s)s", "s(?i:s)", "(?i:s|s)",
                            "(?i:ab)ss", "(?i:s+t)", "(?i:[fi][fi])", "(?i:s(s))", "(?:(?i:a)ss)ß"}) {
    file["pre_tokenizer"] = split(known);
    EXPECT_NO_THROW((void)tokenizer_of(file)) << known;
  }
}

TEST(Tokenizer, WhatTokenizersPlacesWrongIsRefused) {
  refuse("/normalizer", {{"type", "Prepend"}, {"prepend", ""}}, "normalizer: prepend: expected text");
  refuse("/normalizer", {{"type", "Replace"}, {"pattern", {{"Regex", "a*"}}}, {"content", "b"}},
         "normalizer: pattern: expected one that matches a character at least");
  const json bpe = {{"type", "BPE"}, {"byte_fallback", true}, {"vocab", {{"a", 0}}}, {"merges", json::array()}};
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    json model = bpe;
    model[affix] = "x";
    refuse("/model", model, "model: byte_fallback beside a prefix or a suffix is not known");
  }
}

TEST(Tokenizer, WhatDecodersTakeOutIsText) {
  refuse("/decoder", {{"type", "BPEDecoder"}, {"suffix", ""}}, "decoder: suffix: expected text");
  refuse("/decoder", {{"type", "CTC"}, {"pad_token", ""}, {"word_delimiter_token", "|"}, {"cleanup", true}},
         "decoder: pad_token: expected text");
  refuse("/decoder", {{"type", "CTC"}, {"pad_token", "_"}, {"word_delimiter_token", ""}, {"cleanup", true}},
         "decoder: word_delimiter_token: expected text");
  refuse("/pre_tokenizer", {{"type", "CharDelimiterSplit"}, {"delimiter", "ab"}}, "delimiter: expected one character");
  refuse("/decoder", {{"type", "Metaspace"}, {"replacement", ""}, {"prepend_scheme", "never"}},
         "decoder: replacement: expected one character");
}

TEST(Tokenizer, ScoresAndTheirTokensAreOneEach) {
  const auto refuse_model = [](const char* vocabulary, const json& unknown, const std::string& said) {
    refuse("/model", {{"type", "Unigram"}, {"unk_id", unknown}, {"vocab", json::parse(vocabulary)}}, said);
  };
  refuse_model(R"([["a", -1], ["a", -2]])", nullptr, "model: vocab: 1: 'a' comes twice");
  refuse_model(R"([["a"]])", nullptr, "vocab: 0: expected a token and its score");
  refuse_model(R"([["a", "b"]])", nullptr, "expected a token and its score");
  refuse_model(R"([[1, 1]])", nullptr, "expected a token and its score");
  refuse_model(R"([["a", -1]])", 1, "unk_id: expected a whole number");
  refuse_model("[]", 0, "vocab: expected tokens");
  refuse_model("{}", nullptr, "vocab: expected a list");
}

TEST(Tokenizer, WhatIsUnknownNeedsAToken) {
  json file = golden()[0]["tokenizer"];
  file["normalizer"] = file["pre_tokenizer"] = file["post_processor"] = nullptr;
  file["added_tokens"] = json::array();
  for (const char* model : {R"({"type": "Unigram", "vocab": [["a", -1], ["b", -2]]})",
                            R"({"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "?"})"}) {
    file["model"] = json::parse(model);
    const Tokenizer tokenizer = tokenizer_of(file);
    EXPECT_EQ(tokenizer.encode("a").ids, std::vector<std::int64_t>{0});
    test::expect_error(
        ErrorCode::bad_value, [&] { (void)tokenizer.encode("c"); }, "'c' is not a token, and the tokenizer has none");
  }
}

// The same text in one word of 1 MiB, whose best path is looked for as a whole.
TEST(Tokenizer, ALongUnigramWordTakesNoLongTime) {
  json file = golden()[7]["tokenizer"];
  file["normalizer"] = file["pre_tokenizer"] = nullptr;
  const Tokenizer tokenizer = tokenizer_of(file);
  const std::string text(1 << 20, 'a');
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(text).ids), text);
}

std::string base64(const std::vector<std::uint32_t>& units, const std::string& texts) {
  std::string bytes;
  const auto append = [&](std::uint32_t unit) {
    for (int n = 0; n < 4; ++n) bytes += static_cast<char>(unit >> 8 * n);
  };
  append(static_cast<std::uint32_t>(units.size() * 4));
  for (const std::uint32_t unit : units) append(unit);
  bytes += texts;
  std::string text;
  for (std::size_t n = 0; n < bytes.size(); n += 3) {
    std::uint32_t bits = 0;
    for (std::size_t m = n; m < n + 3; ++m)
      bits = bits << 8 | (m < bytes.size() ? static_cast<unsigned char>(bytes[m]) : 0u);
    for (std::size_t m = 0; m < 4; ++m)
      text += n + m > bytes.size()
                  ? '='
                  : "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"[bits >> (18 - 6 * m) & 63];
  }
  return text;
}

// A trie of one text, 'a': its root's children begin at 0, its leaf's at 512 ^ 'a'.
std::vector<std::uint32_t> trie_of_a(std::uint32_t leaf) {
  std::vector<std::uint32_t> units(1024);
  units['a'] = 'a' | 1u << 8 | 512u << 10;
  units['a' ^ 512] = 1u << 31 | leaf;
  return units;
}

TEST(Tokenizer, CharsmapsThatLeadAstrayAreRefused) {
  const auto step = [](const std::string& map) { return json{{"type", "Precompiled"}, {"precompiled_charsmap", map}}; };
  const auto refuse_map = [&](const std::string& map, const std::string& said) {
    refuse("/normalizer", step(map), "normalizer: precompiled_charsmap: " + said);
  };
  for (const char* text : {"A", "AA", "AAA", "AA=A", "AB==", "AAB=", "A===", "AAA!", "AAAA=AAA"}) {
    refuse_map(text, "expected base64");
  }
  refuse_map("", "0 bytes, expected 4 or more");
  refuse_map("AAAA", "3 bytes");
  refuse_map(base64({}, "a"), "a trie of 0 bytes in 5");
  refuse_map("/////w==", "a trie of 4294967295 bytes in 4");
  refuse_map(base64({0}, ""), "the trie goes on at 0, it has 1 units");
  refuse_map(base64({~0u & ~(1u << 9)}, ""), "the trie goes on at 4194303");
  refuse_map(base64(trie_of_a(4), std::string("é\0", 3)), "a text begins at byte 4 of 3");
  refuse_map(base64(trie_of_a(1), std::string("é\0", 3)), "a text begins at byte 1 of 3");
  refuse_map(base64(trie_of_a(0), "\xff"), "the texts are not UTF-8");
  std::vector<std::uint32_t> astray = trie_of_a(0);
  astray['a'] |= 1u << 20;
  refuse_map(base64(astray, "b"), "the trie goes on at");
  json file = golden()[0]["tokenizer"];
  file["normalizer"] = step(base64(trie_of_a(0), "b"));
  EXPECT_EQ(tokenizer_of(file).encode("baa").ids, tokenizer_of(golden()[0]["tokenizer"]).encode("bbb").ids);
}

json added(std::int64_t id, const std::string& text) {
  return {{"id", id},        {"content", text},     {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", false}};
}

TEST(Tokenizer, AddedTokensThatAreOneTextOnceNormalisedAreRefused) {
  json file = golden()[0]["tokenizer"];
  const auto next = std::ssize(file["model"]["vocab"]);
  file["normalizer"] = {{"type", "Lowercase"}};
  file["added_tokens"] = {added(next, "<M>"), added(next + 1, "<m>")};
  EXPECT_EQ(tokenizer_of(file).encode("<M>").ids.size(), tokenizer_of(file).encode("<m>").ids.size());
  for (json& each : file["added_tokens"]) each["normalized"] = true;
  test::expect_error(
      ErrorCode::bad_file, [&] { (void)tokenizer_of(file); }, "added_tokens: '<M>' and '<m>' are one text once");
}

// "[A]" takes the white space behind it, and a line is a token that takes the white space on both sides.
TEST(Tokenizer, WhiteSpaceThatATokenTookIsNoOther) {
  json file = golden()[0]["tokenizer"];
  const auto next = std::ssize(file["model"]["vocab"]);
  json bracket = added(next, "[A]"), line = added(next + 1, "\n");
  bracket["rstrip"] = line["lstrip"] = line["rstrip"] = true;
  file["added_tokens"] = {bracket, line};
  const Tokenizer tokenizer = tokenizer_of(file);
  using Ids = std::vector<std::int64_t>;
  EXPECT_EQ(tokenizer.encode("[A] \n [A]", false).ids, (Ids{next, next}));
  EXPECT_EQ(tokenizer.encode("[A]\n\n", false).ids, (Ids{next}));
  EXPECT_EQ(tokenizer.encode(" \n \n [A]", false).ids, (Ids{next + 1, next}));
}

TEST(Tokenizer, NoPatternMatchesAnEmptyText) {
  json file = golden()[0]["tokenizer"];
  file["decoder"] = {
      {"type", "Sequence"},
      {"decoders", {{{"type", "Fuse"}}, {{"type", "Replace"}, {"pattern", {{"Regex", "a{0}"}}}, {"content", "b"}}}}};
  EXPECT_EQ(tokenizer_of(file).decode(std::vector<std::int64_t>{}), "");
}

// ---- What a file may make of a text ----

// Of these steps, one after another.
json steps(const char* list, const std::vector<json>& all) {
  return {{"type", "Sequence"}, {list, all}};
}
json replace(const std::string& what, const std::string& with) {
  return {{"type", "Replace"}, {"pattern", {{"String", what}}}, {"content", with}};
}
const json to_bytes = {
    {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", false}};

// The tokens "?", "a" and "<m>", and what is put into the file besides.
json plain_with(const std::string& part, const json& value) {
  json file = {{"version", "1.0"},
               {"added_tokens", {added(2, "<m>")}},
               {"model", {{"type", "WordLevel"}, {"vocab", {{"?", 0}, {"a", 1}}}, {"unk_token", "?"}}}};
  file[part] = value;
  return file;
}

constexpr const char* too_much = "the tokenizer makes more of what it is given than";

// Says it before it takes the memory: at most what a text of that size may become.
void expect_too_much(const json& file, const std::string& text) {
  const Tokenizer tokenizer = tokenizer_of(file);
  const test::CountAllocations count;
  test::expect_error(
      ErrorCode::bad_value, [&] { (void)tokenizer.encode(text); }, "Tokenizer::encode", too_much);
  EXPECT_LT(count.list_bytes(), std::int64_t{512} << 20);
}

TEST(Tokenizer, StepsThatDoubleATextDoSoUntilItIsTooMuch) {
  const std::vector<json> doubled(26, replace("a", "aa"));
  expect_too_much(plain_with("normalizer", steps("normalizers", doubled)), "a");
  expect_too_much(plain_with("normalizer", steps("normalizers", std::vector<json>(26, {{"type", "ByteLevel"}}))), "é");
  expect_too_much(plain_with("pre_tokenizer", steps("pretokenizers", std::vector<json>(26, to_bytes))), "é");
  const Tokenizer decodes = tokenizer_of(plain_with("decoder", steps("decoders", doubled)));
  test::expect_error(
      ErrorCode::bad_value, [&] { (void)decodes.decode(std::vector<std::int64_t>{1}); }, "Tokenizer::decode", too_much);
}

TEST(Tokenizer, OneStepMayBeTooMuch) {
  const std::string long_text(600'000, 'b');
  expect_too_much(plain_with("normalizer", replace("a", long_text)), "aa");
  EXPECT_EQ(tokenizer_of(plain_with("normalizer", replace("a", long_text))).encode("a").ids.size(), 1);
  // What is set before each part counts together.
  expect_too_much(plain_with("normalizer", {{"type", "Prepend"}, {"prepend", long_text}}), "a<m>a");
  std::string ligatures;
  for (int n = 0; n < 100'000; ++n) ligatures += "\uFDFA";
  expect_too_much(plain_with("normalizer", steps("normalizers", {replace("a", ligatures), {{"type", "NFKD"}}})), "a");
  const Tokenizer decodes = tokenizer_of(plain_with("decoder", replace("a", long_text)));
  EXPECT_EQ(decodes.decode(std::vector<std::int64_t>{1}), long_text);
  test::expect_error(
      ErrorCode::bad_value,
      [&] {
        (void)decodes.decode(std::vector<std::int64_t>{1, 1});
      },
      too_much);
}

// The most that Unicode's normal forms make of a text, with the bytes as characters then.
TEST(Tokenizer, WhatUnicodeMakesOfATextIsNotTooMuch) {
  json file = plain_with("normalizer", {{"type", "NFKD"}});
  file["pre_tokenizer"] = to_bytes;
  std::string text;
  for (int n = 0; n < 100'000; ++n) text += "\uFDFA";
  const Encoding found = tokenizer_of(file).encode(text);
  EXPECT_EQ(found.ids, std::vector<std::int64_t>{0});
  EXPECT_EQ(found.offsets[0].end, std::ssize(text));
}

TEST(Tokenizer, TokensOfAnyLengthMakeNoTextOfAnyLength) {
  json file = plain_with("decoder", {{"type", "Fuse"}});
  file["model"]["vocab"][std::string(100'000, 'b')] = 2;
  file["added_tokens"][0]["id"] = 3;
  const Tokenizer tokenizer = tokenizer_of(file);
  EXPECT_EQ(tokenizer.decode(std::vector<std::int64_t>(10, 2)).size(), 1'000'000);
  test::expect_error(
      ErrorCode::bad_value, [&] { (void)tokenizer.decode(std::vector<std::int64_t>(100, 2)); }, too_much);
}

TEST(Tokenizer, ATemplateHasAHandfulOfTokens) {
  const auto with = [](const json& single, std::size_t ids) {
    const json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
               second = {{"Sequence", {{"id", "B"}, {"type_id", 0}}}};
    return plain_with("post_processor",
                      {{"type", "TemplateProcessing"},
                       {"single", single},
                       {"pair", {text, second}},
                       {"special_tokens", {{"x", {{"id", "x"}, {"ids", std::vector<int>(ids, 1)}}}}}});
  };
  const json token = {{"SpecialToken", {{"id", "x"}, {"type_id", 0}}}},
             text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const auto refused = [](const json& file) {
    test::expect_error(
        ErrorCode::bad_file, [&] { (void)tokenizer_of(file); }, "single: expected 1024 tokens and texts at most");
  };
  refused(with({token, text}, 1025));
  refused(with({token, text, token, token}, 512));
  refused(with(std::vector<json>(1025, text), 1));
  const Tokenizer often = tokenizer_of(with(std::vector<json>(1000, text), 1));
  EXPECT_EQ(often.encode("a").ids.size(), 1000);
  std::string many;
  for (int n = 0; n < 2000; ++n) many += "a<m>";
  test::expect_error(
      ErrorCode::bad_value, [&] { (void)often.encode(many); }, too_much);
}

TEST(Tokenizer, ACharsmapMakesAFewCharactersOfAFew) {
  const auto with = [](std::size_t size) {
    return json{{"type", "Precompiled"},
                {"precompiled_charsmap", base64(trie_of_a(0), std::string(size, 'b') + std::string(1, '\0'))}};
  };
  refuse("/normalizer", with(1025), "precompiled_charsmap: the text at byte 0 has more than 1024 bytes");
  EXPECT_EQ(tokenizer_of(plain_with("normalizer", with(1024))).encode("a").ids.size(), 1);
  expect_too_much(plain_with("normalizer", with(1024)), std::string(2000, 'a'));
}

TEST(Tokenizer, AnAddedTokenThatBecomesTooMuchIsTheFilesFault) {
  json file = plain_with("normalizer", steps("normalizers", std::vector<json>(26, replace("m", "mm"))));
  file["added_tokens"][0]["normalized"] = true;
  test::expect_error(
      ErrorCode::bad_file, [&] { (void)tokenizer_of(file); }, "'<m>', which is normalised: " + std::string(too_much));
  file["normalizer"] = replace("m", std::string(100'000, 'b'));
  EXPECT_NO_THROW((void)tokenizer_of(file));
  for (int n = 0; n < 12; ++n) {  // together
    file["added_tokens"].push_back(added(3 + n, "m" + std::to_string(n)));
    file["added_tokens"].back()["normalized"] = true;
  }
  test::expect_error(
      ErrorCode::bad_file, [&] { (void)tokenizer_of(file); }, "which is normalised: " + std::string(too_much));
}

TEST(Tokenizer, APatternThatTakesTooLongIsAnError) {
  json file = golden()[0]["tokenizer"];
  file["pre_tokenizer"] = {
      {"type", "Split"}, {"pattern", {{"Regex", R"((?:a+)+\p{N})"}}}, {"behavior", "Isolated"}, {"invert", false}};
  const Tokenizer tokenizer = tokenizer_of(file);
  test::expect_error(
      ErrorCode::bad_value, [&] { (void)tokenizer.encode(std::string(64, 'a')); }, "a pattern of the tokenizer fails");
}

}  // namespace
}  // namespace attend
