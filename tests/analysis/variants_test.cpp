// vary(): words, claims and what would hold by chance. test_variants.py has rows beside Transformers.
#include "attend/variants.h"

#include <algorithm>
#include <bit>
#include <string>
#include <vector>

#include "attend/analysis_look.h"
#include "tests/expect.h"

namespace attend {
namespace {

using namespace test;
using Words = std::vector<std::string>;

TEST(Variants, AWordStandsBetweenMarksAndBlanks) {
  EXPECT_EQ(varied_texts("It's a cat, a cat.", "cat=dog,white mouse"),
            (Words{"It's a cat, a cat.", "It's a dog, a cat.", "It's a white mouse, a cat."}));
  EXPECT_EQ(varied_texts("the concatenated cat", "cat=dog").back(), "the concatenated dog");
  EXPECT_EQ(varied_texts("naïve café", "café=bar").back(), "naïve bar");
  EXPECT_EQ(varied_texts("the  white cat", "white cat=dog").back(), "the  dog");
  EXPECT_EQ(varied_texts("猫が好き", "猫=犬").back(), "犬が好き");
  for (const auto& [words, message] : {std::pair{"cat", "has no '='"},
                                       {"cat=", "has an empty word"},
                                       {"=a", "does not have ''"},
                                       {"cat=a,,b", "has an empty word"},
                                       {"at=a", "does not have 'at'"}})
    expect_error(
        ErrorCode::bad_value, [words = words] { (void)varied_texts("the cat", words); }, message);
}

// Of three words, the last of which asks, in one layer of two heads.
VariantRow row_of(std::initializer_list<float> first, std::initializer_list<float> second) {
  VariantRow row{.text = "a b c", .ids = {1, 2, 3}, .words = {{"a", {0, 1}}, {"b", {1, 2}}, {"c", {2, 3}}}, .query = 2};
  row.weights = Tensor({1, 2, 3});
  std::copy(first.begin(), first.end(), row.weights.data<float>());
  std::copy(second.begin(), second.end(), row.weights.data<float>() + 3);
  return row;
}

TEST(Variants, WhatHolds) {
  Variants x;
  x.rows.push_back(row_of({0.2F, 0.1F, 0.7F}, {0.1F, 0.2F, 0.7F}));
  x.rows.push_back(row_of({0.3F, 0.6F, 0.1F}, {0, 0, 1}));
  EXPECT_EQ(top_word(x.rows[0], {0, 0})->word, "a");  // not its own
  EXPECT_FALSE(top_word(x.rows[1], {0, 1}));
  const auto held = [&] {
    const Tensor counts = times_held(x);
    return std::vector(counts.data<std::int64_t>(), counts.data<std::int64_t>() + counts.count());
  };
  EXPECT_EQ(held(), (std::vector<std::int64_t>{1, 1}));
  for (VariantRow& row : x.rows) row.target = Range{1, 2};
  EXPECT_EQ(held(), (std::vector<std::int64_t>{1, 1}));
  for (VariantRow& row : x.rows) row.other = Range{0, 1};
  EXPECT_EQ(held(), (std::vector<std::int64_t>{1, 1}));
  x.rows[0].target = Range{0, 1}, x.rows[0].other = Range{1, 2};
  EXPECT_EQ(held(), (std::vector<std::int64_t>{2, 0}));
  const VariantBaselines by = baselines(x);
  EXPECT_EQ(by.first, 1);
  EXPECT_EQ(by.nearest, 1);
  EXPECT_EQ(by.chance, 1);
}

// The median of the best of n that guess k times: by all outcomes.
TEST(Variants, TheBestByGuessing) {
  for (const int texts : {1, 3, 6}) {
    Variants x;
    for (int n = 0; n < texts; ++n) {
      x.rows.push_back(row_of({1, 0, 0}, {1, 0, 0}));
      x.rows.back().target = Range{0, 1}, x.rows.back().other = Range{1, 2};
    }
    std::vector<int> best(static_cast<std::size_t>(texts) + 1);
    for (unsigned one = 0; one < 1U << texts; ++one)
      for (unsigned two = 0; two < 1U << texts; ++two)
        ++best[static_cast<std::size_t>(std::max(std::popcount(one), std::popcount(two)))];
    int sum = 0, median = 0;
    while ((sum += best[static_cast<std::size_t>(median)]) * 2 < 1 << (2 * texts)) ++median;
    EXPECT_EQ(baselines(x).chance, median) << texts;
  }
}

TEST(Variants, SaysWhatIsWrong) {
  const Model model = Model::load(data("golden/models/llama"));
  expect_error(
      ErrorCode::bad_value, [&] { (void)vary(model, {}); }, "there are no texts");
  Variants x;
  expect_error(
      ErrorCode::bad_value, [&] { (void)times_held(x); }, "there are no texts");
  x.rows.push_back(row_of({1, 0, 0}, {1, 0, 0}));
  expect_error(
      ErrorCode::bad_value,
      [&] {
        (void)given(x.rows[0], {0, 2}, {});
      },
      "head is 2, expected 0 to 1");
  expect_error(
      ErrorCode::bad_value,
      [&] {
        (void)variants_picture(x, {1, 0}, {});
      },
      "layer is 1");
  x.rows[0].words[1].tokens.end = 9;
  expect_error(
      ErrorCode::bad_value, [&] { (void)times_held(x); }, "tokens 1 to 9, expected a part of 3");
  x.rows[0].weights = Tensor({3});
  expect_error(
      ErrorCode::bad_shape,
      [&] {
        (void)top_word(x.rows[0], {0, 0});
      },
      "weights have shape [3]");
}

}  // namespace
}  // namespace attend
