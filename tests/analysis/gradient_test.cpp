// gradient() and saliency() on the models of tests/golden: beside small steps, and every road to the same bits.
// test_gradient.py has every place of them beside PyTorch's autograd.
#include "attend/gradient.h"

#include <cmath>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "attend/saliency.h"
#include "tests/allocations.h"
#include "tests/expect.h"
#include "tests/threads_at_most.h"

namespace attend {
namespace {

using namespace test;

// None of them pads: of padding MPNet has embeddings of zeros, where LayerNorm has no slope that a step could show.
const std::vector<std::int64_t> ids{3, 7, 5, 12, 9, 4}, decoder_ids{0, 5, 11};
const std::vector<std::string> encoders{"albert", "bert", "distilbert", "modernbert", "mpnet", "roberta"};
const std::vector<std::string> decoders{"gemma3", "gpt2", "gpt_neox", "llama", "mistral",
                                        "olmo2",  "opt",  "phi3",     "qwen2", "qwen3"};
const std::vector<std::string> both{"bart", "marian", "t5"};

Model load(const std::string& name, DType dtype = DType::f32) {
  return Model::load(data("golden/models/" + name), {.dtype = dtype});
}

std::vector<std::string> every() {
  std::vector<std::string> all = encoders;
  all.insert(all.end(), decoders.begin(), decoders.end());
  all.insert(all.end(), both.begin(), both.end());
  return all;
}

// What is asked of a model, and what stands at every place of its pass then.
struct Asked {
  Model model;
  Tensor cotangent = {};
  GradientOptions options = {};
  std::map<std::pair<ModelPlace, std::int64_t>, Tensor> gradients = {};

  explicit Asked(const std::string& name, DType dtype = DType::f32) : model(load(name, dtype)) {
    if (model.info().encoder_decoder()) options.decoder_ids = decoder_ids;
    cotangent = Generator(5).normal(model.forward(ids, {.decoder_ids = options.decoder_ids}).shape(), 0, 1);
    options.of = GradientOf::sum;
    options.cotangent = cotangent.view();
    options.observe = [this](ModelPlace place, std::int64_t layer, const View& d) {
      gradients[{place, layer}] = d.clone();
    };
  }
  double value(std::span<const Edit> edits) const {
    const Tensor hidden = model.forward(ids, {.decoder_ids = options.decoder_ids, .edits = edits});
    return std::inner_product(hidden.data<float>(), hidden.data<float>() + hidden.count(), cotangent.data<float>(), 0.0,
                              std::plus<>(), [](float a, float b) { return double(a) * double(b); });
  }
};

// Along the gradient itself a step h each way changes the number by 2 h |g|, but for the third order, which is large
// where a norm divides by little, and for rounding, which is where h is small: of some steps one fits.
TEST(Gradient, IsWhatASmallStepChanges) {
  for (const std::string& name : every()) {
    Asked asked(name);
    gradient(asked.model, ids, asked.options);
    EXPECT_GT(asked.gradients.size(), 20) << name;
    for (const auto& [at, d] : asked.gradients) {
      double squares = 0;
      for (std::int64_t n = 0; n < d.count(); ++n) squares += double(d.data<float>()[n]) * double(d.data<float>()[n]);
      const double length = std::sqrt(squares);
      if (length < 1e-3) continue;  // of keys, whose sum softmax does not see
      double best = 1;
      for (const double step : {3e-2, 3e-3, 3e-4, 3e-5}) {
        const auto moved = [&](double by) {
          const Edit edit{.layer = at.second, .at = at.first, .set = Edit::Set::add, .values = d, .by = by / length};
          return asked.value(std::span(&edit, 1));
        };
        best = std::min(best, std::abs((moved(step) - moved(-step)) / (2 * step) / length - 1));
      }
      EXPECT_LT(best, 0.02) << name << " " << name_of(at.first) << " " << at.second;
    }
  }
}

TEST(Gradient, EveryRoadHasTheSameBits) {
  for (const std::string& name : every()) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Asked whole(name, dtype), again(name, dtype), threads(name, dtype), twice(name, dtype);
      const double value = gradient(whole.model, ids, whole.options).values.front();
      again.options.memory = 0;
      EXPECT_EQ(gradient(again.model, ids, again.options).values.front(), value) << name;
      {
        const test::ThreadsAtMost limit(3);
        gradient(threads.model, ids, threads.options);
      }
      const Dims one = twice.cotangent.shape();
      Tensor two({2, one[0], one[1]});
      two.view().select(0, 1).copy_from(twice.cotangent);
      twice.options.cotangent = two.view();
      EXPECT_EQ(gradient(twice.model, ids, twice.options).values, (std::vector<double>{0, value})) << name;
      for (const auto& [at, d] : whole.gradients) {
        expect_same(again.gradients.at(at), d, name);
        expect_same(threads.gradients.at(at), d, name);
        expect_same(twice.gradients.at(at).view().select(0, 1), d, name);
      }
    }
  }
}

TEST(Gradient, SaysWhatItTakes) {
  for (const std::string& name : every()) {
    const Model model = load(name);
    const GradientBytes bytes = gradient_bytes(model, 50, model.info().encoder_decoder() ? 20 : 0);
    EXPECT_GT(bytes.all, 2 * bytes.least) << name;
    EXPECT_GT(bytes.least, 0) << name;
  }
}

// Whatever allocation fails, the next call finds everything as it was.
TEST(Gradient, ACallThatFailsTakesNothingWithIt) {
  for (const char* name : {"llama", "t5"}) {
    Asked asked(name, DType::f32);
    const double value = gradient(asked.model, ids, asked.options).values.front();
    const auto expected = std::move(asked.gradients);
    bool failed = true;
    for (std::int64_t n = 0; failed; n += 5) {
      const CountAllocations counted(n);
      try {
        gradient(asked.model, ids, asked.options);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::out_of_memory) << error.what();
      } catch (const std::bad_alloc&) {
      }
      failed = counted.failed();
    }
    asked.gradients.clear();
    EXPECT_EQ(gradient(asked.model, ids, asked.options).values.front(), value);
    EXPECT_EQ(asked.gradients.size(), expected.size());
    for (const auto& [at, d] : expected) expect_same(asked.gradients.at(at), d, name);
  }
}

TEST(Saliency, TokensSumToTheChange) {
  for (const char* name : {"llama", "gpt2", "gemma3", "bart", "t5"}) {
    const Model model = load(name);
    SaliencyOptions options{.number = {.token = 5, .against = 2}, .steps = 33};
    if (model.info().encoder_decoder()) options.number.decoder_ids = decoder_ids;
    const Saliency found = saliency(model, ids, options);
    const auto sum = [](const Tensor& x) { return std::accumulate(x.data<float>(), x.data<float>() + x.count(), 0.0); };
    EXPECT_NEAR(sum(found.tokens) + sum(found.encoder) + found.missing, found.value - found.baseline_value, 1e-4)
        << name;
    EXPECT_EQ(found.encoder.count(), model.info().encoder_decoder() ? std::ssize(ids) : 0) << name;
    EXPECT_LE(found.steps, 33);
    options.number.decoder_ids = {};
    if (model.info().encoder_decoder())
      expect_error(
          ErrorCode::bad_value, [&] { saliency(model, ids, options); }, "there are no ids");
  }
}

TEST(Gradient, SaysWhatIsWrong) {
  const Model model = load("llama");
  expect_error(
      ErrorCode::bad_value, [&] { gradient(model, ids, {.position = 6}); }, "position is 6, expected 0 to 5");
  expect_error(
      ErrorCode::bad_value, [&] { gradient(load("bert"), ids); }, "expected a decoder");
  expect_error(
      ErrorCode::bad_value, [&] { saliency(model, ids, {.number = {.of = GradientOf::sum}}); }, "expected a logit");
}

}  // namespace
}  // namespace attend
