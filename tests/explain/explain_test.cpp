#include "attend/explain.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "attend/attention.h"
#include "tests/expect.h"

namespace attend {
namespace {

using test::expect_error;
using test::expect_same;
using testing::HasSubstr;

void expect_same_traces(const Trace& a, const Trace& b) {
  ASSERT_EQ(a.tensors().size(), b.tensors().size());
  for (std::size_t i = 0; i < a.tensors().size(); ++i)
    expect_same(a.tensors()[i].second, b.tensors()[i].second, a.tensors()[i].first);
}

TEST(Explain, TheDefaultsAreThePresetLife) {
  expect_same_traces(explain({}), explain_preset("life"));
  expect_same_traces(explain({.heads = 3}), explain_preset("life-multihead"));
}

TEST(Explain, EveryPresetHasItsNameAndRowsThatSumToOne) {
  for (const Preset& preset : presets()) {
    const Trace trace = explain_preset(preset.name);
    EXPECT_EQ(trace.preset, preset.name);
    const Tensor weights = trace.weights.view().reshape({-1, trace.weights.size(-1)}).clone();
    for (std::int64_t i = 0; i < weights.size(0); ++i) {
      double sum = 0;
      for (std::int64_t j = 0; j < weights.size(1); ++j) sum += weights.item({i, j});
      EXPECT_NEAR(sum, 1, 1e-6) << preset.name;
    }
  }
}

// The context is attention()'s, by the path that it takes; the scores and weights shown beside it are those of the
// plain path.
TEST(Explain, TheContextIsThePlainPathsInEveryPreset) {
  for (const Preset& preset : presets()) {
    const Trace trace = explain_preset(preset.name);
    const AttentionOptions options{.causal = trace.causal};
    const AttentionSteps steps = attention_steps(trace.queries, trace.keys, trace.values, options);
    // f32 sums of up to 28 products against double: a few units in the last place.
    test::expect_close(trace.context, steps.context, 1e-6, std::string(preset.name));
    expect_same(trace.weights, steps.weights, std::string(preset.name));
  }
}

TEST(Explain, AnySentence) {
  const Trace trace = explain({.text = "to be, or not to be", .seed = 7, .embedding_size = 8, .d_k = 3, .d_v = 5});
  EXPECT_EQ(trace.tokens, (std::vector<std::string>{"to", "be", "or", "not", "to", "be"}));
  EXPECT_EQ(trace.ids, (std::vector<std::int64_t>{3, 0, 2, 1, 3, 0}));
  EXPECT_EQ(trace.embeddings.shape(), Dims({6, 8}));
  EXPECT_EQ(trace.context.shape(), Dims({6, 5}));
  // The same word has the same embedding, so it attends alike: nothing tells positions apart.
  expect_same(trace.weights.view().select(0, 0), trace.weights.view().select(0, 4));
}

TEST(Explain, LinearWeightsStayWithinTheirBound) {
  const Trace trace = explain({.heads = 2, .weights = WeightInit::linear});
  EXPECT_EQ(trace.w_query.shape(), Dims({2, 24, 16}));
  float largest = 0;
  for (std::int64_t i = 0; i < trace.w_query.count(); ++i)
    largest = std::max(largest, std::abs(trace.w_query.data<float>()[i]));
  EXPECT_LE(largest, 0.25f);  // 1 / sqrt(16)
  EXPECT_GT(largest, 0.24f);
}

TEST(Explain, CausalHidesLaterWords) {
  const Trace trace = explain({.heads = 2, .causal = true});
  for (std::int64_t h = 0; h < 2; ++h) {
    for (std::int64_t i = 0; i < 6; ++i) {
      for (std::int64_t j = 0; j < 6; ++j) EXPECT_EQ(trace.weights.item({h, i, j}) == 0, j > i);
    }
  }
  expect_same(trace.scores, explain({.heads = 2}).scores);
}

TEST(Explain, ASecondSentenceGivesKeysAndValues) {
  const Trace trace = explain({.text = "one two three", .second_text = "uno due", .heads = 2});
  EXPECT_EQ(trace.tokens_2, (std::vector<std::string>{"uno", "due"}));
  EXPECT_EQ(trace.ids_2, (std::vector<std::int64_t>{1, 0}));
  EXPECT_EQ(trace.weights.shape(), Dims({2, 3, 2}));
  EXPECT_EQ(trace.values.shape(), Dims({2, 2, 28}));
  // Drawn after the weights, as document 002 draws its second sequence: the weights are those of the sentence alone.
  expect_same(trace.w_value, explain({.text = "one two three", .heads = 2}).w_value);
}

TEST(Explain, OneWordAndTwoThousand) {
  const Trace one = explain({.text = "word"});
  EXPECT_EQ(one.weights.item({0, 0}), 1);
  expect_same(one.context, one.values);
  EXPECT_THAT(to_text(one), HasSubstr("row sum = 1.0000"));

  std::string text;
  for (int i = 0; i < 2000; ++i) text += "word" + std::to_string(i * 7 % 1999) + " ";
  const Trace many = explain({.text = text});
  EXPECT_EQ(many.weights.shape(), Dims({2000, 2000}));
  const std::string walk = to_text(many);
  EXPECT_THAT(walk, HasSubstr("and 1976 keys with smaller weights"));
  EXPECT_LT(walk.size(), 40'000u) << "a long sentence is summed up, not poured out";
  EXPECT_THAT(to_svg(many), HasSubstr("</svg>"));
  EXPECT_THAT(to_html(many), HasSubstr("</html>"));
}

TEST(Explain, BadSentencesAndSizes) {
  const auto value = ErrorCode::bad_value;
  expect_error(
      value, [] { explain({.text = ""}); }, "the sentence has no words");
  expect_error(
      value, [] { explain({.text = " ,, ,"}); }, "the sentence has no words");
  expect_error(
      value, [] { explain({.text = "a", .second_text = " "}); }, "the second sentence has no words");
  expect_error(
      value, [] { explain({.text = "a\xff"}); }, "UTF-8", "byte 1");
  expect_error(
      value, [] { explain({.embedding_size = 0}); }, "embedding_size is 0");
  expect_error(
      value, [] { explain({.d_k = -1}); }, "d_k is -1");
  expect_error(
      value, [] { explain({.d_v = 0}); }, "d_v is 0");
  expect_error(
      value, [] { explain({.heads = -1}); }, "heads is -1");
  expect_error(
      value, [] { explain({.second_text = "x", .causal = true}); }, "causal", "second sentence");
  expect_error(
      value, [] { explain_preset("lief"); }, "'lief'");
  expect_error(
      value, [] { to_text(explain({}), {.focus = 6}); }, "focus is 6", "6 words");
  expect_error(
      value, [] { to_text(explain({.heads = 2}), {.head = 2}); }, "head is 2", "2 heads");
}

// The walk shows the numbers of document 002, the dot product that it works out, and its sum.
TEST(ToText, ShowsEveryStepOfTheDocument) {
  const std::string text = to_text(explain_preset("life"));
  for (const char* part :
       {"1  Words become ids", "scores = queries keysᵀ    [6,6] = [6,24] [24,6]", "[ 0.3374, -0.1778, -0.3035",
        "the query of \"is\" with the key of \"dessert\"", "scores[1,4] = their sum = 11.1466",
        "scores / √24 = scores / 4.8990", "[0.2912, 0.0106, 0.0982, 0.0625, 0.4917, 0.0458]", "row sum = 1.0000",
        "0.4917 v(dessert)", "[-1.5993,  0.0156,  1.2670"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_THAT(text, testing::Not(HasSubstr("\x1b")));
  EXPECT_THAT(to_text(explain_preset("life"), {.colour = true}), HasSubstr("\x1b[1m"));
}

TEST(ToText, WorksOutTheChosenQueryAndHead) {
  const std::string text = to_text(explain_preset("my-name-multihead"), {.focus = 3, .head = 2});
  for (const char* part : {"This is head 3, at index 2", "the query of \"Marcello\"", "scores[2] = queries[2] keys[2]ᵀ",
                           "output = concat_heads w_output"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(ToText, NamesWhatHasNoWordAndTellsRepeatedWordsApart) {
  EXPECT_THAT(to_text(explain_preset("life-cross")), HasSubstr("the key of \"x8\""));
  EXPECT_THAT(to_svg(explain_preset("life-cross")), HasSubstr(">x8</text>"));
  EXPECT_THAT(to_text(explain({.text = "to be or not to be"}), {.focus = 4}), HasSubstr("the query of \"to (5)\""));
}

TEST(ToText, SaysWhatIsHidden) {
  const std::string text = to_text(explain({.causal = true}));
  EXPECT_THAT(text, HasSubstr("Causal"));
  EXPECT_THAT(text, HasSubstr("hidden"));
}

TEST(ToJson, HasTheDocumentedKeysAndShortestNumbers) {
  const Trace trace = explain_preset("my-name-multihead");
  const auto json = nlohmann::ordered_json::parse(to_json(trace));
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  EXPECT_EQ(keys, (std::vector<std::string>{"schema_version", "preset", "tokens", "ids", "tensors"}));
  EXPECT_EQ(json["schema_version"], 1);
  EXPECT_EQ(json["preset"], "my-name-multihead");
  ASSERT_EQ(json["tensors"].size(), trace.tensors().size());
  for (const auto& [name, tensor] : trace.tensors()) {
    std::vector<float> flat;
    const auto collect = [&](const auto& self, const nlohmann::ordered_json& node) -> void {
      if (node.is_array()) {
        for (const auto& child : node) self(self, child);
      } else {
        flat.push_back(std::stof(node.dump()));
      }
    };
    collect(collect, json["tensors"][name]);
    expect_same(Tensor::from({static_cast<std::int64_t>(flat.size())}, flat), tensor.reshape({-1}), name);
  }
  EXPECT_THAT(to_json(explain_preset("journey")), HasSubstr("\"embeddings\":[[0.43,0.15,0.89],[0.55,"));
  EXPECT_THAT(to_json(explain({})), HasSubstr("\"preset\":null"));
  EXPECT_THAT(to_json(explain_preset("life-cross")), HasSubstr("\"tokens_2\":[],\"ids_2\":[],\"tensors\""));
}

TEST(ToJson, WhatIsNoNumberIsNull) {
  Trace trace = explain_preset("journey");
  trace.context.data<float>()[0] = NAN;
  trace.context.data<float>()[1] = -INFINITY;
  EXPECT_THAT(to_json(trace), HasSubstr("\"context\":[[null,null],[0."));
}

TEST(ToText, ControlCharactersAreReplaced) {
  Trace trace = explain({.text = "a\x1b[2J \xc2\x9b"
                                 "b a\x07"});
  for (const std::string& text : {to_text(trace), to_html(trace)}) {
    EXPECT_EQ(text.find_first_of("\x1b\x07"), std::string::npos);
    EXPECT_EQ(text.find("\xc2\x9b"), std::string::npos);
    EXPECT_THAT(text, HasSubstr("a\xef\xbf\xbd[2J"));
  }
}

TEST(Trace, FieldsThatDoNotFitAreErrors) {
  const auto changed = [](auto change) {
    Trace trace = explain({});
    change(trace);
    return trace;
  };
  const Trace bytes = changed([](Trace& t) { t.tokens[0] = "\xff"; });
  const Trace fewer = changed([](Trace& t) { t.tokens.resize(1); });
  const Trace fewer_ids = changed([](Trace& t) { t.ids.clear(); });
  for (const auto& write :
       {to_json, +[](const Trace& t) { return to_text(t); }, +[](const Trace& t) { return to_html(t); }}) {
    expect_error(
        ErrorCode::bad_value, [&] { write(bytes); }, "not UTF-8");
    expect_error(
        ErrorCode::bad_shape, [&] { write(fewer); }, "1 words and 6 ids for 6 embeddings");
    expect_error(
        ErrorCode::bad_shape, [&] { write(fewer_ids); }, "6 words and 0 ids");
  }
  expect_error(
      ErrorCode::bad_value, [&] { write_trace("never.safetensors", bytes); }, "not UTF-8");
}

TEST(Explain, HeadsTimesSizeBeyond64Bits) {
  for (const std::int64_t heads : {std::int64_t{1} << 62, std::numeric_limits<std::int64_t>::max()}) {
    expect_error(
        ErrorCode::bad_shape, [&] { explain({.heads = heads, .weights = WeightInit::linear}); }, std::to_string(heads));
  }
}

TEST(WriteTrace, EveryFormatReadsBack) {
  const Trace trace = explain({.text = "naïve 東京 <b>", .heads = 2});
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "attend_write_trace";
  std::filesystem::create_directories(folder);
  const auto path = [&](const char* name) { return (folder / name).string(); };
  for (const char* name : {"t.npz", "t.safetensors"}) {
    write_trace(path(name), trace);
    const TensorMap read = read_tensors(path(name));
    EXPECT_EQ(read.size(), trace.tensors().size() + 1);
    for (const auto& [key, tensor] : trace.tensors()) expect_same(read.at(key), tensor, key);
    EXPECT_EQ(read.at("ids").shape(), Dims({3}));
  }
  EXPECT_THAT(read_safetensors(path("t.safetensors")).metadata.at("tokens"), HasSubstr("東京"));
  for (const char* name : {"t.json", "t.svg", "t.png", "t.html"}) {
    write_trace(path(name), trace);
    EXPECT_GT(std::filesystem::file_size(path(name)), 1000u) << name;
  }
  EXPECT_THAT(to_html(trace), testing::AllOf(HasSubstr("&lt;b&gt;"), testing::Not(HasSubstr("<b>"))));
  expect_error(
      ErrorCode::bad_value, [&] { write_trace(path("t.jpg"), trace); }, "t.jpg", ".png");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace attend
