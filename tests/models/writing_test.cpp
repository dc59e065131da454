// How texts are written: beams against all there are, what is shown of a text, caches. tests/pytorch holds settings,
// beams and generation_config.json against Transformers.
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "attend/models.h"
#include "models/logits.h"
#include "models/written_text.h"
#include "tests/expect.h"
#include "tests/io/files.h"

namespace attend {
namespace {

using namespace test;
using Ids = std::vector<std::int64_t>;

Model tiny(const std::string& name) {
  return Model::load(data("golden/models/" + name));
}

// log softmax after the text, in f64.
std::vector<double> log_probabilities(const Model& model, const Ids& text) {
  const Tensor hidden = model.forward(text);
  const Tensor logits = model.logits(hidden.view().select(0, hidden.size(0) - 1)).view().to(DType::f64);
  std::vector<double> all(logits.data<double>(), logits.data<double>() + logits.count());
  double sum = 0;
  for (const double x : all) sum += std::exp(x);
  for (double& x : all) x -= std::log(sum);
  return all;
}

// With as many beams as there are tokens the search misses no pair of them.
TEST(Writing, BeamsFindTheBestOfAllPairs) {
  for (const char* name : {"gpt2", "llama"}) {
    const Model model = tiny(name);
    const Ids prompt{5, 6, 7};
    const std::vector<double> first = log_probabilities(model, prompt);
    std::vector<std::pair<double, Ids>> pairs;
    for (std::int64_t a = 0; a < std::ssize(first); ++a) {
      const std::vector<double> second = log_probabilities(model, {5, 6, 7, a});
      for (std::int64_t b = 0; b < std::ssize(second); ++b)
        pairs.push_back({(first[std::size_t(a)] + second[std::size_t(b)]) / std::sqrt(2.0), {a, b}});
    }
    std::ranges::sort(pairs, std::greater());
    const GenerateOptions options{
        .max_new_tokens = 2,
        .settings = {.num_beams = std::ssize(first), .length_penalty = 0.5, .num_return_sequences = 5},
        .end = Ids()};
    const std::vector<GeneratedSequence> found =
        model.generate_sequences(std::span<const std::int64_t>(prompt), options);
    ASSERT_EQ(found.size(), 5);
    for (std::size_t n = 0; n < found.size(); ++n) {
      EXPECT_EQ(found[n].ids, pairs[n].second) << name << " " << n;
      EXPECT_NEAR(found[n].score, pairs[n].first, 1e-5);
    }
    EXPECT_EQ(model.generate(prompt, options), pairs[0].second);
  }
}

TEST(Writing, SharesAreThoseOfTheExponential) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 9);
  for (const std::size_t size : {std::size_t{1}, std::size_t{7}, std::size_t{256}, std::size_t{3001}}) {
    std::vector<float> logits(size);
    for (float& x : logits) x = normal(random);
    if (size > 7) logits[3] = -std::numeric_limits<float>::infinity(), logits[4] = -1e30f;
    const float largest = std::ranges::max(logits);
    for (const double scale : {0.1, 1.0, 7.0}) {
      double sum = 0;
      for (const float x : logits) sum += std::exp((double(x) - largest) * scale);
      EXPECT_NEAR(models::sum_of_shares(logits, largest, scale) / sum, 1, 2e-6);
    }
  }
}

// What is shown piece by piece is what decode() gives of all of it, for each kind of tokenizer; and no piece cuts a
// character.
TEST(Writing, PiecesAreTheText) {
  const auto golden = nlohmann::json::parse(std::ifstream(data("golden/tokenizers.json")));
  std::mt19937 random(3);
  int pieces = 0, texts = 0;
  for (const auto& each : golden) {
    SCOPED_TRACE(each["name"].dump());
    const Tokenizer tokenizer = Tokenizer::parse(each["tokenizer"].dump());
    for (const auto& one : each["cases"]) {
      const Ids all = one["ids"].get<Ids>();
      const std::size_t begin = all.empty() ? 0 : random() % all.size();
      const Ids before(all.begin(), all.begin() + std::ptrdiff_t(begin));
      const std::vector<std::string> none;
      models::WrittenText written(tokenizer, before, none);
      std::string text;
      for (std::size_t n = begin; n < all.size(); ++n) {
        const std::string piece = written.add(all[n]);
        pieces += !piece.empty();
        text += piece;
      }
      text += written.end();
      const std::string before_text = tokenizer.decode(before), whole = tokenizer.decode(all);
      if (!whole.starts_with(before_text)) continue;  // it ends within a character
      EXPECT_EQ(text, whole.substr(before_text.size())) << one["text"].dump();
      ++texts;
    }
  }
  EXPECT_GT(pieces, 200);
  EXPECT_GT(texts, 100);
}

TEST(Writing, AStopStringIsKeptBackUntilItIsNone) {
  const Tokenizer tokenizer = Tokenizer::parse(
      R"({"version": "1.0", "decoder": {"type": "Fuse"}, "model": {"type": "WordLevel", "unk_token": "?",
          "vocab": {"?": 0, "ab": 1, "c": 2, "d": 3, "abcab": 4, "x": 5}}})");
  const std::vector<std::string> stops{"abcd", "xx"};
  const Ids before{1};
  models::WrittenText written(tokenizer, before, stops);
  EXPECT_EQ(written.add(5), "");        // x
  EXPECT_EQ(written.add(1), "x");       // ab may begin abcd
  EXPECT_EQ(written.add(2), "");        // abc
  EXPECT_EQ(written.add(4), "abcabc");  // what is left may begin it
  EXPECT_FALSE(written.stopped());
}

TEST(Writing, ACacheKeepsWhatItHasWhenACallFails) {
  const Model model = tiny("llama");
  ModelCache cache = model.cache();
  const Ids prompt{5, 6, 7};
  const Ids made = model.generate(prompt, {.max_new_tokens = 5, .end = Ids(), .cache = &cache});
  EXPECT_EQ(cache.length(), 7);
  GenerateOptions fails{.max_new_tokens = 5, .cache = &cache};
  fails.on_token = [](std::int64_t) -> bool { throw std::runtime_error("enough"); };
  EXPECT_THROW(model.generate({5, 6, 9}, fails), std::runtime_error);
  EXPECT_EQ(cache.length(), 7);
  EXPECT_EQ(model.generate(prompt, {.max_new_tokens = 5, .end = Ids(), .cache = &cache}), made);
}

}  // namespace
}  // namespace attend
