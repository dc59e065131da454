// examples/translate: its numbers beside torch's and sacreBLEU's, its files, and that it learns.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>

#include "decoding.h"
#include "loss_curve.h"
#include "scores.h"
#include "tests/expect.h"
#include "training.h"

namespace translate {
namespace {

using attend::ErrorCode;
using attend::test::expect_error;

// A file of its own, gone with the test.
class TranslateFile : public testing::Test {
 protected:
  TranslateFile() : folder_(std::filesystem::path(testing::TempDir()) / ("translate_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~TranslateFile() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path path(const std::string& name) const { return folder_ / name; }
  std::filesystem::path write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
    return path(name);
  }
  std::string read(const std::string& name) const {
    std::ifstream file(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  std::filesystem::path folder_;
};

const std::vector<Pair> pairs{{"Open the file", "Apri il file"},
                              {"Close the file", "Chiudi il file"},
                              {"Open the window", "Apri la finestra"},
                              {"Close the window", "Chiudi la finestra"},
                              {"The file is open", "Il file è aperto"},
                              {"The window is open", "La finestra è aperta"},
                              {"The file is not open", "Il file non è aperto"},
                              {"Save", "Salva"}};

Settings small_settings() {
  Settings settings;
  settings.vocabulary = 300;
  settings.sizes = {0, 32, 4, 1, 64};
  settings.steps = 300;
  settings.batch = 4;
  settings.warmup = 10;
  settings.learning_rate = 5e-3;
  settings.dropout = 0.1;
  settings.validate_every = 5;
  return settings;
}

void learn(Training& training, const std::vector<Example>& examples, std::int64_t until) {
  Batches batches(training.settings, examples);
  for (std::int64_t step = training.step + 1; step <= until; training.step = step++) {
    const Dropping dropping{training.settings.dropout, static_cast<std::uint64_t>(step)};
    training.train_losses.push_back(train_step(training.parameters, training.adam, training.settings.sizes,
                                               batches.at(step), training.learning_rate(step), step, dropping));
  }
}

Training start(const Settings& settings) {
  Corpus corpus;
  corpus.train = pairs;
  return Training::start(settings, corpus);
}

Ids sequence(const View& padded) {
  Ids ids;
  for (std::int64_t i = 0; i < padded.size(0) && padded.item({i}) >= 0; ++i)
    ids.push_back(static_cast<std::int64_t>(padded.item({i})));
  return ids;
}

// torch's own f32 is within 1.4e-7 of the same training in f64, relatively (make_translate_golden.py prints it): fifty
// steps amplify rounding little. Ours sums in other orders: 1e-6 leaves room for that, and a hundredth of a mistake in
// any gradient shows at once.
TEST(Translate, FiftyLossesAreTorchs) {
  const attend::TensorMap golden = attend::read_safetensors(attend::test::data("golden/translate.safetensors")).tensors;
  TensorMap parameters;
  const std::string prefix = "parameters.";
  for (const auto& [name, tensor] : golden)
    if (name.starts_with(prefix)) parameters.emplace(name.substr(prefix.size()), tensor.clone());
  const ModelSizes sizes{32, 16, 4, 2, 32};
  const View sources = golden.at("sources"), targets = golden.at("targets");
  Adam adam;
  for (std::int64_t step = 0; step < sources.size(0); ++step) {
    Batch batch;
    for (std::int64_t i = 0; i < sources.size(1); ++i)
      batch.append({sequence(sources.select(0, step).select(0, i)), sequence(targets.select(0, step).select(0, i))});
    const double loss = train_step(parameters, adam, sizes, batch, 3e-3, step + 1, {});
    const double expected = golden.at("losses").item({step});
    EXPECT_NEAR(loss, expected, 1e-6 * expected) << "step " << step;
  }
}

// The same tokens give the same loss, wherever their sentences stand in the batch: sentences don't see each other.
TEST(Translate, SentencesOfABatchAreApart) {
  const Training training = start(small_settings());
  const std::vector<Example> examples = encode(training.tokenizer, pairs);
  double sum = 0, tokens = 0;
  for (const Example& example : examples) {
    const auto count = static_cast<double>(example.target.size() + 1);
    sum += count * mean_loss(training.parameters, training.settings.sizes, {&example, 1});
    tokens += count;
  }
  // The bits of a row do not depend on the batch; the order of the sum of losses does, in double.
  EXPECT_NEAR(mean_loss(training.parameters, training.settings.sizes, examples), sum / tokens, 1e-12);
}

TEST(Translate, LearnsByHeart) {
  Training training = start(small_settings());
  const std::vector<Example> examples = encode(training.tokenizer, pairs);
  learn(training, examples, training.settings.steps);
  const Model model(training.parameters, training.settings.sizes);
  std::vector<Ids> sources;
  for (const Example& example : examples) sources.push_back(example.source);
  const std::vector<Ids> targets = translate(model, sources);
  for (std::size_t i = 0; i < pairs.size(); ++i) EXPECT_EQ(training.tokenizer.decode(targets[i]), pairs[i].italian);
}

TEST(Translate, AttentionIsThatOfTheTranslation) {
  const Training training = start(small_settings());
  const Example example = encode(training.tokenizer, std::span(pairs).first(1)).front();
  const CrossAttention attention =
      cross_attention(Model(training.parameters, training.settings.sizes), example.source, example.target);
  ASSERT_EQ(attention.weights.size(), 1u);
  const attend::Dims expected{4, static_cast<std::int64_t>(example.target.size() + 1),
                              static_cast<std::int64_t>(example.source.size() + 1)};
  ASSERT_EQ(attention.weights[0].shape().str(), expected.str());
  for (std::int64_t row = 0; row < expected[1]; ++row) {
    double sum = 0;
    for (std::int64_t key = 0; key < expected[2]; ++key) sum += attention.weights[0].item({3, row, key});
    EXPECT_NEAR(sum, 1, 1e-5);
  }
}

TEST(Translate, ARecordingHasItsWeights) {
  const Training training = start(small_settings());
  const Example example = encode(training.tokenizer, std::span(pairs).first(1)).front();
  const Model model(training.parameters, training.settings.sizes);
  const attend::Recording recording = record(model, training.tokenizer, example.source, example.target);
  const CrossAttention attention = cross_attention(model, example.source, example.target);
  std::vector<std::string> names;
  for (const attend::RecordedLayer& layer : recording.layers()) names.push_back(layer.name);
  EXPECT_EQ(names, (std::vector<std::string>{"encoder.0.self", "decoder.0.self", "decoder.0.cross"}));
  for (std::int64_t head = 0; head < 4; ++head)
    attend::test::expect_close(recording.weights(2, 0, head), attention.weights[0].view().select(0, head), 1e-6);
  // The decoder sees what it has read so far alone; the encoder sees all.
  const attend::Tensor decoder = recording.weights(1, 0, 0), encoder = recording.weights(0, 0, 0);
  EXPECT_EQ(decoder.item({0, 1}), 0);
  EXPECT_GT(encoder.item({0, 1}), 0);
  EXPECT_EQ(recording.query_tokens(2).at(0).size(), example.target.size() + 1);
  EXPECT_EQ(recording.key_tokens(2).at(0).size(), example.source.size() + 1);
  EXPECT_EQ(recording.key_tokens(1), recording.query_tokens(2));
}

TEST_F(TranslateFile, GoingOnFromACheckpointGivesTheSameBytes) {
  Settings settings = small_settings();
  settings.steps = 7;  // epochs have two batches
  Training whole = start(settings);
  const std::vector<Example> examples = encode(whole.tokenizer, pairs);
  learn(whole, examples, 7);
  write_checkpoint(path("whole"), whole);
  Training half = start(settings);
  learn(half, examples, 3);
  write_checkpoint(path("half"), half);
  Training rest = read_checkpoint(path("half"));
  EXPECT_EQ(rest.step, 3);
  EXPECT_EQ(rest.train_losses, half.train_losses);
  learn(rest, examples, 7);
  write_checkpoint(path("half"), rest);
  EXPECT_TRUE(read("half") == read("whole"));
}

TEST_F(TranslateFile, ABadCheckpointIsNamed) {
  Training training = start(small_settings());
  write_checkpoint(path("model"), training);  // step 0: Adam has no moments yet
  expect_error(
      ErrorCode::bad_file, [&] { read_checkpoint(path("model")); }, "model", "moments");
  expect_error(
      ErrorCode::bad_file, [&] { read_checkpoint(write("text", "not tensors")); }, "text");
  learn(training, encode(training.tokenizer, pairs), 1);
  training.parameters.erase("encoder.norm.bias");
  write_checkpoint(path("model"), training);
  expect_error(
      ErrorCode::bad_file, [&] { read_checkpoint(path("model")); }, "encoder.norm.bias");
}

TEST_F(TranslateFile, Corpus) {
  const Corpus corpus =
      read_corpus(write("pairs.tsv", "train\tOpen\tApri\nvalid\tSave\tSalva\ntrain\tClose\tChiudi\n"));
  ASSERT_EQ(corpus.train.size(), 2u);
  EXPECT_EQ(corpus.train[1].italian, "Chiudi");
  ASSERT_EQ(corpus.valid.size(), 1u);
  EXPECT_EQ(corpus.valid[0].english, "Save");
  EXPECT_TRUE(corpus.test.empty());
  const auto read_text = [&](const std::string& text) { return read_corpus(write("bad.tsv", text)); };
  expect_error(
      ErrorCode::bad_file, [&] { read_text("train\tOpen\tApri\ntrain\tSave\n"); }, "bad.tsv", "line 2");
  expect_error(
      ErrorCode::bad_file, [&] { read_text("train\ta\tb\tc\n"); }, "line 1");
  expect_error(
      ErrorCode::bad_file, [&] { read_text("learn\ta\tb\n"); }, "line 1", "'learn'");
  expect_error(
      ErrorCode::bad_file, [&] { read_text("train\t\tb\n"); }, "line 1", "empty");
  expect_error(
      ErrorCode::bad_file, [&] { read_corpus(path("missing.tsv")); }, "missing.tsv");
}

TEST(TranslateTokenizer, MergesTheMostFrequentPairs) {
  const std::vector<std::string> texts{"abab abab", "ab"};
  // ab stands there five times; then " " before ab and ab before ab, twice each.
  const Tokenizer tokenizer = Tokenizer::learn(texts, 1000);
  EXPECT_EQ(tokenizer.label(Tokenizer::first_merge), "ab");
  EXPECT_EQ(tokenizer.encode("ab"), Ids{Tokenizer::first_merge});
  EXPECT_EQ(tokenizer.encode("abab").size(), 1u);
  EXPECT_EQ(Tokenizer::learn(texts, Tokenizer::first_merge + 1).size(), Tokenizer::first_merge + 1);
}

TEST(TranslateTokenizer, WhatWasMergedFirstIsMergedFirst) {
  const std::vector<std::string> texts{"ab1ab1ab1bc1bc"};
  const Tokenizer tokenizer = Tokenizer::learn(texts, 1000);
  ASSERT_EQ(tokenizer.label(Tokenizer::first_merge + 1), "bc");
  EXPECT_EQ(tokenizer.encode("abc"), (Ids{Tokenizer::first_merge, Tokenizer::first_byte + 'c'}));
}

TEST(TranslateTokenizer, AnyTextComesBack) {
  const std::vector<std::string> texts{"Impossibile aprire il file", "Impossibile chiudere il file"};
  const Tokenizer learned = Tokenizer::learn(texts, 290);
  const Tokenizer tokenizer(learned.merges());
  for (const std::string text : {"Impossibile", " due  blanks ", "già %s: «è» 漢字 🙂", "1.5 < 2", ""}) {
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
    EXPECT_EQ(tokenizer.encode(text), learned.encode(text));
  }
  EXPECT_LT(tokenizer.encode("Impossibile").size(), 11u);
  const Ids half_a_letter{Tokenizer::first_byte + 0xC3};
  EXPECT_EQ(tokenizer.decode(half_a_letter), "\uFFFD");
}

TEST(TranslateTokenizer, MergesOfWhatIsNotThereAreRefused) {
  Tensor merges({1, 2}, attend::DType::i64);
  merges.data<std::int64_t>()[0] = Tokenizer::first_merge;  // itself
  merges.data<std::int64_t>()[1] = 50;
  expect_error(
      ErrorCode::bad_value, [&] { Tokenizer{merges}; }, "merge 0");
  expect_error(
      ErrorCode::bad_shape, [] { Tokenizer{Tensor({3}, attend::DType::i64)}; }, "[3]");
}

// The numbers are sacreBLEU 2.6.0's: CHRF().corpus_score(translations, [references]).
TEST(TranslateScores, ChrfIsSacreBleus) {
  const std::vector<std::string> translations{"Impossibile aprire il file", "Mostra file nascosti", "è", "Errore: %s"};
  const std::vector<std::string> references{"Impossibile aprire il file «%s»", "Mostra i file nascosti", "sì",
                                            "Errore irreversibile: %s."};
  EXPECT_NEAR(chrf(translations, references), 65.51105782605437, 1e-9);
  const double each[] = {86.42948029160486, 78.40946223304742, 0, 26.93622089809687};
  for (std::size_t i = 0; i < references.size(); ++i)
    EXPECT_NEAR(chrf(std::span(translations).subspan(i, 1), std::span(references).subspan(i, 1)), each[i], 1e-9);
  EXPECT_NEAR(chrf(std::vector<std::string>{"città"}, std::vector<std::string>{"citta"}), 54.333333333333336, 1e-9);
  EXPECT_EQ(chrf(references, references), 100);
  EXPECT_EQ(exact_match(translations, references), 0);
  EXPECT_EQ(exact_match(std::vector<std::string>{"a", "b"}, std::vector<std::string>{"a", "c"}), 50);
}

TEST(TranslateFunctions, DropoutDropsAndScales) {
  Tensor x({1000, 20});
  std::fill_n(x.data<float>(), x.count(), 3.0f);
  Tensor again = x.clone();
  dropout(x, 0.25, 7);
  dropout(again, 0.25, 7);
  attend::test::expect_same(x, again);
  std::int64_t dropped = 0;
  for (std::int64_t i = 0; i < x.count(); ++i) {
    const float value = x.data<float>()[i];
    dropped += value == 0 ? 1 : 0;
    EXPECT_TRUE(value == 0 || value == 4) << value;
  }
  // Binomial, 20,000 times 1/4: a standard deviation of 61.
  EXPECT_NEAR(static_cast<double>(dropped), 5000, 5 * 61);
  dropout(again, 0, 8);
  attend::test::expect_same(x, again);
}

// With dropout, the gradients are those of the loss that was computed: by differences, along each parameter's gradient.
TEST(TranslateFunctions, GradientsWithDropoutAreThoseOfTheLoss) {
  Training training = start(small_settings());
  Batch batch;
  for (const Example& example : encode(training.tokenizer, pairs)) batch.append(example);
  const Dropping dropping{0.3, 11};
  TensorMap gradients;
  const auto loss_of = [&](const TensorMap& parameters, bool backward) {
    const Model model(parameters, training.settings.sizes);
    EncoderState encoder;
    DecoderState decoder;
    model.encode(batch.source, dropping, encoder);
    model.decode(batch.target, encoder.norm.output, batch.source, dropping, decoder);
    const CrossEntropy loss = cross_entropy(model.logits(decoder.norm.output), batch.next);
    if (backward) gradients = model.backward(loss.dlogits, batch.source, batch.target, dropping, encoder, decoder);
    return loss.sum / static_cast<double>(batch.next.size());
  };
  loss_of(training.parameters, true);
  ASSERT_EQ(gradients.size(), training.parameters.size());
  for (const auto& [name, gradient] : gradients) {
    const Tensor before = training.parameters.at(name).clone();
    const float* g = gradient.data<float>();
    const double square = std::inner_product(g, g + gradient.count(), g, 0.0);
    const auto loss_at = [&](double distance) {
      for (std::int64_t i = 0; i < gradient.count(); ++i)
        training.parameters.at(name).data<float>()[i] = before.data<float>()[i] + static_cast<float>(distance) * g[i];
      return loss_of(training.parameters, false);
    };
    // The loss, some 6, changes by 2e-3, of which its rounding in f32 is a ten-thousandth. A step of 1e-3 / |gradient|
    // takes some hidden units across ReLU's kink: measured, up to 1 %. The embedding's is the shortest and crosses
    // none; what comes through its dropped inputs is 0.2 % of its gradient, and must show.
    const double h = 1e-3 / square, tolerance = name == "embedding.weight" ? 5e-4 : 0.02;
    EXPECT_NEAR((loss_at(h) - loss_at(-h)) / (2 * h * square), 1, tolerance) << name;
    loss_at(0);
  }
}

TEST(TranslatePicture, LossCurve) {
  const std::vector<double> train{5, 4, 3.5, 3.2, 3.1}, valid{4.1, 3.4};
  const std::string svg = svg_loss_curve(train, valid, 2);
  EXPECT_THAT(svg, testing::HasSubstr("<svg"));
  EXPECT_THAT(svg, testing::HasSubstr("nats per token"));
  EXPECT_THAT(svg, testing::HasSubstr("3.40 at the end"));
  EXPECT_EQ(svg, svg_loss_curve(train, valid, 2));
  expect_error(
      ErrorCode::bad_value, [] { svg_loss_curve({}, {}, 1); }, "no losses");
}

}  // namespace
}  // namespace translate
