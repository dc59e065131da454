// Pictures and CSV of what analyses found: which numbers stand where.
#include <gmock/gmock.h>

#include <cmath>

#include "attend/analysis_look.h"
#include "tests/expect.h"

namespace attend {
namespace {

using test::expect_error;
using testing::HasSubstr;

// 2 layers, 2 heads, 3 tokens.
Attribution attribution() {
  Attribution x;
  x.token = 7, x.logit = 4.5;
  x.heads = Tensor::from({2, 2, 3}, {0.5F, 0, 0.25F, -1, 0, 0, 0, 2, 0, 0, 0, 0.125F});
  x.mlps = Tensor::from({2}, {0.75F, -16});
  x.embedding = 0.1, x.bias = 0.25;
  return x;
}

// 1 layer, 3 positions, the 2 likeliest.
Lens lens_of_three() {
  Lens x;
  x.ids = Tensor({2, 3, 2}, DType::i64);
  for (std::int64_t n = 0; n < 12; ++n) x.ids.data<std::int64_t>()[n] = 10 * n;
  x.log_probabilities = Tensor::from({2, 3, 2}, {-1, -2, -3, -4, -5, -6, -7, -8, -9, -10, 0, -12});
  x.rank = Tensor({2, 3}, DType::i64);
  return x;
}

const std::vector<std::int64_t> ids = {4, 5, 6};

const HeatMap& map_of(const Picture& picture) {
  return std::get<HeatMaps>(picture.drawing).maps.at(0);
}

TEST(AnalysisLook, WhyIsTokensAboveHeadsAndMlps) {
  const Picture picture = attribution_picture(attribution(), {.ids = ids, .model = "m"});
  const auto& stack = std::get<PictureStack>(picture.drawing);
  const auto& strip = std::get<TokenStrip>(stack.parts.at(0));
  const HeatMap& map = std::get<HeatMaps>(stack.parts.at(1)).maps.at(0);
  EXPECT_EQ(strip.tokens, (std::vector<std::string>{"4", "5", "6"}));
  test::expect_same(strip.values, Tensor::from({3}, {-0.5F, 2, 0.375F}));
  EXPECT_EQ(strip.title, "m: why “7”");
  EXPECT_EQ(strip.scale, PictureScale::diverging);
  test::expect_same(map.values, Tensor::from({2, 3}, {0.75F, -1, 0.75F, 2, 0.125F, -16}));
  EXPECT_EQ(map.column_labels, (std::vector<std::string>{"0", "1", "MLP"}));
  // The MLPs' -16 would make all heads pale.
  EXPECT_EQ(std::pair(map.low, map.high), std::pair(-2.0, 2.0));
  EXPECT_EQ(map.caption,
            "“4 5 6”, 3 tokens. Logit 4.50: heads 1.88, MLPs -15.25, embedding 0.10, biases 0.25. MLPs beyond the "
            "scale are as dark as its end.");
  EXPECT_EQ(picture.svg(), attribution_picture(attribution(), {.ids = ids, .model = "m"}).svg());
  Attribution difference = attribution();
  difference.against = 8, difference.rounding = 0.5;
  const Picture other = attribution_picture(difference, {});
  EXPECT_EQ(other.title(), "why “7”, not “8”");
  EXPECT_THAT(std::get<HeatMaps>(std::get<PictureStack>(other.drawing).parts.at(1)).maps.at(0).caption,
              HasSubstr("Difference of the logits 4.50: heads 1.88, MLPs -15.25, embedding 0.10, biases 0.25, rounding "
                        "0.50."));
  EXPECT_EQ(attribution_picture(difference, {.title = ""}).title(), "");
}

TEST(AnalysisLook, LensShowsTheLikeliestOfTheLastPositions) {
  const Lens lens = lens_of_three();
  const Picture all = lens_picture(lens, {}, {.ids = ids, .model = "m"});
  EXPECT_EQ(all.title(), "m: what the layers would answer");
  EXPECT_EQ(map_of(all).texts, (std::vector<std::string>{"0", "20", "40", "60", "80", "100"}));
  EXPECT_EQ(map_of(all).row_labels, (std::vector<std::string>{"0", "answer"}));
  EXPECT_EQ(map_of(all).column_labels, (std::vector<std::string>{"4", "5", "6"}));
  EXPECT_NEAR(map_of(all).values.item({0, 0}), std::exp(-1), 1e-6);
  EXPECT_EQ(map_of(all).values.item({1, 2}), 1);
  EXPECT_EQ(std::pair(map_of(all).low, map_of(all).high), std::pair(0.0, 1.0));

  const Picture last = lens_picture(lens, {}, {.ids = ids}, 2);
  EXPECT_EQ(last.title(), "what the layers would answer (positions 1 to 2 of 3)");
  EXPECT_EQ(map_of(last).texts, (std::vector<std::string>{"20", "40", "80", "100"}));
  EXPECT_EQ(lens_picture(lens, {}, {}, 1).title(), "what the layers would answer (position 2 of 3)");
  const std::vector<std::int64_t> some = {0, 2, 5}, text = {1, 2, 3, 4, 5, 6, 7, 8};
  const Picture chosen = lens_picture(lens, some, {.ids = text});
  EXPECT_EQ(chosen.title(), "what the layers would answer (3 positions of 8)");
  EXPECT_EQ(map_of(chosen).column_labels, (std::vector<std::string>{"1", "3", "6"}));
  expect_error(
      ErrorCode::bad_value, [&] { (void)lens_picture(lens, {}, {}, 0); }, "most is 0, expected at least 1");
  expect_error(
      ErrorCode::bad_shape, [&] { (void)lens_picture(lens, some, {.ids = ids}); }, "3 ids, expected those of 6 tokens");
  expect_error(
      ErrorCode::bad_shape, [&] { (void)lens_picture(lens, std::vector<std::int64_t>{1}, {}); },
      "1 positions, expected 3");
}

TEST(AnalysisLook, WhatHeadsChangeAndBringBack) {
  Ablation ablation;
  ablation.token = 3;
  ablation.logit = Tensor::from({1, 2}, {1, 2}), ablation.log_probability = Tensor::from({1, 2}, {-1, 0.5F});
  ablation.kl = Tensor::from({1, 2}, {0.5F, 0.25F});
  const Picture picture = ablation_picture(ablation, {.model = "m"});
  EXPECT_EQ(picture.title(), "m: log-probability of “3” without each head");
  test::expect_same(map_of(picture).values, ablation.log_probability);
  EXPECT_EQ(map_of(picture).scale, PictureScale::diverging);
  EXPECT_EQ(map_of(ablation_picture(ablation, {}, "kl")).scale, PictureScale::linear);
  test::expect_same(map_of(ablation_picture(ablation, {}, "logit")).values, ablation.logit);
  EXPECT_EQ(ablation_csv(ablation), "layer,head,name,logit,log_probability,kl\n0,0,0.0,1,-1,0.5\n0,1,0.1,2,0.5,0.25\n");
  expect_error(
      ErrorCode::bad_value, [&] { (void)ablation_picture(ablation, {}, "cosine_distance"); }, "decoders do not have");
  expect_error(
      ErrorCode::bad_value, [&] { (void)ablation_picture(ablation, {}, "loss"); }, "got 'loss'");
  Ablation together;
  together.log_probability = Tensor::from({1}, {1});
  expect_error(
      ErrorCode::bad_shape, [&] { (void)ablation_picture(together, {}); }, "taken out together");
  Ablation encoder;
  encoder.cosine_distance = Tensor::from({1, 2}, {0, 0.5F});
  EXPECT_EQ(map_of(ablation_picture(encoder, {})).scale, PictureScale::linear);
  EXPECT_EQ(ablation_csv(encoder), "layer,head,name,cosine_distance\n0,0,0.0,0\n0,1,0.1,0.5\n");

  Patching patching;
  patching.token = 1, patching.against = 2, patching.recovered = Tensor::from({2, 3}, {0, 1, -0.25F, 0, 0, 1});
  EXPECT_EQ(patching_picture(patching, {}).title(), "heads that bring back “1”, not “2”");
  EXPECT_EQ(patching_csv(patching, {}),
            "layer,head,name,recovered\n0,0,0.0,0\n0,1,0.1,1\n0,2,0.2,-0.25\n1,0,1.0,0\n1,1,1.1,0\n1,2,1.2,1\n");
  patching.what = PatchOptions::What::residual;
  const std::vector<std::int64_t> corrupt = {4, 9, 6};
  const Picture stream = patching_picture(patching, {.ids = ids, .corrupt = corrupt});
  EXPECT_EQ(map_of(stream).column_labels, (std::vector<std::string>{"4", "5 /9", "6"}));
  EXPECT_EQ(map_of(stream).row_labels, (std::vector<std::string>{"0", "answer"}));
  EXPECT_THAT(patching_csv(patching, {.ids = ids}), HasSubstr("layer,position,token,recovered\n0,0,4,0\n0,1,5,1\n"));
}

TEST(AnalysisLook, TablesHaveALineForEachNumber) {
  EXPECT_EQ(attribution_csv(attribution(), {}),
            "kind,layer,head,name,key,token,value\n"
            "head,0,0,0.0,0,0,0.5\nhead,0,0,0.0,1,1,0\nhead,0,0,0.0,2,2,0.25\n"
            "head,0,1,0.1,0,0,-1\nhead,0,1,0.1,1,1,0\nhead,0,1,0.1,2,2,0\n"
            "head,1,0,1.0,0,0,0\nhead,1,0,1.0,1,1,2\nhead,1,0,1.0,2,2,0\n"
            "head,1,1,1.1,0,0,0\nhead,1,1,1.1,1,1,0\nhead,1,1,1.1,2,2,0.125\n"
            "mlp,0,,mlp 0,,,0.75\nmlp,1,,mlp 1,,,-16\n"
            "embedding,,,embedding,,,0.1\nbias,,,bias,,,0.25\nrounding,,,rounding,,,0\n");
  const std::string csv = lens_csv(lens_of_three(), std::vector<std::int64_t>{1, 3, 9}, {});
  EXPECT_THAT(csv,
              testing::StartsWith("layer,position,place,id,token,log_probability\n0,1,0,0,0,-1\n0,1,1,10,10,-2\n"));
  EXPECT_THAT(csv, testing::EndsWith("1,9,0,100,100,0\n1,9,1,110,110,-12\n"));
}

TEST(AnalysisLook, RefusesNumbersThatDoNotFit) {
  Lens lens = lens_of_three();
  lens.log_probabilities = Tensor({2, 3, 1});
  expect_error(
      ErrorCode::bad_shape, [&] { (void)lens_csv(lens, {}, {}); }, "log_probabilities has shape [2,3,1]");
  lens.ids = Tensor({2, 3, 1});
  expect_error(
      ErrorCode::bad_dtype, [&] { (void)lens_picture(lens, {}, {}); }, "ids is f32, expected i64");
  Attribution x = attribution();
  x.mlps = Tensor({3});
  expect_error(
      ErrorCode::bad_shape, [&] { (void)attribution_picture(x, {}); }, "mlps has shape [3]");
  expect_error(
      ErrorCode::bad_shape,
      [&] {
        (void)attribution_csv(attribution(), {.ids = {ids.data(), 2}});
      },
      "2 ids, expected");
  expect_error(
      ErrorCode::bad_shape, [&] { (void)patching_picture({}, {}); }, "recovered has shape [0]");
}

// As recordings have them; of an encoder-decoder they say the stack and the attention.
TEST(AnalysisLook, HeadsAreNamedAsRecordingsNameThem) {
  using Kind = AttributionPart::Kind;
  const AnalysisOf both{.encoder_ids = ids};
  EXPECT_EQ(name_of({.kind = Kind::head, .layer = 18, .head = 6}), "18.6");
  EXPECT_EQ(name_of({.kind = Kind::head, .layer = 1, .head = 6}, both), "decoder.1.self.6");
  EXPECT_EQ(name_of({.kind = Kind::cross, .layer = 1, .head = 6}, both), "decoder.1.cross.6");
  EXPECT_EQ(name_of({.kind = Kind::mlp, .layer = 15}), "mlp 15");
  Ablation together;
  together.cosine_distance = Tensor::from({1}, {0.5F});
  together.heads = {{0, 1}, {1, 0}}, together.attention = AttentionKind::encoder;
  EXPECT_EQ(ablation_csv(together, both), "layer,head,name,cosine_distance\n,,encoder.0.self.1 encoder.1.self.0,0.5\n");
}

// Whose tokens are these texts, with the ids 0, 1, ...
Tokenizer tokenizer_of(const std::vector<std::string>& tokens) {
  std::string vocabulary;
  for (std::size_t n = 0; n < tokens.size(); ++n)
    vocabulary += (n > 0 ? ", \"" : "\"") + tokens[n] + "\": " + std::to_string(n);
  return Tokenizer::parse(R"({"version": "1.0", "model": {"type": "WordLevel", "unk_token": ")" + tokens[0] +
                          R"(", "vocab": {)" + vocabulary + "}}}");
}

TEST(AnalysisLook, WordsAreTheirTokensTogether) {
  const auto words = [](const std::vector<std::string>& tokens) {
    const Tokenizer tokenizer = tokenizer_of(tokens);
    Saliency x;
    std::vector<std::int64_t> own;
    x.tokens = Tensor({std::ssize(tokens)});
    for (std::int64_t n = 0; n < std::ssize(tokens); ++n)
      own.push_back(n), x.tokens.data<float>()[n] = static_cast<float>(1 << n);
    std::string all;
    for (const WordValue& word : saliency_words(x, {.ids = own, .tokenizer = &tokenizer}))
      all += word.word + "[" + std::to_string(word.tokens.begin) + "," + std::to_string(word.tokens.end) +
             ")=" + std::to_string(static_cast<int>(word.value)) + " ";
    return all;
  };
  EXPECT_EQ(words({"The", " un", "usual", " cat", "."}), "The[0,1)=1 unusual[1,3)=6 cat.[3,5)=24 ");
  EXPECT_EQ(words({"the", "un", "##usual", "cat"}), "the[0,1)=1 unusual[1,3)=6 cat[3,4)=8 ");
  expect_error(
      ErrorCode::bad_shape, [] { (void)saliency_words(Saliency(), {}); }, "tokens has shape");
}

TEST(AnalysisLook, PassagesStandInTheirOrder) {
  Passages x;
  x.value = 3.5, x.token = 7;
  x.spans = {{0, 1}, {1, 3}}, x.estimated = Tensor::from({2}, {0.5F, -2}), x.hidden = {1};
  x.measured = Tensor::from({1}, {-1.5F});
  const Picture picture = passages_picture(x, {.ids = ids, .model = "m"});
  const HeatMap& map = map_of(picture);
  EXPECT_EQ(map.row_labels, (std::vector<std::string>{"4", "5 6"}));
  EXPECT_EQ(map.values.shape(), (Dims{2, 2}));
  EXPECT_EQ(map.values.data<float>()[3], -1.5F);
  EXPECT_TRUE(std::isnan(map.values.data<float>()[1]) && map.nan_is_hidden);
  EXPECT_EQ(picture.title(), "m: which passages make “7”");
  EXPECT_THAT(map.caption, HasSubstr("not measured"));
  EXPECT_EQ(passages_csv(x, {.ids = ids}),
            "passage,begin,end,text,estimated,measured\n0,0,1,4,0.5,\n1,1,3,5 6,-2,-1.5\n");
  x.hidden = {2};
  expect_error(
      ErrorCode::bad_value, [&] { (void)passages_csv(x, {}); }, "passage 2 was hidden, expected one of 2");
  x.hidden = {};
  expect_error(
      ErrorCode::bad_shape, [&] { (void)passages_csv(x, {}); }, "measured has 1 numbers");
}

}  // namespace
}  // namespace attend
