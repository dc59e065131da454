// Models compute the same where the number of threads changes while they do.
#include "attend/threads.h"

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "attend/analysis.h"
#include "attend/answer_trace.h"
#include "attend/circuits.h"
#include "attend/gradient.h"
#include "attend/jacobian_lens.h"
#include "attend/models.h"
#include "attend/passages.h"
#include "attend/saliency.h"
#include "attend/vectors.h"
#include "tests/expect.h"
#include "tests/host_threads.h"
#include "tests/io/files.h"

namespace attend {
namespace {

using namespace test;

// A golden model's folder with matrices that are cut into several stretches, and one layer.
Folder& enlarge(const std::string& name, Folder& folder) {
  static const std::map<std::int64_t, std::int64_t> sizes{{8, 256}, {16, 512}, {23, 2048}, {24, 2048}};
  const auto size = [](std::int64_t n) { return sizes.contains(n) ? sizes.at(n) : n; };
  const std::filesystem::path golden = data("golden/models/" + name);
  nlohmann::json config = nlohmann::json::parse(get(golden / "config.json"));
  for (const char* key : {"hidden_size", "intermediate_size", "vocab_size"}) config[key] = size(config[key]);
  if (config.contains("head_dim")) config["head_dim"] = 128;
  config["num_hidden_layers"] = 1;
  put(folder / "config.json", config.dump());
  Generator draw(1);
  TensorMap tensors;
  for (const auto& [tensor, small] : read_safetensors(golden / "model.safetensors").tensors) {
    if (tensor.find("layers.1.") != std::string::npos || tensor.find("layer.1.") != std::string::npos) continue;
    Dims shape;
    for (const std::int64_t n : small.shape()) shape.push_back(size(n));
    tensors.emplace(tensor, draw.normal(shape, shape.rank() == 1 ? 1 : 0, 0.1));
  }
  write_safetensors(folder / "model.safetensors", views_of(tensors));
  return folder;
}

Tensor numbers(const std::vector<std::int64_t>& ids) {
  Tensor out({std::ssize(ids)}, DType::i64);
  std::ranges::copy(ids, out.data<std::int64_t>());
  return out;
}

const std::vector<std::int64_t> few{3, 7, 1, 12, 9}, many{3, 7, 1, 12, 9, 4, 7, 1, 15, 2, 20};

TEST(ModelThreads, DecodersAreUndisturbed) {
  Folder folder;
  const std::filesystem::path path = enlarge("llama", folder).path();
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Model model = Model::load(path, {.dtype = dtype});
    const std::string what = std::string(name_of(dtype)) + " ";
    expect_undisturbed({
        {what + "forward and logits",
         [&] {
           const Tensor hidden = model.forward(few);
           return results(hidden, model.forward(many), model.logits(hidden));
         }},
        {what + "generate",
         [&] {
           const std::vector<std::vector<std::int64_t>> prompts{few, many, {5}};
           std::vector<Tensor> list = results(numbers(model.generate(few, {.max_new_tokens = 6})));
           for (const auto& ids :
                model.generate(prompts, {.max_new_tokens = 4, .settings = {.temperature = 1}, .seed = 3}))
             list.push_back(numbers(ids));
           return list;
         }},
        {what + "record",
         [&] {
           Recorder recorder({.keep_qk = true});
           model.forward(few, {.recorder = &recorder});
           return results(recorder.finish().weights(0, 0, 3));
         }},
        {what + "attribute and lens",
         [&] {
           const Attribution a = attribute(model, few, {.token = 5});
           return results(a.heads, a.mlps, lens(model, few).log_probabilities);
         }},
        {what + "ablate and patch",
         [&] {
           const std::vector<std::int64_t> other{3, 7, 2, 12, 9};
           return results(ablate(model, few).logit, patch(model, few, other, 5, 6).recovered);
         }},
        {what + "edges, circuit and trace",
         [&] {
           const AnswerPair pair{.clean = few, .corrupt = {3, 7, 2, 12, 9}, .token = 5, .against = 6};
           const Edges found = edges(model, {&pair, 1});
           const auto value = static_cast<float>(circuit(model, found, {.keep = 9}).value);
           const auto without = static_cast<float>(*trace_answer(model, few).heads[0].wrote.without);
           return results(found.scores, Tensor::from({2}, {value, without}));
         }},
        {what + "Jacobian lens",
         [&] {
           const std::vector<std::vector<std::int64_t>> prompts{many};
           std::vector<Tensor> list;
           for (const Tensor& each : jacobian_lens(model, prompts, {.skip = 1, .block = 5}).jacobians)
             list.push_back(each.clone());
           return list;
         }},
        {what + "gradient, saliency and passages",
         [&] {
           const std::vector<std::int64_t> other{3, 7, 2, 12, 9};
           std::vector<Tensor> list = results(saliency(model, few, {.number = {.token = 5}, .steps = 9}).tokens,
                                              patch(model, few, other, 5, 6, {.estimate = true}).recovered);
           const Passages found = passages(model, many, {.number = {.token = 5}, .spans = {{0, 4}, {4, 9}}});
           list.push_back(found.estimated.clone()), list.push_back(found.measured.clone());
           gradient(model, many, {.token = 5, .observe = [&](ModelPlace, std::int64_t, const View& d) {
                                    list.push_back(d.clone());
                                  }});
           return list;
         }},
    });
  }
}

TEST(ModelThreads, EmbeddingsAreUndisturbed) {
  Folder folder;
  const std::filesystem::path path = enlarge("bert", folder).path();
  put(path / "tokenizer.json", R"({"version": "1.0", "pre_tokenizer": {"type": "WhitespaceSplit"}, "model": {
    "type": "WordLevel", "unk_token": "?", "vocab": {"?": 0, "a": 1, "b": 2, "c": 3, "d": 4}}})");
  const Model model = Model::load(path);
  std::vector<std::string> sentences;
  for (std::size_t n = 0; n < 24; ++n) {
    std::string& sentence = sentences.emplace_back("a");
    for (std::size_t word = 0; word < n * 7 % 11; ++word) sentence += std::string(" ") + "abcd"[(n + word) % 4];
  }
  const Tensor rows = Generator(2).randn({5000, 64});
  VectorWriter writer(folder / "rows.npy", 64);
  writer.add(rows);
  writer.commit();
  const VectorFile file(folder / "rows.npy");
  expect_undisturbed({
      {"embed ids", [&] { return results(model.embed(few)); }},
      {"embed sentences", [&] { return results(model.embed(sentences).vectors); }},
      {"nearest",
       [&] {
         std::vector<std::int64_t> found;
         for (const Near& near : file.nearest(rows.view().select(0, 7), 20)) found.push_back(near.row);
         return results(numbers(found));
       }},
  });
}

}  // namespace
}  // namespace attend
