// A model at work on a text, beside the functions of models.h and analysis.h that its parts are.
#include "attend/session.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tests/expect.h"
#include "tests/io/files.h"

namespace attend {
namespace {

using namespace test;
using nlohmann::json;

const std::vector<std::int64_t> ids{3, 7, 1, 12, 9, 4, 7, 1, 15};

// A golden folder, with a tokenizer of its 23 ids: "w0", "w1", ...
class WithWords {
 public:
  explicit WithWords(const std::string& name) {
    for (const char* file : {"config.json", "model.safetensors"})
      std::filesystem::copy(data("golden/models/" + name) / file, folder_.path() / file);
    json words;
    for (int n = 0; n < 23; ++n) words[fmt::format("w{}", n)] = n;
    const json tokenizer = {{"version", "1.0"},
                            {"pre_tokenizer", {{"type", "WhitespaceSplit"}}},
                            {"model", {{"type", "WordLevel"}, {"unk_token", "w0"}, {"vocab", words}}}};
    put(folder_ / "tokenizer.json", tokenizer.dump());
  }
  void configure(const json& changes) const {
    json config = json::parse(get(folder_ / "config.json"));
    config.update(changes);
    put(folder_ / "config.json", config.dump());
  }
  Model load() const {
    Model model = Model::load(folder_.path());
    (void)model.tokenizer();  // read while the folder is there
    return model;
  }

 private:
  Folder folder_;
};

TEST(Session, ATextsIdsAreItsTokenizers) {
  const Model model = WithWords("bert").load();
  EXPECT_EQ(encode(model, "w3 w7").ids, (std::vector<std::int64_t>{3, 7}));
  EXPECT_EQ(encode(model, "w3", {.second = "w5 w6"}).texts, (std::vector<std::int64_t>{0, 1, 1}));
  EXPECT_EQ(model.tokenizer().text(22), "w22");
  EXPECT_EQ(model.tokenizer().text(23), std::nullopt);
  expect_error(
      ErrorCode::bad_file, [&] { encode(model, "w3", {.chat = true}); }, "template");
}

TEST(Session, WhatIsKeptIsWhatObserversAreShown) {
  const Model model = WithWords("llama").load();
  const Keep keep[] = {{.at = ModelPlace::mlp}, {.at = ModelPlace::z, .layer = -1}, {.at = ModelPlace::embeddings}};
  const Pass pass = run(model, {.ids = ids}, {.keep = keep});
  ASSERT_EQ(pass.kept.size(), 3);
  EXPECT_EQ(pass.kept[0].shape(), (Dims{2, 9, model.info().embedding_size}));
  EXPECT_EQ(pass.kept[2].shape(), (Dims{9, model.info().input_size}));
  std::int64_t bytes = 0, seen = 0;
  for (const Tensor& each : pass.kept) bytes += each.count() * 4;
  EXPECT_EQ(bytes, kept_bytes(model.info(), keep, 9));
  model.forward(ids, {.observe = [&](ModelPlace place, std::int64_t layer, const View& values) {
                  if (place == ModelPlace::mlp)
                    expect_same(values.clone(), pass.kept[0].view().select(0, layer).clone());
                  if (place == ModelPlace::z && layer == 1) expect_same(values.clone(), pass.kept[1]);
                  seen += place == ModelPlace::mlp || (place == ModelPlace::z && layer == 1);
                }});
  EXPECT_EQ(seen, 3);
  const Edit back{.layer = 1, .set = Edit::Set::values, .values = pass.kept[1]};
  expect_same(run(model, {.ids = ids}, {.edits = {&back, 1}}).hidden, pass.hidden);
  const float unit = 1;
  const Edit twice{.layer = 0,
                   .at = ModelPlace::mlp_hidden,
                   .unit = 3,
                   .set = Edit::Set::add,
                   .values = View(&unit, DType::f32, {1}),
                   .by = 0.25};
  std::vector<float> before, after;
  for (std::vector<float>* to : {&before, &after})
    model.forward(ids, {.edits = {&twice, to == &after ? 1U : 0U},
                        .observe = [&](ModelPlace place, std::int64_t layer, const View& values) {
                          if (place != ModelPlace::mlp_hidden || layer != 0) return;
                          for (std::int64_t n = 0; n < values.size(0); ++n)
                            to->push_back(static_cast<float>(values.item({n, 3})));
                        }});
  for (std::size_t n = 0; n < before.size(); ++n) EXPECT_FLOAT_EQ(after[n], before[n] + 0.25F);
  const Keep none{.at = ModelPlace::cross_z};
  expect_error(
      ErrorCode::bad_value,
      [&] {
        run(model, {.ids = ids}, {.keep = {&none, 1}});
      },
      "only encoder-decoders have cross_z");
}

TEST(Session, OnePassIsWhatEachOfItsPartsIs) {
  const Model model = WithWords("llama").load();
  Recorder recorder({.keep_qk = true});
  const Pass pass = run(model, {.ids = ids},
                        {.recorder = &recorder,
                         .next = 3,
                         .values = true,
                         .why = AttributeOptions{.token = 5},
                         .lens = LensOptions{.positions = {2, 8}}});
  const Tensor hidden = model.forward(ids);
  expect_same(pass.hidden, hidden);
  expect_same(pass.logits, model.logits(hidden.view().select(0, 8)));
  ASSERT_EQ(pass.next.size(), 3);
  EXPECT_EQ(pass.next[0].token, fmt::format("w{}", pass.next[0].id));
  EXPECT_GE(pass.next[0].probability, pass.next[1].probability);
  EXPECT_NEAR(likeliest(model, pass.logits, 23)[22].probability, 0, 0.1);

  const Attribution why = attribute(model, ids, {.token = 5});
  expect_same(pass.why->heads, why.heads);
  expect_same(pass.why->mlps, why.mlps);
  EXPECT_EQ(pass.why->logit, why.logit);
  const Lens seen = lens(model, ids, std::vector<std::int64_t>{2, 8});
  expect_same(pass.lens->ids, seen.ids);
  expect_same(pass.lens->log_probabilities, seen.log_probabilities);

  Recorder alone({.keep_qk = true});
  model.forward(ids, {.recorder = &alone});
  const Recording recording = alone.finish();
  expect_same(pass.recording->weights(1, 0, 2), recording.weights(1, 0, 2));
  EXPECT_EQ(pass.recording->tokens[0][1], "w7");
  EXPECT_EQ(pass.recording->ids()->data<std::int64_t>()[3], 12);

  // The weights times the values are what the head puts out.
  Tensor z;
  model.forward(ids, {.observe = [&](ModelPlace place, std::int64_t layer, const View& x) {
                  if (place == ModelPlace::z && layer == 1) z = x.clone();
                }});
  const Tensor weights = recording.weights(1, 0, 2);
  const View values = pass.values.at("1.self");
  ASSERT_EQ(values.shape().str(), "[1,2,9,4]");
  double sum = 0;
  for (std::int64_t j = 0; j < 9; ++j) sum += weights.item({8, j}) * values.item({0, 1, j, 3});
  EXPECT_NEAR(sum, z.item({8, 2 * 4 + 3}), 1e-6);
}

TEST(Session, AnEncodersVectorIsEmbeds) {
  const Model model = WithWords("bert").load();
  const std::vector<std::int64_t> types{0, 0, 0, 0, 0, 1, 1, 1, 1};
  const Pass pass = run(model, {.ids = ids, .types = types}, {.vector = true});
  expect_same(*pass.vector, model.embed(ids, {.types = types}));
  expect_same(pass.hidden, model.forward(ids, {.types = types}));
  expect_error(
      ErrorCode::bad_value, [&] { run(model, {.ids = ids}, {.next = 1}); }, "expected a decoder");
}

TEST(Session, OfAnEncoderDecoderBothStacksAreRecorded) {
  const Model model = WithWords("t5").load();
  EXPECT_EQ(first_decoder_ids(model.info()), std::vector<std::int64_t>{model.info().start});
  Recorder recorder;
  const ModelText text{.ids = ids, .decoder_ids = {model.info().start, 4, 6}};
  const Pass pass = run(model, text, {.recorder = &recorder, .next = 1, .why = AttributeOptions{}});
  expect_same(pass.hidden, model.forward(ids, {.decoder_ids = text.decoder_ids}));
  EXPECT_EQ(pass.recording->decoder_tokens[0], (std::vector<std::string>{"w1", "w4", "w6"}));
  EXPECT_EQ(pass.why->token, pass.next[0].id);
  expect_same(pass.why->cross, attribute(model, ids, {.decoder_ids = text.decoder_ids}).cross);
  expect_same(run(model, {.ids = ids}).hidden, model.encoder_states(ids));
  expect_error(
      ErrorCode::bad_value, [&] { run(model, {.ids = ids}, {.next = 1}); }, "next needs decoder_ids");
}

TEST(Session, WhyIsRefusedWhereHeadsAreOut) {
  const Model model = WithWords("llama").load();
  const std::vector<Edit> edits{{.layer = 0, .head = 1}};
  expect_error(
      ErrorCode::bad_value, [&] { run(model, {.ids = ids}, {.edits = edits, .why = AttributeOptions{}}); }, "edits");
  expect_error(
      ErrorCode::bad_value, [&] { run(model, {.ids = ids}, {.vector = true}); }, "vector needs an encoder");
}

// ---- Growth ----

std::vector<std::int64_t> grown(const Model& model, const ModelText& text, const GenerateOptions& options) {
  Growth growth(model, text, options);
  std::vector<std::int64_t> all;
  for (Growth::Step step; !step.ended;)
    if (step = growth.step(); step.written) all.push_back(step.id);
  EXPECT_EQ(all, std::vector(growth.written().begin(), growth.written().end()));
  return all;
}

TEST(Session, ATextGrowsAsGenerateLetsIt) {
  for (const std::string name : {"llama", "gpt2", "phi3", "bart", "t5", "marian"}) {
    const Model model = WithWords(name).load();
    for (const GenerateOptions& options :
         {GenerateOptions{.max_new_tokens = 12},
          {.max_new_tokens = 100},
          {.max_new_tokens = 9, .settings = {.temperature = 1.5, .top_k = 9}, .seed = 7},
          {.max_new_tokens = 20, .end = std::vector<std::int64_t>{1, 2, 3, 4, 5, 6}}})
      EXPECT_EQ(grown(model, {.ids = ids}, options), model.generate(ids, options)) << name;
  }
}

// Beyond 12 tokens all is computed again, by the other factors.
TEST(Session, ATextOfLongropeGrowsAsGenerateLetsIt) {
  const WithWords folder("phi3");
  folder.configure({{"original_max_position_embeddings", 12},
                    {"rope_parameters",
                     {{"partial_rotary_factor", 0.5},
                      {"rope_theta", 10000.0},
                      {"rope_type", "longrope"},
                      {"original_max_position_embeddings", 12},
                      {"short_factor", {1.0}},
                      {"long_factor", {40.0}}}}});
  const Model model = folder.load();
  const std::vector<std::int64_t> got = model.generate(ids, {.max_new_tokens = 20});
  EXPECT_EQ(grown(model, {.ids = ids}, {.max_new_tokens = 20}), got);
  // Each is the likeliest after a pass over all that is before it, whose length says which factors.
  std::vector<std::int64_t> text = ids;
  for (const std::int64_t next : got) {
    const Tensor hidden = model.forward(text);
    EXPECT_EQ(next, likeliest(model, model.logits(hidden.view().select(0, hidden.size(0) - 1)), 1)[0].id);
    text.push_back(next);
  }
}

TEST(Session, WhatTheFolderSaysOfTheFirstAndLastTokenHolds) {
  const WithWords folder("bart");
  folder.configure({{"forced_bos_token_id", 7}, {"forced_eos_token_id", 9}, {"suppress_tokens", {3, 4}}});
  const Model model = folder.load();
  const std::vector<std::int64_t> expected = model.generate(ids, {.max_new_tokens = 6});
  EXPECT_EQ(expected.front(), 7);
  EXPECT_EQ(expected.back(), 9);
  EXPECT_EQ(grown(model, {.ids = ids}, {.max_new_tokens = 6}), expected);
}

TEST(Session, AGivenTokenIsWrittenInPlaceOfTheLikeliest) {
  const Model model = WithWords("llama").load();
  Growth growth(model, {.ids = ids}, {.max_new_tokens = 3});
  expect_same(growth.logits().view().select(0, 0), model.logits(model.forward(ids).view().select(0, 8)));
  EXPECT_EQ(growth.step(20).id, 20);
  std::vector<std::int64_t> longer = ids;
  longer.push_back(20);
  EXPECT_EQ(growth.text().ids, longer);
  EXPECT_EQ(growth.cache().length(), 10);
  EXPECT_EQ(growth.step().id, model.generate(longer, {.max_new_tokens = 1})[0]);
  expect_error(
      ErrorCode::bad_value, [&] { growth.step(23); }, "token is 23");
  EXPECT_TRUE(growth.step().ended);
  expect_error(
      ErrorCode::bad_value, [&] { growth.step(); }, "has ended");
}

TEST(Session, ADecoderAloneHasNoTextOfAnEncoder) {
  const Model model = WithWords("llama").load();
  expect_error(
      ErrorCode::bad_value,
      [&] {
        Growth(model, {.ids = ids, .decoder_ids = {1, 2}});
      },
      "need an encoder-decoder");
}

// A decoder's text so far is gone on with.
TEST(Session, ADecodersTextGrowsFromWhereItIs) {
  const Model model = WithWords("bart").load();
  const std::vector<std::int64_t> all = model.generate(ids, {.max_new_tokens = 8});
  ModelText text{.ids = ids, .decoder_ids = first_decoder_ids(model.info())};
  text.decoder_ids.insert(text.decoder_ids.end(), all.begin(), all.begin() + 3);
  EXPECT_EQ(grown(model, text, {.max_new_tokens = 5}), std::vector(all.begin() + 3, all.end()));
}

// ---- JSON ----

TEST(Session, TensorsStandInJsonAsListsOrAsIsAsked) {
  const Model model = WithWords("llama").load();
  const Attribution why = attribute(model, ids, {.token = 5, .against = 2});
  const json lists = json::parse(to_json(why));
  EXPECT_EQ(lists["heads"].size(), 2);
  EXPECT_EQ(lists["heads"][1][3].size(), 9);
  EXPECT_EQ(static_cast<float>(lists["heads"][1][3][8].get<double>()), static_cast<float>(why.heads.item({1, 3, 8})));
  std::vector<std::string> names;
  const json asked = json::parse(to_json(why, [&](std::string_view name, const Tensor& tensor) {
    names.emplace_back(name);
    return fmt::format("{}", tensor.count());
  }));
  EXPECT_EQ(names, (std::vector<std::string>{"heads", "mlps"}));
  EXPECT_EQ(asked["heads"], 2 * 4 * 9);
  EXPECT_EQ(json::parse(to_json(model.info()))["longest"], 40);
}

}  // namespace
}  // namespace attend
