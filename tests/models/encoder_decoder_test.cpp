// Encoder-decoders beside Transformers (make_encoder_decoders_golden.py): both stacks, caches, sequences, edits, and
// why.
#include <numeric>

#include "attend/analysis.h"
#include "attend/models.h"
#include "tests/allocations.h"
#include "tests/expect.h"
#include "tests/io/files.h"

namespace attend {
namespace {

using namespace test;

const TensorMap& numbers() {
  static const TensorMap tensors = read_safetensors(data("golden/encoder_decoders.safetensors")).tensors;
  return tensors;
}

std::vector<std::int64_t> whole(const std::string& name) {
  const View x = numbers().at(name);
  return {x.data<std::int64_t>(), x.data<std::int64_t>() + x.count()};
}

Model load(const std::string& name, std::optional<DType> dtype = {}) {
  return Model::load(data("golden/models/" + name), {.dtype = dtype});
}

const std::vector<std::string> names{"bart", "marian", "t5"};

TEST(EncoderDecoder, StatesLogitsAndTokensAreThoseOfTransformers) {
  const std::vector<std::int64_t> ids = whole("ids"), decoder_ids = whole("decoder_ids");
  for (const std::string& name : names) {
    const Model model = load(name);
    expect_close(model.encoder_states(ids), numbers().at(name + ".encoder"), 2e-6, name);
    const Tensor hidden = model.forward(ids, {.decoder_ids = decoder_ids});
    expect_close(hidden, numbers().at(name + ".hidden"), 3e-6, name);
    expect_close(model.logits(hidden), numbers().at(name + ".logits"), 5e-6, name);
    EXPECT_EQ(model.generate(ids, {.max_new_tokens = 12}), whole(name + ".tokens")) << name;
    const Tensor narrow = load(name, DType::bf16).forward(ids, {.decoder_ids = decoder_ids});
    expect_close(narrow, numbers().at(name + ".hidden"), 5e-2, name);
  }
}

TEST(EncoderDecoder, GeneratesOfSeveralTextsAtOnce) {
  const std::vector<std::int64_t> ids = whole("ids");
  const std::vector<std::vector<std::int64_t>> prompts{{ids.begin(), ids.begin() + 3}, ids, {ids[5]}, ids};
  for (const std::string& name : names) {
    const Model model = load(name);
    const std::vector<std::vector<std::int64_t>> made = model.generate(prompts, {.max_new_tokens = 12});
    EXPECT_EQ(made[1], whole(name + ".tokens")) << name;
    for (std::size_t n = 0; n < prompts.size(); ++n)
      EXPECT_EQ(made[n], model.generate(prompts[n], {.max_new_tokens = 12})) << name << " " << n;
  }
}

TEST(EncoderDecoder, SequencesAndCachesKeepToThemselves) {
  const std::vector<std::int64_t> ids = whole("ids"), decoder_ids = whole("decoder_ids"), starts{0, 4, 11},
                                  decoder_starts{0, 2, 5}, none;
  for (const std::string& name : names) {
    const Model model = load(name);
    const ModelCall call{.starts = starts, .decoder_ids = decoder_ids, .decoder_starts = decoder_starts};
    const Tensor all = model.forward(ids, call);
    const std::span<const std::int64_t> text = ids, said = decoder_ids;
    const Tensor second = model.forward(text.subspan(4), {.decoder_ids = said.subspan(2)});
    expect_same(all.view().slice(0, 0, 2), model.forward(text.first(4), {.decoder_ids = said.first(2)}), name);
    expect_same(all.view().slice(0, 2, 5), second, name);

    ModelCache cache = model.cache();
    ModelCache* const caches[] = {&cache};
    model.forward(text.subspan(4), {.caches = caches, .decoder_ids = said.subspan(2, 2)});
    EXPECT_EQ(cache.length(), 2);
    EXPECT_EQ(cache.encoder_length(), 7);
    ModelCache fork = cache;
    const Tensor last = model.forward(none, {.caches = caches, .decoder_ids = said.subspan(4)});
    expect_close(last, second.view().slice(0, 2, 3), 1e-6, name);
    ModelCache* const forks[] = {&fork};
    expect_same(model.forward(none, {.caches = forks, .decoder_ids = said.subspan(4)}), last, name);
  }
}

// Whatever allocation fails, a cache is as it was.
TEST(EncoderDecoder, ACallThatFailsTakesNothingWithIt) {
  const std::vector<std::int64_t> ids = whole("ids"), decoder_ids = whole("decoder_ids");
  for (const std::string& name : names) {
    const Model model = load(name);
    ModelCache cache = model.cache();
    ModelCache* const caches[] = {&cache};
    const ModelCall call{.caches = caches, .decoder_ids = decoder_ids};
    const Tensor expected = model.forward(ids, {.decoder_ids = decoder_ids});
    bool failed = true;
    for (std::int64_t n = 0; failed; n += 7) {
      const CountAllocations counted(n);
      try {
        model.forward(ids, call);
      } catch (const std::exception&) {
      }
      failed = counted.failed();
      if (!failed) continue;
      EXPECT_EQ(cache.length(), 0);
      EXPECT_EQ(cache.encoder_length(), 0);
    }
    EXPECT_EQ(cache.length(), 5);
    cache = model.cache();
    expect_same(model.forward(ids, call), expected, name);
  }
}

TEST(EncoderDecoder, PartsSumToTheLogit) {
  const std::vector<std::int64_t> ids = whole("ids"), decoder_ids = whole("decoder_ids");
  const auto sum = [](const Tensor& x) { return std::accumulate(x.data<float>(), x.data<float>() + x.count(), 0.0); };
  for (const std::string& name : names) {
    const Attribution found = attribute(load(name), ids, {.token = 5, .decoder_ids = decoder_ids});
    EXPECT_EQ(found.cross.shape(), (Dims{2, 4, 11})) << name;
    EXPECT_NEAR(found.logit, numbers().at(name + ".logits").view().item({4, 5}), 1e-5) << name;
    EXPECT_NEAR(sum(found.heads) + sum(found.cross) + sum(found.mlps) + found.embedding + found.bias, found.logit, 1e-5)
        << name;
  }
}

TEST(EncoderDecoder, EditsAreOfTheStackThatRuns) {
  const std::vector<std::int64_t> ids = whole("ids"), decoder_ids = whole("decoder_ids");
  const Model model = load("t5");
  const auto edited = [&](ModelPlace at) {
    const Edit edit{.layer = 0, .at = at};
    return model.forward(ids, {.decoder_ids = decoder_ids, .edits = {&edit, 1}});
  };
  const Tensor plain = model.forward(ids, {.decoder_ids = decoder_ids});
  for (const ModelPlace at : {ModelPlace::z, ModelPlace::cross_z, ModelPlace::encoder_z, ModelPlace::encoder_mlp})
    EXPECT_GT(std::abs(edited(at).view().item({4, 3}) - plain.view().item({4, 3})), 1e-4) << name_of(at);
  const Edit edit{.layer = 0, .at = ModelPlace::cross_z};
  expect_error(
      ErrorCode::bad_value,
      [&] {
        model.encoder_states(ids, {.edits = {&edit, 1}});
      },
      "does not run the decoder");
}

}  // namespace
}  // namespace attend
