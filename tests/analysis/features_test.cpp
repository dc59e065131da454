// SparseAutoencoder, features() and what features wrote; test_features.py has them beside PyTorch.
#include "attend/features.h"

#include <cmath>
#include <numeric>

#include "attend/analysis.h"
#include "tests/expect.h"
#include "tests/threads_at_most.h"

namespace attend {
namespace {

using namespace test;

const std::vector<std::int64_t> ids{3, 7, 1, 12, 9, 4, 7, 1, 15};
constexpr std::int64_t size = 12;

Model load(const std::string& name, DType dtype = DType::f32) {
  return Model::load(data("golden/models/" + name), {.dtype = dtype});
}

// Of numbers in [N,in] that it writes again.
SparseAutoencoder autoencoder(std::int64_t in, LayerPlace place) {
  Generator generator(5);
  TensorMap weights;
  weights.emplace("W_enc", generator.randn({in, size})), weights.emplace("W_dec", generator.randn({size, in}));
  weights.emplace("b_enc", generator.randn({size})), weights.emplace("b_dec", generator.randn({in}));
  return SparseAutoencoder::of(R"({"d_in": )" + std::to_string(in) + R"(, "d_sae": 12})", weights, {.reads = place});
}

double sum(const Tensor& x) {
  return std::accumulate(x.data<float>(), x.data<float>() + x.count(), 0.0);
}

double magnitude(const Tensor& x) {
  return std::accumulate(x.data<float>(), x.data<float>() + x.count(), 0.0,
                         [](double all, float each) { return all + std::abs(static_cast<double>(each)); });
}

// Features, the decoder's bias and the error are all that a place wrote: of the stream before layer 0 the embedding, of
// an MLP its own number, of norms in every place.
TEST(Features, PartsAreAllThatThePlaceWrote) {
  const std::vector<std::int64_t> decoder_ids{2, 5, 9, 4};
  for (const char* name : {"gpt2", "llama", "gpt_neox", "opt", "olmo2", "gemma3", "bart", "t5"}) {
    const Model model = load(name);
    const std::int64_t E = model.info().embedding_size;
    AttributeOptions options{.token = 5, .against = 2};
    if (model.info().encoder_decoder()) options.decoder_ids = decoder_ids;
    const auto told = [&](LayerPlace place) {
      const SparseAutoencoder of = autoencoder(E, place);
      options.features = &of;
      return attribute(model, ids, options);
    };
    const auto near = [&](const Attribution& a, double expected) {
      const double all = magnitude(a.features) + std::abs(a.feature_bias) + std::abs(a.feature_error);
      EXPECT_EQ(a.features.count(), size);
      EXPECT_NEAR(sum(a.features) + a.feature_bias + a.feature_error, expected, 1e-5 * all) << name;
    };
    const Attribution first = told({ModelPlace::residual, 0});
    near(first, first.embedding);
    for (std::int64_t layer = 0; layer < model.info().layers; ++layer) {
      const Attribution mlp = told({ModelPlace::mlp, layer});
      near(mlp, static_cast<double>(mlp.mlps.data<float>()[layer]));
    }
  }
}

// Of models without biases: what the stream holds is what all parts before wrote.
TEST(Features, TheStreamIsAllThatWasWrittenBefore) {
  const std::vector<std::int64_t> decoder_ids{2, 5, 9, 4};
  for (const char* name : {"llama", "t5"}) {
    const Model model = load(name);
    const bool reads = model.info().encoder_decoder();
    AttributeOptions options{.token = 5};
    if (reads) options.decoder_ids = decoder_ids;
    const Attribution plain = attribute(model, ids, options);
    const auto expect = [&](ModelPlace at, std::int64_t layer, double expected) {
      const SparseAutoencoder of = autoencoder(model.info().embedding_size, {at, layer});
      options.features = &of;
      const Attribution a = attribute(model, ids, options);
      const double all = magnitude(a.features) + std::abs(a.feature_bias) + std::abs(a.feature_error);
      EXPECT_NEAR(sum(a.features) + a.feature_bias + a.feature_error, expected, 1e-5 * all) << name << name_of(at);
    };
    const auto of_layer = [](const Tensor& parts, std::int64_t layer) {
      return sum(parts.view().select(0, layer).clone());
    };
    double written = plain.embedding;
    for (std::int64_t layer = 0; layer < model.info().layers; ++layer) {
      expect(ModelPlace::residual, layer, written);
      const double heads = of_layer(plain.heads, layer), cross = reads ? of_layer(plain.cross, layer) : 0;
      expect(ModelPlace::attention, layer, heads);
      if (reads) expect(ModelPlace::cross_residual, layer, written + heads);
      if (reads) expect(ModelPlace::cross_attention, layer, cross);
      expect(ModelPlace::residual_mid, layer, written + heads + cross);
      written += heads + cross + static_cast<double>(plain.mlps.data<float>()[layer]);
    }
    expect(ModelPlace::residual, -1, written);
  }
}

TEST(Features, FeaturesAndErrorAreThePlace) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Model model = load("llama", dtype);
    const SparseAutoencoder of = autoencoder(model.info().embedding_size, {ModelPlace::mlp, -1});
    Tensor there;
    const auto observe = [&](ModelPlace place, std::int64_t layer, const View& values) {
      if (place == ModelPlace::mlp && layer == model.info().layers - 1) there = values.to(DType::f32);
    };
    const Features found = features(model, of, ids, {.observe = observe});
    ASSERT_EQ(there.shape(), found.error.shape());
    for (std::int64_t n = 0; n < there.count(); ++n) {
      const float made = found.reconstruction.data<float>()[n], rest = found.error.data<float>()[n];
      EXPECT_LE(std::abs(made + rest - there.data<float>()[n]), 1.2e-7F * (std::abs(made) + std::abs(rest)));
    }
  }
}

TEST(Features, OneThreadGivesTheSameBits) {
  const Model model = load("gpt2");
  const SparseAutoencoder of = autoencoder(model.info().embedding_size, {ModelPlace::residual, 1});
  const Features found = features(model, of, ids);
  const test::ThreadsAtMost limit(1);
  const Features alone = features(model, of, ids);
  expect_same(found.activations, alone.activations);
  expect_same(found.error, alone.error);
}

TEST(Features, EditsChangeThePlaceByWhatTheFeatureWrites) {
  const Model model = load("gpt2");
  const SparseAutoencoder of = autoencoder(model.info().embedding_size, {ModelPlace::attention, 1});
  const Features found = features(model, of, ids);
  const std::vector<FeatureValue> strongest = strongest_features(found, 2, 3);
  ASSERT_FALSE(strongest.empty());
  const std::int64_t feature = strongest[0].feature;
  EXPECT_EQ(strongest[0].value, found.activations.data<float>()[2 * size + feature]);
  for (const double value : {0.0, 2.0}) {
    const FeatureEdit changed = value == 0 ? of.scaled(found, feature) : of.set_to(found, feature, value);
    // What stands there then is less by what it wrote.
    const Edit edits[] = {changed.edit()};
    const Features after = features(model, of, ids, {.edits = edits});
    const Tensor row = of.direction(feature);
    for (std::int64_t n = 0; n < after.error.count(); ++n) {
      const std::int64_t r = n / row.count(), c = n % row.count();
      const float* before = found.activations.data<float>() + r * size;
      const double by = (value - static_cast<double>(before[feature])) * static_cast<double>(row.data<float>()[c]);
      const auto whole = [&](const Features& x) {
        return static_cast<double>(x.reconstruction.data<float>()[n]) + static_cast<double>(x.error.data<float>()[n]);
      };
      EXPECT_NEAR(whole(after) - whole(found), by, 1e-4);
    }
  }
}

TEST(Features, WhatIsWrongIsNamed) {
  const Model model = load("llama");
  const std::int64_t E = model.info().embedding_size;
  const SparseAutoencoder of = autoencoder(E, {ModelPlace::residual, 1});
  expect_error(
      ErrorCode::bad_shape, [&] { strongest_features({}, 0); }, "values have shape");
  expect_error(
      ErrorCode::bad_value, [&] { of.direction(12); }, "feature is 12, expected 0 to 11");
  expect_error(
      ErrorCode::bad_value, [&] { of.added(1, std::nan("")); }, "value is nan, expected a finite number");
  expect_error(
      ErrorCode::bad_shape,
      [&] {
        features(model, autoencoder(E + 1, {ModelPlace::residual, 1}), ids);
      },
      "the autoencoder reads");
  expect_error(
      ErrorCode::bad_file, [&] { SparseAutoencoder::of("{}", {}); }, "d_in is missing");
}

}  // namespace
}  // namespace attend
