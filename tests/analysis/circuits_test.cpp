// edges(), circuit(), path_patch(), explain_value() and trace_answer() on the models of tests/golden: what sums, and
// the same bits for any threads. test_circuits.py and test_score_split.py have the numbers beside Transformers'
// modules.
#include "attend/circuits.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "attend/analysis_look.h"
#include "attend/answer_trace.h"
#include "attend/score_split.h"
#include "tests/allocations.h"
#include "tests/expect.h"
#include "tests/threads_at_most.h"

namespace attend {
namespace {

using namespace test;

const AnswerPair pair{.clean = {3, 7, 5, 12, 9, 4}, .corrupt = {3, 7, 8, 12, 9, 4}, .token = 5, .against = 9};

Model load(const std::string& name, DType dtype = DType::f32) {
  return Model::load(data("golden/models/" + name), {.dtype = dtype});
}

TEST(CircuitNode, IsNamedThereAndBack) {
  for (const std::string name : {"embedding", "3.2", "mlp 3", "3.2 q", "3.0 k", "3.0 v", "output"})
    EXPECT_EQ(name_of(node_named(name)), name);
  for (const std::string name : {"", "mlp", "mlp x", "mlp 99999999", "3.2 z", "decoder.1.cross.0", "encoder.1.self.0"})
    expect_error(
        ErrorCode::bad_value, [&] { (void)node_named(name); }, name.empty() ? "" : name);
}

TEST(Edges, AllOfThemKeepTheAnswerAndNoneKeepsNothing) {
  for (const std::string name : {"gemma3", "gpt2", "gpt_neox", "llama", "mistral", "olmo2", "phi3", "qwen2", "qwen3"}) {
    const Model model = load(name);
    const Edges found = edges(model, {&pair, 1});
    const ModelInfo& info = model.info();
    EXPECT_EQ(std::ssize(found.sources), 1 + info.layers * (info.heads + 1)) << name;
    EXPECT_EQ(std::ssize(found.receivers), info.layers * (info.heads + 2 * info.kv_heads + 1) + 1) << name;
    EXPECT_EQ(found.before(std::ssize(found.receivers) - 1), std::ssize(found.sources)) << name;
    const Circuit all = circuit(model, found, {.keep = 1'000'000}), none = circuit(model, found, {.keep = 0});
    EXPECT_EQ(std::ssize(all.edges), found.count()) << name;
    EXPECT_NEAR(all.faithfulness, 1, 1e-3) << name;
    EXPECT_NEAR(none.faithfulness, 0, 1e-3) << name;
    EXPECT_TRUE(none.edges.empty());
  }
}

TEST(Edges, ThreadsDoNotMatter) {
  const Model model = load("llama");
  const EdgeOptions options{.method = EdgeOptions::Method::eap_ig, .steps = 2};
  const Edges found = edges(model, {&pair, 1}, options);
  const Circuit kept = circuit(model, found, {.keep = 12});
  const AnswerTrace trace = trace_answer(model, pair.clean, {.token = 5});
  const test::ThreadsAtMost limit(1);
  expect_same(edges(model, {&pair, 1}, options).scores, found.scores);
  EXPECT_EQ(circuit(model, found, {.keep = 12}).value, kept.value);
  EXPECT_EQ(to_json(trace_answer(model, pair.clean, {.token = 5})), to_json(trace));
}

TEST(Edges, TellProgressWhichMayEndThem) {
  const Model model = load("llama");
  const std::vector<AnswerPair> pairs(3, pair);
  std::vector<double> told;
  const Edges found = edges(model, pairs, {.progress = [&](double share) { told.push_back(share); }});
  EXPECT_EQ(told, (std::vector<double>{1.0 / 6, 2.0 / 6, 3.0 / 6, 4.0 / 6, 5.0 / 6, 1}));
  told.clear();
  (void)circuit(model, found, {.faithfulness = 0.5, .progress = [&](double share) { told.push_back(share); }});
  EXPECT_EQ(told.back(), 1);
  struct Enough {};
  EXPECT_THROW((void)edges(model, pairs, {.progress = [](double) { throw Enough(); }}), Enough);
}

// Whatever allocation fails, the next call finds everything as it was.
TEST(Edges, ACallThatFailsTakesNothingWithIt) {
  const Model model = load("llama");
  const auto asked = [&] {
    const Edges found = edges(model, {&pair, 1});
    // Not to_json() of it: nlohmann::json allocates where it destroys, and ends the program where that fails.
    const AnswerTrace traced = trace_answer(model, pair.clean, {.heads = 1});
    return std::pair(circuit(model, found, {.keep = 9}).value, traced.heads.at(0).value);
  };
  const auto expected = asked();
  bool failed = true;
  for (std::int64_t n = 0; failed; n += 5) {
    const CountAllocations counted(n);
    try {
      (void)asked();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::out_of_memory) << error.what();
    } catch (const std::bad_alloc&) {
    }
    failed = counted.failed();
  }
  EXPECT_EQ(asked(), expected);
}

TEST(Circuit, IsJsonCsvAndAGraph) {
  const Model model = load("llama");
  const Edges found = edges(model, {&pair, 1});
  const Circuit kept = circuit(model, found, {.keep = 30});
  ASSERT_FALSE(kept.edges.empty());
  EXPECT_NE(to_json(kept, found).find("\"faithfulness\""), std::string::npos);
  const std::string csv = circuit_csv(kept, found), dot = circuit_dot(kept, found);
  EXPECT_EQ(std::ranges::count(csv, '\n'), std::ssize(kept.edges) + 1);
  std::int64_t arrows = 0, dotted = 0;
  for (std::size_t at = dot.find("->"); at != std::string::npos; at = dot.find("->", at + 1)) ++arrows;
  for (std::size_t at = dot.find("dotted"); at != std::string::npos; at = dot.find("dotted", at + 1)) ++dotted;
  EXPECT_EQ(arrows - dotted, std::ssize(kept.edges));
  EXPECT_GT(dotted, 0);  // two heads share keys
}

TEST(Circuit, OfNothingOrOfAnotherModelIsRefused) {
  const Model model = load("llama");
  const Edges found = edges(model, {&pair, 1});
  const CircuitEdge beyond{.source = 0, .receiver = 999};
  expect_error(
      ErrorCode::bad_value,
      [&] {
        (void)circuit(model, found, {.edges = {&beyond, 1}});
      },
      "from source 0 to receiver 999");
  // What was changed by hand since.
  Edges other = edges(model, {&pair, 1});
  other.pairs[0].token = 99;
  expect_error(
      ErrorCode::bad_value, [&] { (void)circuit(model, other, {}); }, "token is 99");
  other.pairs[0] = {.clean = {1, 2}, .corrupt = {1}, .token = 5, .against = 9};
  expect_error(
      ErrorCode::bad_value, [&] { (void)circuit(model, other, {}); }, "2 tokens and the corrupt one 1");
  other.pairs[0] = pair, other.scores = Tensor({1, 1});
  expect_error(
      ErrorCode::bad_shape, [&] { (void)circuit(model, other, {}); }, "scores are f32 [1,1]");
  // An edge that is given twice is one edge.
  const CircuitEdge first{.source = 0, .receiver = std::ssize(found.receivers) - 1}, twice[] = {first, first};
  EXPECT_EQ(circuit(model, found, {.edges = twice}).value, circuit(model, found, {.edges = {&first, 1}}).value);
  AnswerPair same = pair;
  same.corrupt = same.clean;
  expect_error(
      ErrorCode::bad_value,
      [&] {
        (void)circuit(model, edges(model, {&same, 1}), {});
      },
      "there is nothing to keep");
  expect_error(
      ErrorCode::bad_value, [&] { (void)circuit(load("gpt2"), found, {}); }, "another model");
  expect_error(
      ErrorCode::bad_value, [&] { (void)edges(model, {}); }, "there are no pairs of texts");
  expect_error(
      ErrorCode::bad_value,
      [&] {
        (void)edges(load("t5"), {&pair, 1});
      },
      "an encoder-decoder");
  expect_error(
      ErrorCode::bad_value,
      [&] {
        (void)edges(load("opt"), {&pair, 1});
      },
      "post-norm");
  expect_error(
      ErrorCode::bad_value, [&] { (void)path_patch(model, pair, {}, {}); }, "there are 0 and 0");
}

TEST(ValueSplit, PartsSumToTheValue) {
  for (const std::string name :
       {"gemma3", "gpt2", "gpt_neox", "llama", "olmo2", "opt", "phi3", "qwen3", "bart", "t5"}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Model model = load(name, dtype);
      ValueOptions options{.token = 5, .against = 9};
      const std::vector<std::int64_t> decoder_ids{0, 5, 11, 3, 8, 2};
      AttributeOptions asked{.token = 5, .against = 9};
      if (model.info().encoder_decoder()) options.decoder_ids = asked.decoder_ids = decoder_ids;
      const ValueSplit found = explain_value(model, pair.clean, {-1, 1}, 2, options);
      double size = 0, sum = found.rest;
      for (const AttributionPart& part : found.parts) size += std::abs(part.value), sum += part.value;
      EXPECT_NEAR(sum, found.value, 1e-9 * size) << name;
      EXPECT_LE(std::abs(found.rest), (dtype == DType::f32 ? 1e-5 : 2e-2) * size) << name;
      EXPECT_EQ(found.token, 5);
      // The head's weight on the key, at most 1, times the value.
      const Attribution whole = attribute(model, pair.clean, asked);
      const std::int64_t L = whole.heads.size(0), H = whole.heads.size(1), T = whole.heads.size(2);
      const double wrote = static_cast<double>(whole.heads.data<float>()[((L - 1) * H + 1) * T + 2]);
      EXPECT_GT(wrote / found.value, 0) << name;
      EXPECT_LE(wrote / found.value, 1 + 1e-2) << name;
    }
  }
}

TEST(AnswerTrace, HasTheStrongestHeadsOfTheAttribution) {
  const Model model = load("llama");
  const AnswerTrace found = trace_answer(model, pair.clean, {.token = 5, .against = 9, .heads = 4, .parts = 2});
  const Attribution whole = attribute(model, pair.clean, {.token = 5, .against = 9});
  std::vector<AttributionPart> heads = strongest_parts(whole, 1000);
  std::erase_if(heads, [](const AttributionPart& part) { return part.kind != AttributionPart::Kind::head; });
  ASSERT_EQ(found.heads.size(), 4U);
  EXPECT_EQ(found.logit, whole.capped_logit);
  for (std::size_t n = 0; n < 4; ++n) {
    const TracedHead& head = found.heads[n];
    EXPECT_EQ(head.wrote.part.value, heads[n].value);
    const ScoreSplit score =
        explain_score(model, pair.clean, {heads[n].layer, heads[n].head}, found.position, heads[n].key);
    EXPECT_EQ(head.score, score.score);
    for (const std::vector<TracedPart>* side : {&head.query, &head.key, &head.read}) {
      ASSERT_FALSE(side->empty());
      ASSERT_LE(side->size(), 2U);  // before the first layer there is the embedding alone
      EXPECT_GE(std::abs(side->front().part.value), std::abs(side->back().part.value));
    }
    // Without the head in that row, as an edit takes it out.
    Edit edit{.layer = heads[n].layer, .head = heads[n].head, .set = Edit::Set::zero};
    edit.rows = std::vector<std::int64_t>{found.position};
    const Tensor hidden = model.forward(pair.clean, {.edits = {&edit, 1}});
    const Tensor logits = model.logits(hidden.view().select(0, found.position));
    EXPECT_NEAR(*head.wrote.without,
                static_cast<double>(logits.data<float>()[5]) - static_cast<double>(logits.data<float>()[9]), 1e-6);
  }
  expect_error(
      ErrorCode::bad_value, [&] { (void)trace_answer(model, pair.clean, {.heads = 0}); }, "heads is 0");
}

}  // namespace
}  // namespace attend
