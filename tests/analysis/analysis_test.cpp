// attribute(), lens(), ablate() and patch() on the models of tests/golden; test_analysis.py has them beside
// Transformers.
#include "attend/analysis.h"
#include "attend/answer_trace.h"
#include "attend/circuits.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "attend/gradient.h"
#include "attend/passages.h"
#include "attend/saliency.h"
#include "attend/score_split.h"
#include "attend/threads.h"
#include "tests/expect.h"

namespace attend {
namespace {

using namespace test;

const std::vector<std::int64_t> ids{3, 7, 1, 12, 9, 4, 7, 1, 15};
const std::vector<std::string> decoders{"gpt2",     "llama", "mistral", "qwen2", "qwen3",
                                        "gpt_neox", "opt",   "phi3",    "olmo2", "gemma3"};

Model load(const std::string& name, DType dtype = DType::f32) {
  return Model::load(data("golden/models/" + name), {.dtype = dtype});
}

double sum(const Tensor& x) {
  return std::accumulate(x.data<float>(), x.data<float>() + x.count(), 0.0);
}

double size(const Tensor& x) {
  return std::accumulate(x.data<float>(), x.data<float>() + x.count(), 0.0,
                         [](double all, float each) { return all + std::abs(static_cast<double>(each)); });
}

TEST(Analysis, PartsSumToTheLogit) {
  for (const std::string& name : decoders) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Model model = load(name, dtype);
      for (const std::int64_t position : {0, 4, -1}) {
        const Attribution a = attribute(model, ids, {.token = 5, .against = 2, .position = position});
        const double parts = sum(a.heads) + sum(a.mlps) + a.embedding + a.bias;
        const double all = size(a.heads) + size(a.mlps) + std::abs(a.embedding) + std::abs(a.bias);
        EXPECT_NEAR(parts + a.rounding, a.logit, 1e-5 * all) << name;
        EXPECT_LT(std::abs(a.rounding), 0.02 * all) << name;
        if (dtype == DType::f32) {
          EXPECT_EQ(a.rounding, 0);
        }
        const Tensor logits = model.logits(model.forward(ids));
        const std::int64_t row = position < 0 ? std::ssize(ids) - 1 : position;
        EXPECT_NEAR(a.capped_logit, logits.view().item({row, 5}) - logits.view().item({row, 2}), 1e-5 * all);
      }
    }
  }
}

TEST(Analysis, PartsOfACacheAreThoseOfTheText) {
  for (const DType kept : {DType::f32, DType::i8}) {
    const Model model = load("llama");
    ModelCache cache = model.cache(kept);
    ModelCache* const caches[] = {&cache};
    model.forward(std::span(ids).first(6), {.caches = caches});
    const Attribution expected = attribute(model, ids, {.token = 5});
    const Attribution found = attribute(model, ids, {.token = 5, .cache = &cache});
    expect_close(found.heads, expected.heads, kept == DType::i8 ? 0.05 : 1e-5);
    EXPECT_EQ(cache.length(), 6);
  }
}

TEST(Analysis, StrongestPartsFall) {
  const Attribution a = attribute(load("gpt2"), ids);
  const auto parts = strongest_parts(a, 1000);
  EXPECT_EQ(std::ssize(parts), a.heads.count() + a.mlps.count() + 2);
  double all = 0;
  for (std::size_t n = 0; n < parts.size(); ++n) {
    all += parts[n].value;
    if (n > 0) {
      EXPECT_LE(std::abs(parts[n].value), std::abs(parts[n - 1].value));
    }
  }
  EXPECT_NEAR(all, a.logit, 1e-4);
  EXPECT_EQ(strongest_parts(a, 3).size(), 3U);
}

TEST(Analysis, ObserversSeeWhatEditsLeave) {
  for (const std::string name : {"bert", "gpt2", "llama"}) {
    const Model model = load(name);
    std::vector<std::string> places;
    const Edit zero{.layer = 1, .at = ModelPlace::mlp};
    const auto observe = [&](ModelPlace place, std::int64_t layer, const View& values) {
      places.push_back(std::string(name_of(place)) + std::to_string(layer));
      if (place == ModelPlace::mlp && layer == 1) {
        EXPECT_EQ(size(values.to(DType::f32)), 0);
      }
    };
    model.forward(ids, {.edits = {&zero, 1}, .observe = observe});
    std::vector<std::string> expected{"embeddings0"};
    for (const char* layer : {"0", "1"})
      for (const char* place : {"residual", "q", "k", "v", "rotated_q", "rotated_k", "z", "attention", "residual_mid",
                                "mlp_input", "mlp_hidden", "mlp"})
        expected.push_back(std::string(place) + layer);
    expected.emplace_back("residual2");
    EXPECT_EQ(places, expected);
  }
}

// An edit that sets what stands there already changes no bit.
TEST(Analysis, EditsOfWhatIsThere) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Model model = load("llama", dtype);
    Tensor z;
    const auto keep = [&](ModelPlace place, std::int64_t layer, const View& values) {
      if (place == ModelPlace::z && layer == 1) z = values.clone();
    };
    const Tensor before = model.forward(ids, {.observe = keep});
    const Edit same{.layer = 1, .set = Edit::Set::values, .values = z};
    expect_same(model.forward(ids, {.edits = {&same, 1}}), before);
  }
}

TEST(Analysis, HeadsTogetherAreOneEditedPass) {
  const Model model = load("qwen2");
  const Ablation found = ablate(model, ids, {.token = 5, .heads = {{0, 1}, {1, 0}}});
  const std::vector<Edit> edits{{.layer = 0, .head = 1}, {.layer = 1, .head = 0}};
  const std::int64_t last = std::ssize(ids) - 1;
  const double before = model.logits(model.forward(ids)).view().item({last, 5});
  const double after = model.logits(model.forward(ids, {.edits = edits})).view().item({last, 5});
  EXPECT_NEAR(found.logit.view().item({0}), after - before, 1e-6);
  const Ablation each = ablate(model, ids);
  EXPECT_EQ(each.kl.shape(), (Dims{2, 4}));
  EXPECT_GT(size(each.kl), 0);
}

// To the last bit: test_several_texts.py has every option.
TEST(Analysis, SeveralTextsAreEachAlone) {
  const Model model = load("llama");
  const std::vector<std::vector<std::int64_t>> texts{{3, 7, 1}, ids, {5}},
      corrupt{{3, 8, 1}, {3, 7, 2, 12, 9, 4, 7, 1, 16}, {6}};
  const AblateOptions options[] = {{.token = 5}, {.token = 6, .first_row = -2}, {.token = 7}};
  const PatchOptions one[] = {{}};
  const std::int64_t token[] = {4, 5, 6}, against[] = {9, 9, 9};
  const std::vector<Ablation> ablations = ablate(model, texts, options);
  const std::vector<Patching> patchings = patch(model, texts, corrupt, token, against, one);
  const std::vector<Attribution> parts = attribute(model, texts, std::vector<AttributeOptions>(1));
  const std::vector<Lens> lenses = lens(model, texts, std::vector<LensOptions>{{.positions = {-1}, .top = 2}});
  for (std::size_t n = 0; n < texts.size(); ++n) {
    expect_same(ablations[n].kl, ablate(model, texts[n], options[n]).kl);
    expect_same(patchings[n].recovered, patch(model, texts[n], corrupt[n], token[n], 9).recovered);
    expect_same(parts[n].heads, attribute(model, texts[n]).heads);
    expect_same(lenses[n].log_probabilities, lens(model, texts[n], std::vector<std::int64_t>{-1}, 2).log_probabilities);
  }
  const Averaged<Patching> average = attend::average(patchings);
  double parts_sum = 0, whole = 0;
  for (const Patching& each : patchings) {
    parts_sum += static_cast<double>(each.recovered.data<float>()[3]) * (each.clean - each.corrupt);
    whole += each.clean - each.corrupt;
  }
  EXPECT_NEAR(average.mean.recovered.data<float>()[3], parts_sum / whole, 1e-5 * std::abs(parts_sum / whole));
  EXPECT_EQ(average.texts, 3);
  EXPECT_EQ(average.mean.token, -1);
  EXPECT_EQ(average.mean.against, 9);
  const std::vector<std::vector<Range>> spans{{{0, 1}}, {{2, 5}}, {{0, 1}}};
  EXPECT_EQ(attend::average(parts, spans).mean.heads.shape(), (Dims{2, 4, 1}));
  expect_error(
      ErrorCode::bad_value, [&] { ablate(model, texts, std::span(options, 2)); }, "2 options for 3 texts");
  expect_error(
      ErrorCode::bad_value, [] { attend::average(std::span<const Ablation>()); }, "nothing to average");
}

// What a call was to read stays as it was, and so does the model.
TEST(Analysis, EndsWhereItIsToldTo) {
  const Model model = load("llama");
  std::vector<std::int64_t> corrupt = ids;
  corrupt[2] = 5;
  const Ablation before = ablate(model, ids);
  std::vector<double> told;
  const auto enough = [&](double share) {
    told.push_back(share);
    if (share > 0.5) throw std::runtime_error("enough");
  };
  EXPECT_THROW(ablate(model, ids, {.progress = enough}), std::runtime_error);
  EXPECT_THROW(patch(model, ids, corrupt, 1, 2, {.progress = enough}), std::runtime_error);
  EXPECT_THROW(saliency(model, ids, {.progress = enough}), std::runtime_error);
  EXPECT_THROW(passages(model, ids, {.spans = {{0, 2}}, .progress = enough}), std::runtime_error);
  ASSERT_GE(told.size(), 2u);
  EXPECT_LE(*std::ranges::max_element(told), 1);

  ModelCache cache = model.cache();
  ModelCache* const caches[] = {&cache};
  model.forward(ids, {.caches = caches});
  const Attribution known = attribute(model, ids, {.cache = &cache});
  {
    // It is asked every 20 ms: calls go on until one of them is old enough.
    const InterruptCheck check([] { return true; });
    const auto until_interrupted = [](const auto& call) {
      for (int n = 0; n < 100'000; ++n) {
        try {
          call();
        } catch (const Error& error) {
          return error.code() == ErrorCode::interrupted;
        }
      }
      return false;
    };
    EXPECT_TRUE(until_interrupted([&] { attribute(model, ids, {.cache = &cache}); }));
    EXPECT_TRUE(until_interrupted([&] { lens(model, ids); }));
    EXPECT_TRUE(until_interrupted([&] { ablate(model, ids); }));
    EXPECT_TRUE(until_interrupted([&] { patch(model, ids, corrupt, 1, 2); }));
    EXPECT_TRUE(until_interrupted([&] { patch(model, ids, corrupt, 1, 2, {.estimate = true}); }));
    EXPECT_TRUE(until_interrupted([&] { gradient(model, ids); }));
    EXPECT_TRUE(until_interrupted([&] { saliency(model, ids); }));
    EXPECT_TRUE(until_interrupted([&] { passages(model, ids, {.spans = {{0, 2}, {2, 4}}}); }));
    EXPECT_TRUE(until_interrupted([&] { explain_value(model, ids, {1, 0}, 0); }));
    EXPECT_TRUE(until_interrupted([&] { trace_answer(model, ids); }));
    const AnswerPair pair{.clean = ids, .corrupt = corrupt, .token = 1, .against = 2};
    EXPECT_TRUE(until_interrupted([&] { circuit(model, edges(model, {&pair, 1}), {}); }));
  }
  EXPECT_EQ(cache.length(), std::ssize(ids));
  expect_same(attribute(model, ids, {.cache = &cache}).heads, known.heads);
  expect_same(ablate(model, ids).kl, before.kl);
}

TEST(Analysis, WhatEncodersAndBadInputGet) {
  const Model bert = load("bert"), llama = load("llama");
  EXPECT_EQ(ablate(bert, ids).cosine_distance.shape(), (Dims{bert.info().layers, bert.info().heads}));
  expect_error(
      ErrorCode::bad_value, [&] { attribute(bert, ids); }, "attribute: expected a decoder");
  expect_error(
      ErrorCode::bad_value, [&] { lens(bert, ids); }, "lens: expected a decoder");
  expect_error(
      ErrorCode::bad_value, [&] { attribute(llama, ids, {.position = 9}); },
      "position is 9, expected 0 to 8, or -9 to -1 from the end");
  expect_error(
      ErrorCode::bad_value, [&] { attribute(llama, ids, {.token = 23}); }, "token is 23, expected 0 to 22");
  expect_error(
      ErrorCode::bad_value, [&] { lens(llama, ids, {}, 0); }, "top is 0, expected 1 to 23");
  expect_error(
      ErrorCode::bad_value, [&] { ablate(llama, ids, {.rows = {8}}); }, "the last row, after which no token follows");
  expect_error(
      ErrorCode::bad_value,
      [&] {
        ablate(llama, ids, {.heads = {{2, 0}}});
      },
      "head 2.0, expected layers 0 to 1");
  expect_error(
      ErrorCode::bad_value, [&] { patch(llama, ids, ids, 1, 2); }, "there is nothing to bring back");
}

TEST(Analysis, HeadsHaveTheNamesThatRecordingsHave) {
  const NamedHead one = head_named("18.6"), cross = head_named("decoder.3.cross.6"), last = head_named("-1.-2");
  EXPECT_EQ(one.head, (Head{18, 6}));
  EXPECT_FALSE(one.attention);
  EXPECT_EQ(cross.head, (Head{3, 6}));
  EXPECT_EQ(cross.attention, AttentionKind::cross);
  EXPECT_EQ(last.head, (Head{-1, -2}));
  for (const char* wrong :
       {"", "18", "18.", ".6", "18.6.1", "18.6a", " 18.6", "decoder.3.self", "encoder.3.cross.6", "x.3.self.6", "18,6"})
    expect_error(
        ErrorCode::bad_value, [&] { head_named(wrong); }, "is not a head's name");
  AttentionKind attention = AttentionKind::cross;
  const std::vector<std::string> plain{"1.2", "0.1"}, encoders{"encoder.0.self.1"},
      mixed{"encoder.0.self.1", "decoder.0.self.1"};
  EXPECT_EQ(heads_named(plain, attention), (std::vector<Head>{{1, 2}, {0, 1}}));
  EXPECT_EQ(attention, AttentionKind::cross);
  heads_named(encoders, attention);
  EXPECT_EQ(attention, AttentionKind::encoder);
  expect_error(
      ErrorCode::bad_value, [&] { heads_named(mixed, attention); }, "another attention");
}

TEST(Analysis, PlacesBelow0CountFromTheEnd) {
  const Model model = load("llama");
  EXPECT_EQ(ablate(model, ids, {.rows = {-3, -2}}).kl.view().item({1, 2}),
            ablate(model, ids, {.rows = {6, 7}}).kl.view().item({1, 2}));
  const Ablation together = ablate(model, ids, {.heads = {{-1, -1}, {0, 1}}});
  EXPECT_EQ(together.heads, (std::vector<Head>{{1, 3}, {0, 1}}));
  const std::vector<Edit> edits{{.layer = -1, .head = -1, .rows = std::vector<std::int64_t>{-2, -1}}},
      same{{.layer = 1, .head = 3, .rows = std::vector<std::int64_t>{7, 8}}};
  expect_same(model.forward(ids, {.edits = edits}), model.forward(ids, {.edits = same}));
  expect_same(lens(model, ids, std::vector<std::int64_t>{-1}).ids, lens(model, ids, std::vector<std::int64_t>{8}).ids);
}

}  // namespace
}  // namespace attend
