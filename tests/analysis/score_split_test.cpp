// explain_score() on the models of tests/golden: parts sum to the score that the pass had, in every family.
// test_score_split.py has each pair beside float64 sums of what hooks see in Transformers.
#include "attend/score_split.h"

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "tests/expect.h"
#include "tests/threads_at_most.h"

namespace attend {
namespace {

using namespace test;

const std::vector<std::int64_t> ids{3, 7, 5, 12, 9, 4, 8, 6}, decoder_ids{0, 5, 11, 3, 8, 2};

Model load(const std::string& name, DType dtype = DType::f32) {
  return Model::load(data("golden/models/" + name), {.dtype = dtype});
}

double magnitude(const Tensor& x) {
  return std::accumulate(x.data<float>(), x.data<float>() + x.count(), 0.0,
                         [](double sum, float value) { return sum + std::abs(static_cast<double>(value)); });
}

TEST(ScoreSplit, PartsSumToTheScoreOfThePass) {
  using Against = ScoreOptions::Against;
  for (const std::string name :
       {"albert", "bert", "distilbert", "modernbert", "mpnet", "roberta", "gemma3", "gpt2", "gpt_neox", "llama",
        "mistral", "olmo2", "opt", "phi3", "qwen2", "qwen3", "bart", "marian", "t5"}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Model model = load(name, dtype);
      const ModelInfo& info = model.info();
      for (const Against against : {Against::mean, Against::key, Against::nothing}) {
        ScoreOptions options{.against = against, .against_key = -3};
        if (info.encoder_decoder()) options.decoder_ids = decoder_ids;
        const ScoreSplit found = explain_score(model, ids, {-1, 1}, -1, -2, options);
        const std::int64_t crossed = info.encoder_decoder() ? info.heads : 0;
        EXPECT_EQ(std::ssize(found.parts), (info.layers - 1) * (info.heads + crossed + 1) + 2) << name;
        EXPECT_LE(std::abs(found.rest), (dtype == DType::f32 ? 1e-5 : 2e-2) * magnitude(found.pairs)) << name;
        EXPECT_EQ(found.bias != 0, name == "t5" || name == "mpnet") << name;
        const Tensor query = sums_of_query(found), key = sums_of_key(found);
        EXPECT_NEAR(
            std::accumulate(query.data<float>(), query.data<float>() + query.count(), 0.0) + found.bias + found.rest,
            found.score, 1e-5 * magnitude(found.pairs) + 1e-6);
        EXPECT_NEAR(std::accumulate(key.data<float>(), key.data<float>() + key.count(), 0.0) + found.bias + found.rest,
                    found.score, 1e-5 * magnitude(found.pairs) + 1e-6);
        EXPECT_NEAR(found.parts[0].value, static_cast<double>(query.data<float>()[0]), 1e-5 * magnitude(found.pairs));
      }
    }
  }
}

TEST(ScoreSplit, OfTheEncodersTextItHasPartsOfTheEncoder) {
  for (const std::string name : {"bart", "marian", "t5"}) {
    const Model model = load(name);
    const ModelInfo& info = model.info();
    ScoreOptions options{.decoder_ids = decoder_ids, .attention = AttentionKind::cross};
    const ScoreSplit found = explain_score(model, ids, {-1, 1}, -1, -2, options);
    EXPECT_EQ(std::ssize(found.parts), (info.layers - 1) * (2 * info.heads + 1) + info.heads + 2) << name;
    EXPECT_EQ(std::ssize(found.key_parts), info.encoder_layers * (info.encoder_heads + 1) + 2) << name;
    EXPECT_LE(std::abs(found.rest), 1e-5 * magnitude(found.pairs)) << name;
    EXPECT_GT(magnitude(found.pairs), 1e-3) << name;
    options.sides = ScoreOptions::Sides::query;
    const ScoreSplit query = explain_score(model, ids, {-1, 1}, -1, -2, options);
    EXPECT_NEAR(query.score, found.score, 1e-6 * magnitude(found.pairs)) << name;
    expect_close(query.pairs.view().select(1, 0), sums_of_query(found), 1e-5);
  }
}

TEST(ScoreSplit, ThreadsDoNotMatter) {
  const Model model = load("llama");
  const Head by_token[] = {{0, 1}};
  const ScoreOptions options{.by_token = by_token};
  const ScoreSplit found = explain_score(model, ids, {1, 2}, 5, 2, options);
  const test::ThreadsAtMost limit(1);
  expect_same(explain_score(model, ids, {1, 2}, 5, 2, options).pairs, found.pairs);
}

TEST(ScoreSplit, SaysWhatIsWrong) {
  const Model model = load("llama");
  expect_error(
      ErrorCode::bad_value,
      [&] {
        (void)explain_score(model, ids, {2, 0}, 1, 0);
      },
      "layer is 2, expected 0 to 1");
  expect_error(
      ErrorCode::bad_value,
      [&] {
        (void)explain_score(model, ids, {1, 0}, 1, 3);
      },
      "query 1 does not see key 3; it sees keys 0 to 1");
  expect_error(
      ErrorCode::bad_value,
      [&] {
        (void)explain_score(load("t5"), ids, {1, 0}, 1, 0);
      },
      "there are no decoder_ids");
  expect_error(
      ErrorCode::bad_shape, [] { (void)sums_of_key(ScoreSplit()); }, "pairs have shape");
}

}  // namespace
}  // namespace attend
