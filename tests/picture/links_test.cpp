// Links between tokens.
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include "tests/expect.h"
#include "tests/picture/sample.h"
#include "tests/picture/xml.h"

namespace attend {
namespace {

using test::Element;
using test::texts_of;
using test::Xml;

struct Arrays {
  Tensor keys, weights;
};

Arrays arrays(std::int64_t queries, std::int64_t top, std::initializer_list<int> keys,
              std::initializer_list<float> weights) {
  Arrays made{Tensor({queries, top}, DType::i64), Tensor::from({queries, top}, weights)};
  std::ranges::copy(keys, made.keys.data<std::int64_t>());
  return made;
}

TokenLinks links_of(const Arrays& arrays, std::vector<std::string> queries = {}, std::vector<std::string> keys = {}) {
  TokenLinks links;
  links.top_keys = arrays.keys;
  links.top_weights = arrays.weights;
  links.queries = std::move(queries);
  links.keys = std::move(keys);
  return links;
}

double number(const Element& element, const char* name) {
  return std::stod(element.attributes.at(name));
}

TEST(TokenLinks, ALineForEachKeyTheDenserTheLargerItsWeight) {
  const Arrays top = arrays(3, 2, {0, -1, 1, 0, 2, 1}, {1, 0, 0.75F, 0.25F, 0.5F, 0.3F});
  TokenLinks links = links_of(top, {"the", "<b>", "sat & x"}, {"k0", "k1", "k2"});
  const Xml svg(svg_token_links(links));
  const std::vector<Element> lines = svg.named("line");
  ASSERT_EQ(lines.size(), 5U);  // -1 has none
  // From the thinnest to the densest.
  const std::vector<double> opacities = {0.25, 0.3, 0.5, 0.75, 1};
  for (std::size_t i = 0; i < lines.size(); ++i) EXPECT_EQ(number(lines[i], "stroke-opacity"), opacities[i]);
  const std::vector<Element> titles = svg.named("title");
  EXPECT_EQ(titles[1].text, "<b> → k0: 0.2500");
  EXPECT_EQ(titles[5].text, "the → k0: 1.0000");
  // Query 1 looks level at key 1; its line to key 0 rises.
  EXPECT_EQ(number(lines[3], "y1"), number(lines[3], "y2"));
  EXPECT_GT(number(lines[0], "y1"), number(lines[0], "y2"));
  const std::vector<std::string> texts = texts_of(svg);
  // (1 + 1 + 0.8) / 3
  EXPECT_THAT(texts, testing::Contains("The 2 largest weights of each query: 93 % of its attention, on average."));
  for (const char* text : {"the", "<b>", "sat & x", "k0", "k1", "k2", "queries", "keys"})
    EXPECT_THAT(texts, testing::Contains(text));
  EXPECT_EQ(svg_token_links(links), svg_token_links(links));
  EXPECT_EQ(png_token_links(links), png_token_links(links));
  links.scale = PictureScale::sqrt;
  EXPECT_EQ(number(Xml(svg_token_links(links)).named("line")[0], "stroke-opacity"), 0.5);
}

TEST(TokenLinks, IndicesStandWhereThereAreNoTokensAndNanIsOrange) {
  const Arrays top = arrays(2, 1, {7, 0}, {NAN, 2});
  const Xml svg(svg_token_links(links_of(top)));
  const std::vector<std::string> texts = texts_of(svg);
  EXPECT_EQ(std::ranges::count(texts, "7"), 1);
  EXPECT_EQ(std::ranges::count(texts, "8"), 0);
  bool orange = false;
  for (const Element& line : svg.named("line")) orange |= line.attributes.at("stroke") == "#ee9b3a";
  EXPECT_TRUE(orange);
  EXPECT_THAT(texts, testing::Contains("The largest weight of each query."));  // 2 is no weight of a row's
}

TEST(TokenLinks, NothingLeavesThePicture) {
  const std::int64_t count = 300;
  Tensor keys({count, 1}, DType::i64);
  for (std::int64_t i = 0; i < count; ++i) keys.data<std::int64_t>()[i] = count - 1 - i;
  const Tensor weights = test::ramp(count, 1);
  TokenLinks links;
  links.top_keys = keys;
  links.top_weights = weights;
  links.queries.assign(300, std::string(100, 'w'));
  const Xml svg(svg_token_links(links));
  const double width = number(svg.elements()[0], "width");
  const double height = number(svg.elements()[0], "height");
  for (const Element& line : svg.named("line")) {
    EXPECT_GE(number(line, "x1"), 0);
    EXPECT_LE(number(line, "x2"), width);
    for (const char* y : {"y1", "y2"}) {
      EXPECT_GE(number(line, y), 0);
      EXPECT_LE(number(line, y), height);
    }
  }
  EXPECT_FALSE(png_token_links(links).empty());
}

// Of `count` queries, each to the one before it and to the first key; weights fall from query to query.
struct Chain {
  explicit Chain(std::int64_t count) : keys({count, 2}, DType::i64), weights({count, 2}) {
    for (std::int64_t i = 0; i < count; ++i) {
      keys.data<std::int64_t>()[2 * i] = i > 0 ? i - 1 : -1, keys.data<std::int64_t>()[2 * i + 1] = 0;
      weights.data<float>()[2 * i] = 0.5F - 0.4F * static_cast<float>(i) / static_cast<float>(count);
      weights.data<float>()[2 * i + 1] = 0.05F;
    }
  }
  Tensor keys, weights;
};

TEST(TokenLinks, OfManyLinesTheStrongestAndTheirShare) {
  const std::int64_t count = 100;
  const Chain chain(count);
  TokenLinks links;
  links.top_keys = chain.keys, links.top_weights = chain.weights;
  links.caption = "A text.";
  const Xml svg(svg_token_links(links));
  const std::vector<Element> lines = svg.named("line");
  ASSERT_EQ(lines.size(), 160U);
  double all = 0;
  for (std::int64_t i = 1; i < count; ++i) all += chain.weights.data<float>()[2 * i];
  const double share = (all + 61 * 0.05) / static_cast<double>(count);
  EXPECT_THAT(
      fmt::format("{}", fmt::join(texts_of(svg), " ")),
      testing::HasSubstr(fmt::format("A text. The 160 strongest of 199 lines: these show {:.0f} % of the attention of "
                                     "100 queries.",
                                     100 * share)));
  EXPECT_EQ(std::ranges::count(texts_of(svg), "98"), 2);  // every token stands there
}

TEST(TokenLinks, OfManyTokensThoseWithALineAndTheirIndices) {
  const std::int64_t count = 8000;
  const Chain chain(count);
  TokenLinks links;
  links.top_keys = chain.keys, links.top_weights = chain.weights;
  links.queries.assign(static_cast<std::size_t>(count), "w");
  links.keys = links.queries;
  const Xml svg(svg_token_links(links));
  EXPECT_LT(number(svg.elements()[0], "height"), 2500);
  const std::vector<std::string> texts = texts_of(svg);
  // The strongest lines are the first queries', each to the one before: 120 tokens in a row.
  EXPECT_EQ(std::ranges::count(texts, "57 w"), 2);
  EXPECT_EQ(std::ranges::count(texts, "7000 w"), 0);
  EXPECT_EQ(svg.named("line").size(), 119U);
}

TEST(TokenLinks, APartStandsBesideItsOwnKeys) {
  const Arrays top = arrays(2, 1, {3, 0}, {1, 0.5F});
  TokenLinks links = links_of(top, {"c", "d"}, {"a", "b", "c", "d"});
  links.first_query = 2;
  const Xml svg(svg_token_links(links));
  const std::vector<Element> texts = svg.named("text");
  std::vector<std::string> c;
  for (const Element& text : texts)
    if (text.text == "c") c.push_back(text.attributes.at("y"));
  ASSERT_EQ(c.size(), 2U);
  EXPECT_EQ(c[0], c[1]);
}

TEST(TokenLinks, Errors) {
  const Arrays top = arrays(2, 2, {0, 1, 1, 0}, {0.5F, 0.5F, 0.75F, 0.25F});
  const auto expect = [](ErrorCode code, const TokenLinks& links, const std::string& text) {
    test::expect_error(
        code, [&] { (void)svg_token_links(links); }, "svg_token_links: ", text);
    test::expect_error(
        code, [&] { (void)png_token_links(links); }, "png_token_links: ", text);
  };
  expect(ErrorCode::bad_shape, links_of(top, {"a"}), "1 query tokens for 2 queries");
  expect(ErrorCode::bad_value, links_of(top, {}, {"a"}), "top_keys have 1 at [0,1], expected -1 or one of 1 keys");
  expect(ErrorCode::bad_value, links_of(top, {"a", "\xff"}), "queries[1] is not UTF-8");
  TokenLinks links = links_of(top);
  links.top_keys = top.weights;
  expect(ErrorCode::bad_dtype, links, "top_keys are f32, expected i64");
  links.top_keys = top.keys;
  links.top_weights = top.keys;
  expect(ErrorCode::bad_dtype, links, "top_weights are i64");
  const Tensor three({2, 3});
  links.top_weights = three;
  expect(ErrorCode::bad_shape, links, "got [2,2] and [2,3]");
  const Arrays below = arrays(1, 1, {-2}, {1});
  expect(ErrorCode::bad_value, links_of(below), "top_keys have -2 at [0,0]");
  const Arrays negative = arrays(1, 1, {0}, {-0.5F});
  links = links_of(negative);
  links.scale = PictureScale::sqrt;
  expect(ErrorCode::bad_value, links, "top_weights have -0.5 at [0,0], expected 0 or more on the scale sqrt");
  links.scale = PictureScale::diverging;
  expect(ErrorCode::bad_value, links, "scale is diverging");
}

}  // namespace
}  // namespace attend
