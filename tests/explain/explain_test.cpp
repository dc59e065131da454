#include "attend/explain.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "attend/attention.h"
#include "core/utf8.h"
#include "explain/page.h"
#include "tests/expect.h"

namespace attend {
namespace {

using test::expect_close;
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
}

TEST(Explain, OnesOwnSentenceIsDrawnLinearAndItsSoftmaxShares) {
  const ExplainOptions own{.text = "the cat sat on the mat"};
  ExplainOptions linear = own, uniform = own;
  linear.weights = WeightInit::linear;
  uniform.weights = WeightInit::uniform;
  expect_same_traces(explain(own), explain(linear));
  const Trace positive = explain(uniform);
  EXPECT_GE(
      *std::min_element(positive.w_query.data<float>(), positive.w_query.data<float>() + positive.w_query.count()), 0);
  const Trace trace = explain(own);
  for (std::int64_t n = 0; n < trace.weights.count(); ++n) EXPECT_LT(trace.weights.data<float>()[n], 0.5f);
  EXPECT_THAT(to_text(trace), testing::Not(HasSubstr("Even so")));
  EXPECT_THAT(to_text(explain_preset("life")),
              HasSubstr("Even so 4 of the 6 queries will give one key more than 0.99"));
}

// Document 003's multi-head attention: PyTorch's nn.Linear for all heads and for the output, in this order.
TEST(Explain, HeadsAreJoinedAndProjected) {
  const Trace trace = explain({.text = "a b c", .embedding_size = 6, .d_k = 4, .d_v = 5, .heads = 2});
  EXPECT_EQ(trace.w_output->shape(), Dims({6, 10}));
  EXPECT_EQ(trace.output->shape(), Dims({3, 6}));
  Generator generator(123);
  generator.kaiming_uniform({8, 6});
  generator.kaiming_uniform({8, 6});
  expect_same(trace.w_value, generator.kaiming_uniform({10, 6}).view().reshape({2, 5, 6}));
  expect_same(*trace.w_output, generator.kaiming_uniform({6, 10}));
  for (std::int64_t t = 0; t < 3; ++t) {
    for (std::int64_t n = 0; n < 10; ++n)
      EXPECT_EQ(trace.concat_heads->item({t, n}), trace.context.item({n / 5, t, n % 5}));
    for (std::int64_t e = 0; e < 6; ++e) {
      double sum = 0;
      for (std::int64_t n = 0; n < 10; ++n) sum += trace.concat_heads->item({t, n}) * trace.w_output->item({e, n});
      EXPECT_NEAR(trace.output->item({t, e}), sum, 1e-6);  // an f32 sum of 10 products, each below 1
    }
  }
}

TEST(Explain, PositionsAreVaswanisAndTellEqualWordsApart) {
  const Trace trace = explain({.text = "to be or not to be", .second_text = "a b c d e f g", .positions = true});
  ASSERT_EQ(trace.positions->shape(), Dims({7, 16}));
  for (std::int64_t t = 0; t < 7; ++t) {
    for (std::int64_t n = 0; n < 8; ++n) {
      const double angle = static_cast<double>(t) / std::pow(10000, 2 * static_cast<double>(n) / 16);
      EXPECT_EQ(trace.positions->item({t, 2 * n}), static_cast<float>(std::sin(angle)));
      EXPECT_EQ(trace.positions->item({t, 2 * n + 1}), static_cast<float>(std::cos(angle)));
    }
  }
  for (std::int64_t e = 0; e < 16; ++e) {
    const auto sum = [&](const Tensor& x, std::int64_t t) {
      return static_cast<float>(x.item({t, e})) + static_cast<float>(trace.positions->item({t, e}));
    };
    EXPECT_EQ(trace.inputs->item({5, e}), sum(trace.embeddings, 5));
    EXPECT_EQ(trace.inputs_2->item({6, e}), sum(*trace.embeddings_2, 6));
  }
  const View weights = trace.weights;
  EXPECT_NE(weights.item({0, 0}), weights.item({4, 0}));
  EXPECT_EQ(explain({.text = "a", .embedding_size = 1, .positions = true}).positions->item({0, 0}), 0);
  EXPECT_THAT(to_text(trace), HasSubstr("inputs = embeddings + positions"));
  EXPECT_EQ(trace.tensors()[2].first, "positions");
}

// What is left out changes nothing of the rest, and the walk of one head needs no more than its weights.
TEST(Explain, KeepsWhatIsAskedFor) {
  for (const ExplainOptions& options :
       {ExplainOptions{.text = "a b c d", .heads = 3}, ExplainOptions{.text = "a b c d", .heads = 3, .causal = true},
        ExplainOptions{.text = "a b c d", .heads = 3, .positions = true, .scale = false, .window = 1}}) {
    const Trace all = explain(options);
    std::vector<double> parts;
    const Trace one =
        explain(options, {.scores = false, .head = 1, .progress = [&](double part) { parts.push_back(part); }});
    EXPECT_EQ(parts, std::vector<double>{1});
    EXPECT_EQ(one.scores.count() + one.scaled_scores.count(), 0);
    EXPECT_FALSE(one.logits);
    ASSERT_EQ(one.weights.shape(), Dims({1, 4, 4}));
    expect_same(one.weights.view().select(0, 0), all.weights.view().select(0, 1));
    expect_same(*one.output, *all.output);
    EXPECT_EQ(to_text(one), to_text(all, {.head = 1}));
    EXPECT_EQ(to_svg(one), to_svg(all, {.head = 1}));
    EXPECT_NE(to_svg(one), to_svg(all));
    expect_error(
        ErrorCode::bad_value, [&] { to_text(one, {.head = 0}); }, "kept head 1 alone");
    expect_error(
        ErrorCode::bad_value, [&] { to_text(one, {.all = true}); }, "were not kept");
    const auto bytes_of = [](const Trace& trace) {
      std::int64_t numbers = 0;
      for (const Tensor* each :
           {&trace.embeddings, &trace.w_query, &trace.w_key, &trace.w_value, &trace.queries, &trace.keys, &trace.values,
            &trace.scores, &trace.scaled_scores, &trace.weights, &trace.context})
        numbers += each->count();
      for (const auto* each : {&trace.embeddings_2, &trace.positions, &trace.inputs, &trace.inputs_2, &trace.logits,
                               &trace.w_output, &trace.concat_heads, &trace.output})
        numbers += *each ? (*each)->count() : 0;
      return 4 * numbers;
    };
    EXPECT_EQ(explain_bytes(options), bytes_of(all));
    EXPECT_EQ(explain_bytes(options, {.scores = false, .head = 1}), bytes_of(one));
    ExplainOptions many = options;
    many.heads = std::int64_t{1} << 55;
    EXPECT_EQ(explain_bytes(many), INT64_MAX);
  }
  expect_error(
      ErrorCode::bad_value, [] { explain({.heads = 2}, {.head = 2}); }, "head is 2");
  // In pieces of some millions of pairs.
  std::string text;
  for (int i = 0; i < 1500; ++i) text.append("w").append(std::to_string(i)).append(" ");
  const Trace trace = explain({.text = text, .d_k = 2, .causal = true, .window = 1400});
  const AttentionSteps steps =
      attention_steps(trace.queries, trace.keys, trace.values, {.causal = true, .window = {1400, 1400}});
  expect_same(trace.scores, steps.scores);
  expect_same(trace.scaled_scores, steps.scaled_scores);
  expect_same(*trace.logits, steps.logits);
  expect_same(trace.weights, steps.weights);
}

TEST(Explain, AByteOrderMarkIsNoPartOfTheText) {
  const Trace trace = explain({.text = "\xef\xbb\xbf"
                                       "a b",
                               .second_text = "\xef\xbb\xbf"
                                              "c"});
  EXPECT_EQ(trace.tokens, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(trace.tokens_2, (std::vector<std::string>{"c"}));
  EXPECT_EQ(trace.title, "a b");
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
  const Trace trace = explain({.text = "a b c d e f", .heads = 2, .causal = true});
  for (std::int64_t h = 0; h < 2; ++h) {
    for (std::int64_t i = 0; i < 6; ++i) {
      for (std::int64_t j = 0; j < 6; ++j) {
        EXPECT_EQ(trace.weights.item({h, i, j}) == 0, j > i);
        EXPECT_EQ(trace.logits->item({h, i, j}), j > i ? -INFINITY : trace.scaled_scores.item({h, i, j}));
      }
    }
  }
  expect_same(trace.scores, explain({.text = "a b c d e f", .heads = 2}).scores);
}

// The plain way to weights and context from queries, keys and values, in double.
void expect_plain_attention(const Trace& trace, double scale, const std::function<bool(int, int)>& sees) {
  const auto length = static_cast<int>(std::ssize(trace.tokens));
  for (int i = 0; i < length; ++i) {
    std::vector<double> e(static_cast<std::size_t>(length));
    double sum = 0;
    for (int j = 0; j < length; ++j) {
      double score = 0;
      for (std::int64_t d = 0; d < trace.queries.size(1); ++d)
        score += trace.queries.item({i, d}) * trace.keys.item({j, d});
      EXPECT_NEAR(trace.scores.item({i, j}), score, 1e-5);  // f32 sums of 24 products, of numbers around 1
      EXPECT_NEAR(trace.scaled_scores.item({i, j}), score * scale, 1e-5);
      EXPECT_EQ(trace.logits && trace.logits->item({i, j}) == -INFINITY, !sees(i, j));
      sum += e[static_cast<std::size_t>(j)] = sees(i, j) ? std::exp(score * scale) : 0;
    }
    for (int j = 0; j < length; ++j)
      EXPECT_NEAR(trace.weights.item({i, j}), e[static_cast<std::size_t>(j)] / sum, 1e-5) << i << ' ' << j;
    for (std::int64_t d = 0; d < trace.values.size(1); ++d) {
      double context = 0;
      for (int j = 0; j < length; ++j) context += e[static_cast<std::size_t>(j)] / sum * trace.values.item({j, d});
      EXPECT_NEAR(trace.context.item({i, d}), context, 1e-5);
    }
  }
}

TEST(Explain, WithoutScaleTheSoftmaxTakesTheScores) {
  const ExplainOptions options{.text = "a b c d e f", .scale = false};
  const Trace trace = explain(options);
  expect_same(trace.scaled_scores, trace.scores);
  expect_plain_attention(trace, 1, [](int, int) { return true; });
  const Trace scaled = explain({.text = "a b c d e f"});
  expect_plain_attention(scaled, 1 / std::sqrt(24.0), [](int, int) { return true; });
  expect_same(trace.scores, scaled.scores);
  const AttentionSteps steps = attention_steps(trace.queries, trace.keys, trace.values, {.scale = 1});
  expect_same(trace.weights, steps.weights);
}

TEST(Explain, AWindowHidesDistantWords) {
  for (const bool causal : {false, true}) {
    for (const int window : {0, 1, 2, 7}) {
      const Trace trace = explain({.text = "a b c d e f g", .causal = causal, .window = window});
      ASSERT_TRUE(trace.logits);
      expect_plain_attention(trace, 1 / std::sqrt(24.0),
                             [&](int i, int j) { return std::abs(i - j) <= window && (!causal || j <= i); });
      const AttentionSteps steps =
          attention_steps(trace.queries, trace.keys, trace.values, {.causal = causal, .window = {window, window}});
      expect_same(*trace.logits, steps.logits);
      expect_same(trace.weights, steps.weights);
    }
  }
  // As wide as the sentence or wider is as without; in heads likewise.
  for (const std::int64_t window : {std::int64_t{3}, std::numeric_limits<std::int64_t>::max()}) {
    const ExplainOptions wide{.text = "a b c d", .heads = 2, .causal = true, .window = window};
    expect_same_traces(explain(wide), explain({.text = "a b c d", .heads = 2, .causal = true}));
    EXPECT_THAT(to_text(explain(wide)), HasSubstr("\"b\" sees 2 of 4 keys"));
  }
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
  for (int i = 0; i < 2000; ++i) text.append("word").append(std::to_string(i * 7 % 1999)).append(" ");
  const Trace many = explain({.text = text});
  EXPECT_EQ(many.weights.shape(), Dims({2000, 2000}));
  const std::string walk = to_text(many);
  EXPECT_THAT(walk, HasSubstr("and 1976 keys with smaller weights"));
  EXPECT_LT(walk.size(), 22'000u) << "a long sentence is summed up, not poured out";
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
      value, [] { explain({.window = -1}); }, "window is -1, expected at least 0");
  expect_error(
      value, [] { explain({.second_text = "x", .window = 1}); }, "window", "second sentence");
  expect_error(
      value, [] { explain_preset("lief"); }, "'lief'");
  expect_error(
      value, [] { to_text(explain({}), {.focus = 6}); }, "focus is 6", "6 words");
  expect_error(
      value, [] { to_text(explain({.heads = 2}), {.head = 2}); }, "head is 2", "expected 0 to 1");
}

// A trace is made again from what each file says of it.
TEST(WriteTrace, SaysHowTheTraceWasMade) {
  const ExplainOptions options{.text = "naïve 東京, <b>",
                               .seed = 18446744073709551615u,
                               .embedding_size = 5,
                               .d_k = 3,
                               .d_v = 2,
                               .heads = 2,
                               .weights = WeightInit::uniform,
                               .causal = true,
                               .positions = true,
                               .scale = false,
                               .window = 1};
  ExplainOptions crossed = options;
  crossed.causal = false;
  crossed.window = {};
  crossed.second_text = "uno due";
  const std::string file = testing::TempDir() + "/attend_made";
  for (const ExplainOptions& asked : {options, crossed, ExplainOptions{}}) {
    const Trace trace = explain(asked);
    write_trace(file + ".npz", trace);
    write_trace(file + ".safetensors", trace);
    const Tensor bytes = std::move(read_npz(file + ".npz").at("made"));
    for (const std::string& made :
         {nlohmann::json::parse(to_json(trace))["made"].dump(),
          std::string(static_cast<const char*>(bytes.raw()), static_cast<std::size_t>(bytes.count())),
          read_safetensors(file + ".safetensors").metadata.at("made")}) {
      const auto json = nlohmann::json::parse(made);
      ExplainOptions again{.text = json["text"],
                           .seed = json["seed"],
                           .embedding_size = json["embedding_size"],
                           .d_k = json["d_k"],
                           .d_v = json["d_v"],
                           .heads = json["heads"],
                           .weights = json["weights"] == "linear" ? WeightInit::linear : WeightInit::uniform,
                           .causal = json["causal"],
                           .positions = json["positions"],
                           .scale = json["scale"]};
      if (!json["window"].is_null()) again.window = json["window"];
      if (!json["second_text"].is_null()) again.second_text = json["second_text"];
      EXPECT_EQ(json.size(), 12u);
      expect_same_traces(explain(again), trace);
    }
  }
  std::filesystem::remove(file + ".npz");
  std::filesystem::remove(file + ".safetensors");
}

// The walk shows the numbers of document 002, the dot product that it works out, and its sum.
TEST(ToText, ShowsEveryStepOfTheDocument) {
  const std::string text = to_text(explain_preset("life"));
  for (const char* part :
       {"2  Words become ids", "scores = queries keysᵀ    [6,6] = [6,24] [24,6]", "[ 0.5146,  0.9938, -0.2587",
        "the query of \"is\" with the key of \"dessert\"", "scores(is, dessert) = their sum = 11.1466",
        "scores / √24 = scores / 4.8990", "      dessert          2.2753   1.0000   0.4917\n", "row sum = 1.0000",
        "0.4917·values(dessert)", "[-1.5993,  0.0156,  1.2670"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_LT(text.find("│"), text.find("embeddings(is)")) << "the picture comes first";
  EXPECT_THAT(text, testing::Not(HasSubstr("-0.3035")));  // a row of another word
  const std::string all = to_text(explain_preset("life"), {.all = true});
  for (const char* part : {"[ 0.3374, -0.1778, -0.3035", "[0.2912, 0.0106, 0.0982, 0.0625, 0.4917, 0.0458]"})
    EXPECT_THAT(all, HasSubstr(part));
  EXPECT_THAT(text, testing::Not(HasSubstr("\x1b")));
  EXPECT_THAT(to_text(explain_preset("life"), {.colour = true}), HasSubstr("\x1b[1m"));
}

TEST(ToText, WorksOutTheChosenQueryAndHead) {
  const std::string text = to_text(explain_preset("my-name-multihead"), {.focus = 3, .head = 2});
  for (const char* part : {"Queries meet keys: scores (head 2)", "the query of \"Marcello\"", "scores = queries keysᵀ",
                           "queries(Marcello)", "output = concat_heads w_output"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(ToText, NamesWhatHasNoWordAndTellsRepeatedWordsApart) {
  EXPECT_THAT(to_text(explain_preset("life-cross")), HasSubstr("the key of \"x8\""));
  EXPECT_THAT(to_svg(explain_preset("life-cross")), HasSubstr(">x8</text>"));
  const Trace trace = explain({.text = "to be or not to be", .heads = 2});
  EXPECT_THAT(to_text(trace, {.focus = 4}), HasSubstr("the query of \"to₅\""));
  for (const std::string& text : {to_text(trace), to_html(trace, {}, ""), to_svg(trace)}) {
    EXPECT_THAT(text, testing::AllOf(HasSubstr("to₁"), HasSubstr("be₆"), HasSubstr("not")));
    EXPECT_THAT(text, testing::Not(testing::ContainsRegex("\\[0\\]|not₄|to \\(")));
  }
  EXPECT_THAT(to_svg(trace), testing::AllOf(HasSubstr(">head 0<"), HasSubstr(">head 1<")));
}

TEST(ToText, SaysWhatIsHidden) {
  const Trace trace = explain({.text = "a b c", .causal = true});
  const std::string text = to_text(trace, {.width = 200});
  EXPECT_THAT(text, HasSubstr("\"b\" sees 2 of 3 keys"));
  EXPECT_THAT(text, HasSubstr("logits(b):"));
  EXPECT_THAT(text, HasSubstr(",    -inf]"));
  EXPECT_THAT(text, HasSubstr("weights = softmax(logits)"));
  EXPECT_THAT(text, testing::ContainsRegex("\n      c +-inf +0 +hidden\n"));
  EXPECT_THAT(text, HasSubstr("╱╱ hidden"));
  EXPECT_EQ(explain_preset("life").logits, std::nullopt);
}

TEST(ToText, SaysWhatAWindowHides) {
  const auto text = [](bool causal, std::int64_t window) {
    return to_text(explain({.text = "a b c d e f", .causal = causal, .window = window}), {.width = 300, .focus = 3});
  };
  const std::string both = text(false, 1), causal = text(true, 2);
  for (const char* part :
       {"hidden from it, as they stand more than 1 word away.", "Distant keys are hidden",
        "A window: a word sees itself and the word before it and after it.", "\"d\" sees 3 of 6 keys",
        "which it matches best of those that it sees", "weights = softmax(logits)"})
    EXPECT_THAT(both, HasSubstr(part));
  EXPECT_THAT(both, testing::ContainsRegex("\n      b +-inf +0 +hidden\n      c +-?[0-9]"));
  EXPECT_THAT(both, testing::ContainsRegex("\n      f +-inf +0 +hidden\n"));
  for (const char* part :
       {"as they come later or stand more than 2 words before it.", "Later and distant keys are hidden",
        "Causal, in a window: a word sees itself and the 2 words before it.", "\"d\" sees 3 of 6 keys"})
    EXPECT_THAT(causal, HasSubstr(part));
  EXPECT_THAT(to_svg(explain({.text = "a b", .causal = true, .scale = false, .window = 2})),
              HasSubstr("Causal self-attention weights, window 2, not scaled: a b"));
  const std::string alone = text(false, 0);
  EXPECT_THAT(alone, HasSubstr("\"d\" sees 1 of 6 keys"));
  EXPECT_THAT(alone, HasSubstr("A window: a word sees itself alone."));
  EXPECT_THAT(alone, testing::Not(HasSubstr("more than 0.99"))) << "a query of one key has nothing to share";
}

TEST(ToText, SaysThatScoresAreNotScaled) {
  const std::string text = to_text(explain({.scale = false}), {.width = 300});
  for (const char* part : {"Scores are not scaled", "here √24 = 4.8990", "scaled_scores = scores    [6,6]",
                           "So 4 of the 6 queries will give one key more than 0.99"})
    EXPECT_THAT(text, HasSubstr(part));
  EXPECT_THAT(text, testing::Not(HasSubstr("scores / ")));
}

// Every query's best match is one that it sees, whatever the hidden keys score.
TEST(ToText, TheBestMatchIsVisible) {
  const Trace trace = explain({.text = "a b c d e f g h", .seed = 5, .causal = true});
  int better_hidden = 0;
  for (std::int64_t i = 0; i < 8; ++i) {
    std::int64_t best = 0, best_of_all = 0;
    for (std::int64_t j = 0; j < 8; ++j) {
      if (j <= i && trace.scores.item({i, j}) > trace.scores.item({i, best})) best = j;
      if (trace.scores.item({i, j}) > trace.scores.item({i, best_of_all})) best_of_all = j;
    }
    better_hidden += best != best_of_all;
    EXPECT_THAT(to_text(trace, {.width = 200, .focus = i}),
                HasSubstr("with the key of \"" + trace.tokens[static_cast<std::size_t>(best)] +
                          "\", which it matches best of those that it sees"));
  }
  EXPECT_GE(better_hidden, 2);
}

TEST(ToText, NoLineIsWiderThanTheText) {
  const std::string long_word(300, 'w');
  for (const int width : {40, 60, 80, 120}) {
    for (const bool all : {false, true}) {
      for (const ExplainOptions& options :
           {ExplainOptions{},
            ExplainOptions{.text = "the 東京 the " + long_word, .heads = 2, .causal = true, .positions = true},
            ExplainOptions{.text = "a b " + long_word, .causal = true, .scale = false, .window = 1},
            ExplainOptions{.text = "a " + long_word, .second_text = long_word + " b"}}) {
        std::istringstream lines(to_text(explain(options), {.width = width, .focus = 1, .all = all}));
        for (std::string line; std::getline(lines, line);)
          ASSERT_LE(display_width(decode_utf8(line, {"", "line"})), width) << line;
      }
    }
  }
}

TEST(ToJson, HasTheDocumentedKeysAndShortestNumbers) {
  const Trace trace = explain_preset("my-name-multihead");
  const auto json = nlohmann::ordered_json::parse(to_json(trace));
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  EXPECT_EQ(keys, (std::vector<std::string>{"schema_version", "preset", "tokens", "ids", "weights_in_out", "made",
                                            "tensors"}));
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
  EXPECT_THAT(to_json(explain_preset("life-cross")), HasSubstr("\"tokens_2\":[],\"ids_2\":[],\"weights_in_out\""));
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
  for (const std::string& text : {to_text(trace), to_html(trace, {}, "")}) {
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
  const Trace bytes_of_text = changed([](Trace& t) { t.options.text = "\xff"; });
  const Trace fewer = changed([](Trace& t) { t.tokens.resize(1); });
  const Trace fewer_ids = changed([](Trace& t) { t.ids.clear(); });
  for (const auto& write :
       {to_json, +[](const Trace& t) { return to_text(t); }, +[](const Trace& t) { return to_html(t); }}) {
    expect_error(
        ErrorCode::bad_value, [&] { write(bytes); }, "not UTF-8");
    expect_error(
        ErrorCode::bad_value, [&] { write(bytes_of_text); }, "not UTF-8");
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

// The weights of a recording are made from q, k and lse; the trace's are those of attention_steps.
void expect_recorded(const Recording& recording, const Trace& trace) {
  ASSERT_EQ(recording.layers().size(), 1u);
  const std::int64_t heads = trace.multi_head() ? trace.queries.size(0) : 1;
  EXPECT_EQ(std::ssize(recording.layers()[0].heads), heads);
  for (std::int64_t h = 0; h < heads; ++h) {
    const View weights = trace.multi_head() ? trace.weights.view().select(0, h) : trace.weights.view();
    expect_close(recording.weights(0, 0, h), weights, 1e-6);
    expect_close(recording.numbers(0, "map").view().select(0, 0).select(0, h), weights, 1e-6);
  }
}

TEST(ToRecording, HasTheTracesWeights) {
  for (const Preset& preset : presets()) {
    const Trace trace = explain_preset(preset.name);
    SCOPED_TRACE(preset.name);
    expect_recorded(to_recording(trace), trace);
  }
  for (const bool hides : {false, true}) {
    const Trace trace = explain({.text = "a b c d e f", .heads = 2, .causal = hides, .scale = false, .window = 1});
    expect_recorded(to_recording(trace), trace);
  }
  const Trace wide = explain({.text = "a b", .window = std::numeric_limits<std::int64_t>::max()});
  expect_recorded(to_recording(wide), wide);
  const Trace causal = explain({.text = "the cat saw the cat", .heads = 3, .causal = true});
  const Recording recording = to_recording(causal);
  expect_recorded(recording, causal);
  EXPECT_EQ(recording.layers()[0].name, "0.self");
  EXPECT_EQ(recording.query_tokens(0).at(0), causal.tokens);
  EXPECT_EQ(recording.key_tokens(0).at(0), causal.tokens);
  expect_same(recording.ids()->view().select(0, 0), View(causal.ids.data(), DType::i64, {5}));
  // Words that come again: "duplicate" is of query 3 and key 0, query 4 and key 1.
  const float* w = causal.weights.data<float>();
  EXPECT_NEAR(*recording.scores(0)[0].duplicate, (w[3 * 5 + 0] + w[4 * 5 + 1]) / 5, 1e-6);
}

TEST(ToRecording, ASecondSentenceIsTheKeys) {
  const Trace cross = explain({.text = "the cat", .second_text = "le chat dort", .heads = 2});
  const std::string file = (std::filesystem::path(testing::TempDir()) / "attend_cross.attend").string();
  write_trace(file, cross);
  const Recording recording = Recording::load(file);
  expect_recorded(recording, cross);
  EXPECT_EQ(recording.layers()[0].name, "decoder.0.cross");
  EXPECT_EQ(recording.layers()[0].kind, "cross");
  EXPECT_EQ(recording.query_tokens(0).at(0), cross.tokens);
  EXPECT_EQ(recording.key_tokens(0).at(0), cross.tokens_2);
  EXPECT_EQ(recording.ids()->shape(), Dims({1, 3}));
  EXPECT_EQ(recording.decoder_ids()->shape(), Dims({1, 2}));
  EXPECT_EQ(recording.model, "attend explain (random weights, seed 123)");
  std::filesystem::remove(file);
  // Its second sequence is numbers.
  const Recording unnamed = to_recording(explain_preset("life-cross"));
  EXPECT_EQ(unnamed.query_tokens(0).at(0).size(), 6u);
  EXPECT_TRUE(unnamed.key_tokens(0).empty());
  EXPECT_FALSE(unnamed.ids().has_value());
}

TEST(WriteTrace, EveryFormatReadsBack) {
  const Trace trace = explain({.text = "naïve 東京 <b>", .heads = 2});
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "attend_write_trace";
  std::filesystem::create_directories(folder);
  const auto path = [&](const char* name) { return (folder / name).string(); };
  for (const char* name : {"t.npz", "t.safetensors"}) {
    write_trace(path(name), trace);
    const TensorMap read = read_tensors(path(name));
    EXPECT_EQ(read.size(), trace.tensors().size() + (name == std::string("t.npz") ? 3 : 1));
    for (const auto& [key, tensor] : trace.tensors()) expect_same(read.at(key), tensor, key);
    EXPECT_EQ(read.at("ids").shape(), Dims({3}));
  }
  EXPECT_THAT(read_safetensors(path("t.safetensors")).metadata.at("tokens"), HasSubstr("東京"));
  const Tensor tokens = std::move(read_npz(path("t.npz")).at("tokens"));
  EXPECT_EQ(std::string(static_cast<const char*>(tokens.raw()), static_cast<std::size_t>(tokens.count())),
            read_safetensors(path("t.safetensors")).metadata.at("tokens"));
  for (const char* name : {"t.json", "t.svg", "t.png", "t.html"}) {
    write_trace(path(name), trace);
    EXPECT_GT(std::filesystem::file_size(path(name)), 1000u) << name;
  }
  EXPECT_THAT(to_html(trace, {}, ""), testing::AllOf(HasSubstr("&lt;b&gt;"), testing::Not(HasSubstr("<b>"))));
  expect_error(
      ErrorCode::bad_value, [&] { write_trace(path("t.jpg"), trace); }, "t.jpg", ".png");
  std::filesystem::remove_all(folder);
}

// Its numbers: tests/cli/test_sheet.py.
TEST(ExerciseSheet, IsOneOfItsSeedAndSaysWhatItCantBe) {
  const SheetOptions options{.text = "naïve 東京 <b>", .seed = 7};
  const std::string sheet = exercise_sheet(options);
  EXPECT_EQ(sheet, exercise_sheet(options));
  EXPECT_NE(sheet, exercise_sheet({.text = options.text, .seed = 8}));
  EXPECT_THAT(sheet,
              testing::AllOf(HasSubstr("東京"), HasSubstr("&lt;b&gt;"), HasSubstr("Attention by hand: answers")));
  EXPECT_THAT(exercise_sheet({.text = "a a a", .causal = true}), HasSubstr("a₃"));  // no weights that differ
  expect_error(
      ErrorCode::bad_value, [] { (void)exercise_sheet({.text = ""}); }, "no words");
  expect_error(
      ErrorCode::bad_value, [] { (void)exercise_sheet({.text = "one"}); }, "2 to 12 words, got 1");
  expect_error(
      ErrorCode::bad_value, [] { (void)exercise_sheet({.text = "a b", .focus = 2}); }, "focus is 2, expected 0 to 1");
  expect_error(
      ErrorCode::bad_value, [] { (void)exercise_sheet({.text = "a b", .focus = 0, .causal = true}); },
      "sees itself alone");
  expect_error(
      ErrorCode::bad_value, [] { (void)exercise_sheet({.text = "a \xff"}); }, "exercise_sheet", "UTF-8");
}

}  // namespace
}  // namespace attend
