// The files of sentence-transformers around a model of few numbers: how sentences become vectors, of the text, of its
// tokens or of words, and what a task's head answers.
#include <nlohmann/json.hpp>
#include <optional>

#include "attend/late_interaction.h"
#include "attend/sparse_vectors.h"
#include "attend/tasks.h"
#include "io/json_member.h"
#include "tests/fuzz/input.h"

namespace attend {
namespace {

using nlohmann::json;

constexpr const char* files[] = {"modules.json",
                                 "1_Pooling/config.json",
                                 "2_Dense/config.json",
                                 "3_Normalize/config.json",
                                 "sentence_bert_config.json",
                                 "config_sentence_transformers.json",
                                 "tokenizer_config.json",
                                 "artifact.metadata"};

constexpr const char* config = R"({"model_type": "bert", "vocab_size": 4, "hidden_size": 4, "num_hidden_layers": 0,
    "num_attention_heads": 1, "intermediate_size": 4, "max_position_embeddings": 6, "type_vocab_size": 1})";
constexpr const char* tokenizer = R"({"version": "1.0", "pre_tokenizer": {"type": "WhitespaceSplit"}, "model": {"type":
    "WordPiece", "unk_token": "?", "continuing_subword_prefix": "##", "max_input_chars_per_word": 9,
    "vocab": {"?": 0, "a": 1, "b": 2, "##c": 3}}})";

// BERT without layers, its tokenizer, heads, the tensors of a Dense and a LayerNorm, and a static table.
// projection: with ColBERT's among the model's own.
void write_model(const fuzz::Folder& folder, bool projection) {
  folder.put("tokenizer.json", tokenizer);
  for (const char* name : {"0_Static", "1_Pooling", "2_Dense", "3_Normalize"})
    std::filesystem::create_directories(folder.path() / name);
  folder.put("0_Static/tokenizer.json", tokenizer);
  Generator generator(1);
  const Tensor four = generator.randn({4, 4}), six = generator.randn({6, 4}), one = generator.randn({1, 4}),
               row = generator.randn({4}), label = generator.randn({1});
  NamedViews own{{"bert.embeddings.word_embeddings.weight", four},
                 {"bert.embeddings.position_embeddings.weight", six},
                 {"bert.embeddings.token_type_embeddings.weight", one},
                 {"bert.embeddings.LayerNorm.weight", row},
                 {"bert.embeddings.LayerNorm.bias", row},
                 {"bert.pooler.dense.weight", four},
                 {"bert.pooler.dense.bias", row},
                 {"classifier.weight", one},
                 {"classifier.bias", label},
                 {"cls.predictions.transform.dense.weight", four},
                 {"cls.predictions.transform.dense.bias", row},
                 {"cls.predictions.transform.LayerNorm.weight", row},
                 {"cls.predictions.transform.LayerNorm.bias", row},
                 {"cls.predictions.bias", row}};
  if (projection) own.push_back({"linear.weight", one});
  write_safetensors(folder.path() / "model.safetensors", own);
  write_safetensors(folder.path() / "0_Static/model.safetensors", {{"embedding.weight", four}});
  write_safetensors(folder.path() / "2_Dense/model.safetensors", {{"linear.weight", four}, {"linear.bias", row}});
  write_safetensors(folder.path() / "3_Normalize/model.safetensors", {{"norm.weight", row}, {"norm.bias", row}});
}

const std::vector<std::string> sentences{"a b", "ac ac ac ac ac ac ac", "A"};

// What the files say is refused as bad_file, and texts as bad_value.
template <class Call>
void may_refuse(const char* what, Call call) {
  const auto code = fuzz::error_of(call);
  fuzz::require(!code || *code == ErrorCode::bad_file || *code == ErrorCode::bad_value, what);
}

void use_vectors(const Model& model) {
  const ModelInfo& info = model.info();
  const std::vector<std::int64_t> ids{1, 2, 3};
  const auto refused = fuzz::error_of([&] {
    const Tensor vectors = model.embed(ids);
    fuzz::require(vectors.shape() == Dims{1, info.vector_size}, "a vector");
  });
  const bool of_sentences = info.vectors == VectorKind::sentence;
  fuzz::require(!refused || *refused == ErrorCode::bad_file || !of_sentences, "the files are refused as bad_file");
  fuzz::require(info.embeds == !refused, "info says whether there are vectors");
  for (const bool truncate : {true, false}) {
    may_refuse("sentences are refused", [&] {
      const Embeddings made = model.embed(sentences, {.truncate = truncate});
      fuzz::require(made.vectors.shape() == Dims{3, info.vector_size} && made.cut <= 3, "a vector each");
    });
    for (const TextRole role : {TextRole::query, TextRole::document})
      may_refuse("token vectors are refused", [&] {
        for (const TokenVectors& each : embed_tokens(model, sentences, {.role = role, .truncate = truncate}))
          fuzz::require(each.vectors.shape() == Dims{std::ssize(each.ids), info.vector_size} &&
                            each.offsets.size() == each.ids.size(),
                        "a vector for each token");
      });
    may_refuse("sparse vectors are refused", [&] {
      for (const SparseVector& each : embed_sparse(model, sentences, {.truncate = truncate}).vectors)
        fuzz::require(each.ids.size() == each.weights.size() && each.ids.size() <= 4, "weights of words");
    });
  }
}

void use_head(const Model& model) {
  const std::vector<std::string_view> texts(sentences.begin(), sentences.end());
  may_refuse("classes are refused", [&] {
    const Classification found = classify(model, std::vector<TaskText>{{"a b"}, {"a", "b ac"}});
    fuzz::require(found.scores.shape() == Dims{2, std::ssize(model.info().labels)}, "a score for each label");
  });
  may_refuse("passages are refused", [&] { fuzz::require(rank(model, "a", texts).passages.size() == 3, "all"); });
  may_refuse("tags are refused", [&] { fuzz::require(tag(model, texts).size() == 3, "all"); });
  may_refuse("masks are refused", [&] { (void)fill(model, "a ? b", 2); });
}

}  // namespace
}  // namespace attend

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace attend;
  static const fuzz::Folder plain, with_projection;
  static const bool written = (write_model(plain, false), write_model(with_projection, true), true);
  fuzz::require(written, "the models");
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const json given = is_nested_deeper(text, 100) ? json() : json::parse(text, nullptr, false);
  if (!given.is_object()) return 0;
  json own = json::parse(config);
  if (given.contains("config.json") && given["config.json"].is_object()) own.update(given["config.json"]);
  const fuzz::Folder& folder =
      own.contains("architectures") && own["architectures"] == json{"HF_ColBERT"} ? with_projection : plain;
  folder.put("config.json", own.dump(-1, ' ', false, json::error_handler_t::replace));
  for (const char* name : files) {
    std::error_code none;
    if (!given.contains(name)) std::filesystem::remove(folder.path() / name, none);
    if (given.contains(name)) folder.put(name, given[name].dump());
  }
  std::optional<Model> model;
  const auto code = fuzz::error_of([&] { model.emplace(Model::load(folder.path())); });
  fuzz::require(!code || *code == ErrorCode::bad_file, "a folder is refused as bad_file");
  if (!model) return 0;
  use_vectors(*model);
  use_head(*model);
  return 0;
}
