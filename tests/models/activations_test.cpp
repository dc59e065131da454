// Models whose layers round what they multiply their weights by: how they are opened, what they say of it, and who
// refuses them. The numbers are the kernels' and the layers' (tests/layers).
#include <nlohmann/json.hpp>

#include "attend/analysis.h"
#include "attend/answer_trace.h"
#include "attend/circuits.h"
#include "attend/composition.h"
#include "attend/features.h"
#include "attend/gradient.h"
#include "attend/jacobian_lens.h"
#include "attend/models.h"
#include "attend/passages.h"
#include "attend/saliency.h"
#include "attend/score_split.h"
#include "attend/session.h"
#include "attend/variants.h"
#include "pages/pages.h"
#include "tests/expect.h"
#include "tests/io/files.h"

namespace attend {
namespace {

using namespace test;

constexpr std::int64_t V = 50, E = 64, F = 96, D = 16;
const std::vector<std::int64_t> ids{3, 14, 15, 9, 20, 5};

std::string llama_config(const std::string& dtype) {
  return nlohmann::json{
      {"model_type", "llama"},         {"hidden_size", E},         {"intermediate_size", F}, {"num_hidden_layers", 2},
      {"num_attention_heads", 4},      {"num_key_value_heads", 2}, {"head_dim", D},          {"vocab_size", V},
      {"max_position_embeddings", 40}, {"rms_norm_eps", 1e-6},     {"rope_theta", 10000.0},  {"hidden_act", "silu"},
      {"tie_word_embeddings", true},   {"eos_token_id", nullptr},  {"dtype", dtype}}
      .dump();
}

std::map<std::string, Dims> llama_shapes() {
  std::map<std::string, Dims> shapes{{"model.embed_tokens.weight", {V, E}}, {"model.norm.weight", {E}}};
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    for (const auto& [name, shape] : std::map<std::string, Dims>{{"self_attn.q_proj", {4 * D, E}},
                                                                 {"self_attn.k_proj", {2 * D, E}},
                                                                 {"self_attn.v_proj", {2 * D, E}},
                                                                 {"self_attn.o_proj", {E, 4 * D}},
                                                                 {"mlp.gate_proj", {F, E}},
                                                                 {"mlp.up_proj", {F, E}},
                                                                 {"mlp.down_proj", {E, F}},
                                                                 {"input_layernorm", {E}},
                                                                 {"post_attention_layernorm", {E}}})
      shapes.emplace(layer + name + ".weight", shape);
  }
  return shapes;
}
constexpr std::int64_t llama_weights = 2 * (6 * D * E + 6 * D * E + 3 * E * F);  // numbers of its layers' matrices

std::string gpt2_config() {
  return nlohmann::json{{"model_type", "gpt2"}, {"n_embd", E},     {"n_head", 4},       {"n_layer", 1},
                        {"n_positions", 40},    {"vocab_size", V}, {"eos_token_id", 0}, {"tie_word_embeddings", true}}
      .dump();
}

std::map<std::string, Dims> gpt2_shapes() {
  return {{"wte.weight", {V, E}},
          {"wpe.weight", {40, E}},
          {"ln_f.weight", {E}},
          {"ln_f.bias", {E}},
          {"h.0.ln_1.weight", {E}},
          {"h.0.ln_1.bias", {E}},
          {"h.0.ln_2.weight", {E}},
          {"h.0.ln_2.bias", {E}},
          {"h.0.attn.c_attn.weight", {E, 3 * E}},
          {"h.0.attn.c_attn.bias", {3 * E}},
          {"h.0.attn.c_proj.weight", {E, E}},
          {"h.0.attn.c_proj.bias", {E}},
          {"h.0.mlp.c_fc.weight", {E, 4 * E}},
          {"h.0.mlp.c_fc.bias", {4 * E}},
          {"h.0.mlp.c_proj.weight", {4 * E, E}},
          {"h.0.mlp.c_proj.bias", {E}}};
}

// A folder of random weights: N(0, 0.2^2), and norms of 1.
class RandomModel {
 public:
  RandomModel(const std::string& config, const std::map<std::string, Dims>& shapes, DType dtype = DType::f32) {
    Generator generator(7);
    for (const auto& [name, shape] : shapes) {
      Tensor numbers = generator.randn(shape);
      const bool norm = name.find("norm") != std::string::npos || name.find("ln_") != std::string::npos;
      for (std::int64_t n = 0; n < numbers.count(); ++n)
        numbers.data<float>()[n] = norm ? 1 + 0.1F * numbers.data<float>()[n] : 0.2F * numbers.data<float>()[n];
      tensors_.emplace(name, numbers.view().to(dtype));
    }
    put(folder_ / "config.json", config);
    write();
  }
  void write() const {
    NamedViews views;
    for (const auto& [name, tensor] : tensors_) views.emplace_back(name, tensor);
    write_safetensors(folder_ / "model.safetensors", views);
  }
  TensorMap& tensors() { return tensors_; }
  const std::filesystem::path& path() const { return folder_.path(); }

 private:
  Folder folder_;
  TensorMap tensors_;
};

double cosine_of(const Tensor& a, const Tensor& b) {
  return cosine(a, b);
}

// What differs is what rounding makes of the weights.
void expect_close_but_not_same(const Tensor& found, const Tensor& exact) {
  EXPECT_GT(cosine_of(found, exact), 0.99);
  EXPECT_NE(std::memcmp(found.raw(), exact.raw(), static_cast<std::size_t>(exact.count()) * 4), 0);
}

TEST(Activations, Int8MakesDenseWeightsQ8) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const RandomModel folder(llama_config(dtype == DType::f32    ? "float32"
                                          : dtype == DType::bf16 ? "bfloat16"
                                                                 : "float16"),
                             llama_shapes(), dtype);
    const Model exact = Model::load(folder.path()),
                rounded = Model::load(folder.path(), {.activations = Activations::int8});
    EXPECT_EQ(exact.info().activations, Activations::exact);
    EXPECT_EQ(rounded.info().activations, Activations::int8);
    EXPECT_EQ(rounded.info().dtype, DType::f32) << "all between the products";
    EXPECT_EQ(rounded.info().formats, exact.info().formats);
    EXPECT_EQ(rounded.info().parameters, exact.info().parameters);
    // The table of embeddings as the file has it, and what the output layer has of it.
    EXPECT_EQ(rounded.info().weight_bytes, (llama_weights + V * E) / 32 * 34 + V * E * size_of(dtype));
    const Tensor hidden = rounded.forward(ids);
    expect_close_but_not_same(hidden, exact.forward(ids));
    expect_close_but_not_same(rounded.logits(hidden), exact.logits(exact.forward(ids)));
    // The weights are those of the file as Q8_0 has them: 127 steps to the largest of 32.
    const Tensor own = rounded.weights(0).at("W_in").clone(), given = exact.weights(0).at("W_in").clone();
    EXPECT_GT(cosine_of(own, given), 0.9999);
    expect_same(rounded.weights().at("embeddings"), exact.weights().at("embeddings"));
  }
}

TEST(Activations, WhateverDtypeIsAskedForInt8StreamsAreF32) {
  const RandomModel folder(llama_config("bfloat16"), llama_shapes(), DType::bf16);
  const Tensor hidden = Model::load(folder.path(), {.activations = Activations::int8}).forward(ids);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Model model = Model::load(folder.path(), {.dtype = dtype, .activations = Activations::int8});
    EXPECT_EQ(model.info().dtype, DType::f32);
    expect_same(model.forward(ids), hidden);
  }
}

// GPT-2's matrices lie the other way round: what becomes a row of blocks is a column of the file.
TEST(Activations, Int8TakesMatricesThatAreTurned) {
  const RandomModel folder(gpt2_config(), gpt2_shapes());
  const Model exact = Model::load(folder.path()),
              rounded = Model::load(folder.path(), {.activations = Activations::int8});
  expect_close_but_not_same(rounded.forward(ids), exact.forward(ids));
  EXPECT_GT(cosine_of(rounded.weights(0).at("W_out"), exact.weights(0).at("W_out")), 0.9999);
  EXPECT_EQ(rounded.info().weight_bytes, (12 * E * E + V * E) / 32 * 34 + (V + 40) * E * 4);
}

// Rows of 16 numbers are no blocks: they stay, in the bits that they have.
TEST(Activations, RowsThatAreNoBlocksStay) {
  const std::filesystem::path narrow = data("golden/models/llama");
  const Model exact = Model::load(narrow), rounded = Model::load(narrow, {.activations = Activations::int8});
  expect_same(rounded.forward(ids), exact.forward(ids));
  EXPECT_EQ(rounded.info().weight_bytes, exact.info().weight_bytes);
}

TEST(Activations, FastIsOfQuantizedWeightsAlone) {
  const RandomModel folder(llama_config("bfloat16"), llama_shapes(), DType::bf16);
  const Model exact = Model::load(folder.path()), fast = Model::load(folder.path(), {.activations = Activations::fast});
  EXPECT_EQ(fast.info().activations, Activations::fast);
  EXPECT_EQ(fast.info().dtype, DType::bf16);
  EXPECT_EQ(fast.info().weight_bytes, exact.info().weight_bytes);
  expect_same(fast.forward(ids), exact.forward(ids));
}

TEST(Activations, NumbersThatQ8CannotHaveAreRefused) {
  RandomModel folder(llama_config("float32"), llama_shapes());
  for (const float number : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 1e7F}) {
    folder.tensors().at("model.layers.1.mlp.up_proj.weight").data<float>()[5] = number;
    folder.write();
    expect_error(
        ErrorCode::bad_file, [&] { Model::load(folder.path(), {.activations = Activations::int8}); },
        "'model.layers.1.mlp.up_proj.weight' has numbers that Q8_0 can't have");
  }
}

TEST(Activations, ACacheIsOfItsModelsSetting) {
  const RandomModel folder(llama_config("float32"), llama_shapes());
  const Model exact = Model::load(folder.path()),
              rounded = Model::load(folder.path(), {.activations = Activations::int8});
  ModelCache of_exact = exact.cache(), of_rounded = rounded.cache();
  ModelCache *exacts[] = {&of_exact}, *roundeds[] = {&of_rounded};
  const std::string whose = "caches[0] was made by a model whose activations are ";
  expect_error(
      ErrorCode::bad_value, [&] { rounded.forward(ids, {.caches = exacts}); }, whose + "exact, and here they are int8");
  expect_error(
      ErrorCode::bad_value, [&] { exact.forward(ids, {.caches = roundeds}); }, whose + "int8, and here they are exact");
  rounded.forward(ids, {.caches = roundeds});
  ModelCache fork = of_rounded;
  EXPECT_EQ(fork.activations(), Activations::int8);
  ModelCache* forks[] = {&fork};
  EXPECT_EQ(rounded.forward({7}, {.caches = forks}).shape(), (Dims{1, E}));
  EXPECT_EQ(rounded.generate(ids, {.max_new_tokens = 3}).size(), 3);
}

TEST(Activations, ARecordingSaysSo) {
  const RandomModel folder(llama_config("float32"), llama_shapes());
  const Model exact = Model::load(folder.path()),
              rounded = Model::load(folder.path(), {.activations = Activations::int8});
  Recorder recorder({.grows = true}), plain, mixed({.grows = true});
  rounded.generate(ids, {.max_new_tokens = 3, .recorder = &recorder});
  exact.forward(ids, {.recorder = &plain});
  const Recording recording = recorder.finish(), of_exact = plain.finish();
  EXPECT_EQ(recording.activations, Activations::int8);
  EXPECT_EQ(of_exact.activations, Activations::exact);
  EXPECT_EQ(of_exact.to_bytes().find("activations"), std::string::npos) << "files of exact models are what they were";
  EXPECT_NE(heads_json(recording, 0, heads_of(recording)).find("\"activations\": \"int8\""), std::string::npos);
  const Folder files;
  recording.save(files / "x.attend");
  EXPECT_EQ(Recording::load(files / "x.attend").activations, Activations::int8);
  std::string bytes = recording.to_bytes();
  bytes.replace(bytes.find("int8"), 4, "int7");
  put(files / "x.attend", bytes);
  expect_error(
      ErrorCode::bad_file, [&] { Recording::load(files / "x.attend"); }, "'int7' is not exact, fast or int8");
  exact.forward(ids, {.recorder = &mixed});
  expect_error(
      ErrorCode::bad_value, [&] { rounded.forward(ids, {.recorder = &mixed}); },
      "activations are int8, and the layers that are there have exact");
}

// The page has the model, and no setting: its numbers would not be those of the recording beside it.
TEST(Activations, APageThatComputesRefusesThem) {
  const RandomModel folder(llama_config("float32"), llama_shapes());
  Recorder recorder;
  Model::load(folder.path(), {.activations = Activations::int8}).forward(ids, {.recorder = &recorder});
  const Recording recording = recorder.finish();
  expect_error(
      ErrorCode::bad_value, [&] { live_page(folder.path(), recording, "a text", {}, "a page"); },
      "the recording is of int8 activations, and the page computes with exact ones");
}

TEST(Activations, AnalysesRefuseThem) {
  const RandomModel folder(llama_config("float32"), llama_shapes());
  const Model exact = Model::load(folder.path());
  const std::vector<std::int64_t> other{3, 14, 16, 9, 20, 5};
  const AnswerPair pair{.clean = ids, .corrupt = other, .token = 1, .against = 2};
  const Edges edges_of_exact = edges(exact, {&pair, 1});
  const std::vector<std::vector<std::int64_t>> prompts{std::vector<std::int64_t>(20, 3)};
  const VariantText variant{.text = "a word", .query = "word"};
  const AttributionPart part{.kind = AttributionPart::Kind::mlp, .layer = 0};
  const CircuitNode sender{.kind = CircuitNode::Kind::mlp, .layer = 0},
      receiver{.kind = CircuitNode::Kind::mlp, .layer = 1};
  for (const Activations setting : {Activations::fast, Activations::int8}) {
    const Model model = Model::load(folder.path(), {.activations = setting});
    const std::string told = std::string(": the model's activations are ") + std::string(name_of(setting)) +
                             ", expected exact: sums would not hold";
    const auto refuses = [&](const std::string& name, const auto& body) {
      expect_error(ErrorCode::bad_value, body, name + told);
    };
    refuses("gradient", [&] { gradient(model, ids, {.token = 1}); });
    refuses("attribute", [&] { attribute(model, ids, {.token = 1}); });
    refuses("attribute", [&] { run(model, {.ids = ids}, {.why = AttributeOptions{.token = 1}}); });
    refuses("trace_answer", [&] { trace_answer(model, ids, {.token = 1}); });
    refuses("answer_without", [&] { answer_without(model, ids, part, {}, {.token = 1}); });
    refuses("ablate", [&] { ablate(model, ids); });
    refuses("patch", [&] { patch(model, ids, other, 1, 2); });
    refuses("explain_score", [&] { explain_score(model, ids, {0, 0}, -1, 0); });
    refuses("explain_value", [&] { explain_value(model, ids, {0, 0}, 0); });
    refuses("composition", [&] { composition(model); });
    refuses("edges", [&] { edges(model, {&pair, 1}); });
    refuses("circuit", [&] { circuit(model, edges_of_exact, {.keep = 3}); });
    refuses("path_patch", [&] { path_patch(model, pair, {&sender, 1}, {&receiver, 1}); });
    refuses("jacobian_lens", [&] { jacobian_lens(model, prompts); });
    refuses("saliency", [&] { saliency(model, ids); });
    refuses("passages", [&] { passages(model, ids, {.spans = {}}); });
    refuses("vary", [&] { vary(model, {&variant, 1}); });
    refuses("Steering", [&] { make_steering(model, {}); });
    // What records or reads the stream computes with it.
    EXPECT_NO_THROW(lens(model, ids));
    EXPECT_NO_THROW(run(model, {.ids = ids}, {.lens = LensOptions{}}));
  }
}

}  // namespace
}  // namespace attend
