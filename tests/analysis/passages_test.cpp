// passages() on the models of tests/golden, beside knockouts by hand, and the passages of a text. test_passages.py has
// the estimates beside PyTorch's autograd.
#include "attend/passages.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "attend/analysis.h"
#include "attend/random.h"
#include "tests/expect.h"

namespace attend {
namespace {

using namespace test;

const std::vector<std::int64_t> ids{3, 7, 5, 12, 9, 4, 8, 6}, decoder_ids{0, 5, 11};
const std::vector<Range> spans{{0, 2}, {2, 5}, {4, 7}};

Model load(const std::string& name, DType dtype = DType::f32) {
  return Model::load(data("golden/models/" + name), {.dtype = dtype});
}

PassagesOptions asked_of(const Model& model, const Tensor& vector) {
  PassagesOptions options{.spans = spans, .hide = 2};
  if (model.info().encoder_decoder()) options.number.decoder_ids = decoder_ids;
  if (model.info().decoder())
    options.number.token = 7;
  else
    options.number.of = GradientOf::cosine, options.number.vector = vector.view();
  return options;
}

TEST(Passages, WhatIsHiddenIsAKnockout) {
  for (const std::string name : {"bert", "modernbert", "gpt2", "llama", "mistral", "gemma3", "opt", "bart", "t5"}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Model model = load(name, dtype);
      const ModelInfo& info = model.info();
      const Tensor vector = Generator(3).randn({std::max<std::int64_t>(1, info.vector_size)});
      const PassagesOptions options = asked_of(model, vector);
      const Passages found = passages(model, ids, options);
      ASSERT_EQ(found.hidden.size(), 2) << name;
      EXPECT_GE(std::abs(found.estimated.data<float>()[found.hidden[0]]),
                std::abs(found.estimated.data<float>()[found.hidden[1]]));
      if (!info.decoder() || info.encoder_decoder()) continue;  // their knockouts are in test_passages.py
      for (std::size_t n = 0; n < 2; ++n) {
        const Range& span = spans[static_cast<std::size_t>(found.hidden[n])];
        Knockout knockout{.rows = std::vector<std::int64_t>{}};
        for (std::int64_t row = span.end; row < std::ssize(ids); ++row) knockout.rows->push_back(row);
        for (std::int64_t key = span.begin; key < span.end; ++key) knockout.keys.push_back(key);
        const Tensor hidden = model.forward(ids, {.knockouts = {&knockout, 1}});
        const Tensor logits = model.logits(hidden.view().select(0, hidden.size(0) - 1));
        EXPECT_EQ(found.measured.data<float>()[n],
                  static_cast<float>(found.value - static_cast<double>(logits.data<float>()[7])))
            << name;
      }
    }
  }
}

TEST(Passages, NothingComesAfterTheLastOne) {
  const Model model = load("llama");
  const Passages found = passages(model, ids, {.spans = {{5, 8}}});
  EXPECT_EQ(found.estimated.data<float>()[0], 0);
  EXPECT_EQ(found.measured.data<float>()[0], 0);
  EXPECT_EQ(passages(model, ids, {.spans = spans, .hide = 0}).measured.count(), 0);
}

TEST(Passages, SaysWhatIsWrong) {
  const Model model = load("llama");
  const auto refused = [&](const PassagesOptions& options, const std::string& words) {
    expect_error(
        ErrorCode::bad_value, [&] { (void)passages(model, ids, options); }, words);
  };
  refused({}, "there are no spans, expected at least one");
  refused({.spans = {{3, 3}}}, "a span has tokens 3 to 3, expected a part of 0 to 8");
  refused({.spans = {{-1, 3}}}, "a span has tokens -1 to 3");
  refused({.spans = spans, .hide = -1}, "hide is -1");
  refused({.number = {.of = GradientOf::sum}, .spans = spans}, "expected a logit");
  refused({.number = {.observe = [](ModelPlace, std::int64_t, const View&) {}}, .spans = spans},
          "observe can't be given here");
  expect_error(
      ErrorCode::bad_value, [] { (void)passages(load("t5"), ids, {.spans = spans}); }, "decoder_ids");
}

// Of a text whose tokens are its bytes, behind one that was added.
Encoding bytes_of(const std::string& text) {
  Encoding all;
  const auto add = [&](Range at, bool special) {
    all.ids.push_back(0), all.offsets.push_back(at), all.special.push_back(special), all.types.push_back(0);
    all.texts.push_back(special ? -1 : 0);
  };
  add({0, 0}, true);
  for (std::int64_t n = 0; n < std::ssize(text); ++n) add({n, n + 1}, false);
  add({0, 0}, true);
  return all;
}

std::vector<std::string> parts(const std::string& text, PassageBy by) {
  std::vector<std::string> found;
  for (const Range& span : passages_of(text, bytes_of(text), by))
    found.push_back(
        text.substr(static_cast<std::size_t>(span.begin - 1), static_cast<std::size_t>(span.end - span.begin)));
  return found;
}

TEST(Passages, OfAText) {
  using Parts = std::vector<std::string>;
  const std::string text = "\n one\ntwo\n \t\r\n\nthree\n\n\n";
  EXPECT_EQ(parts(text, PassageBy::paragraph), (Parts{" one\ntwo\n", "three\n"}));
  EXPECT_EQ(parts(text, PassageBy::line), (Parts{" one\n", "two\n", "three\n"}));
  EXPECT_EQ(parts("all", PassageBy::paragraph), Parts{"all"});
  EXPECT_EQ(parts("a\n\nb", PassageBy::paragraph), (Parts{"a\n", "b"}));
  EXPECT_EQ(parts("", PassageBy::paragraph), Parts{});
  EXPECT_EQ(parts(" \n\n", PassageBy::line), Parts{});
  // A token over the end of one is the first's.
  Encoding encoding;
  encoding.ids = {1, 2}, encoding.offsets = {{0, 4}, {4, 5}}, encoding.special = {false, false};
  encoding.types = {0, 0}, encoding.texts = {0, 0};
  const std::vector<Range> found = passages_of("a\n\nbc", encoding, PassageBy::paragraph);
  ASSERT_EQ(found.size(), 2);
  EXPECT_EQ(found[0].end, 1);
  EXPECT_EQ(found[1].begin, 1);
}

TEST(Patching, IsEstimatedWhereItIsTaken) {
  const std::vector<std::int64_t> corrupt{3, 7, 6, 12, 9, 5, 8, 6};
  using What = PatchOptions::What;
  for (const std::string name : {"gpt2", "llama", "mistral", "t5"}) {
    const Model model = load(name);
    for (const What what : {What::heads, What::residual, What::q, What::k, What::v}) {
      PatchOptions options{.what = what};
      if (model.info().encoder_decoder()) options.decoder_ids = decoder_ids;
      if (model.info().encoder_decoder()) options.attention = AttentionKind::encoder;
      const Patching real = patch(model, ids, corrupt, 7, 9, options);
      options.estimate = true;
      const Patching guess = patch(model, ids, corrupt, 7, 9, options);
      EXPECT_EQ(guess.recovered.shape(), real.recovered.shape()) << name << " " << name_of(what);
      EXPECT_TRUE(guess.estimate && !real.estimate && guess.what == what);
      EXPECT_NEAR(guess.clean, real.clean, 1e-5);
      EXPECT_NEAR(guess.corrupt, real.corrupt, 1e-5);
    }
  }
}

}  // namespace
}  // namespace attend
