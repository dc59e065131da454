// The files of sentence-transformers around a model of 24 numbers: how sentences become vectors.
#include <nlohmann/json.hpp>

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
                                 "tokenizer_config.json"};

// BERT without layers, its tokenizer, and the tensors of a Dense and a LayerNorm.
void write_model(const fuzz::Folder& folder) {
  folder.put("config.json", R"({"model_type": "bert", "vocab_size": 4, "hidden_size": 4, "num_hidden_layers": 0,
    "num_attention_heads": 1, "intermediate_size": 4, "max_position_embeddings": 6, "type_vocab_size": 1})");
  folder.put("tokenizer.json", R"({"version": "1.0", "pre_tokenizer": {"type": "WhitespaceSplit"}, "model": {"type":
    "WordPiece", "unk_token": "?", "continuing_subword_prefix": "##", "max_input_chars_per_word": 9,
    "vocab": {"?": 0, "a": 1, "b": 2, "##c": 3}}})");
  for (const char* name : {"1_Pooling", "2_Dense", "3_Normalize"})
    std::filesystem::create_directories(folder.path() / name);
  Generator generator(1);
  const Tensor four = generator.randn({4, 4}), six = generator.randn({6, 4}), one = generator.randn({1, 4}),
               row = generator.randn({4});
  write_safetensors(folder.path() / "model.safetensors", {{"embeddings.word_embeddings.weight", four},
                                                          {"embeddings.position_embeddings.weight", six},
                                                          {"embeddings.token_type_embeddings.weight", one},
                                                          {"embeddings.LayerNorm.weight", row},
                                                          {"embeddings.LayerNorm.bias", row}});
  write_safetensors(folder.path() / "2_Dense/model.safetensors", {{"linear.weight", four}, {"linear.bias", row}});
  write_safetensors(folder.path() / "3_Normalize/model.safetensors", {{"norm.weight", row}, {"norm.bias", row}});
}

void use(const Model& model) {
  const ModelInfo& info = model.info();
  const std::vector<std::int64_t> ids{1, 2, 3};
  const auto refused = fuzz::error_of([&] {
    const Tensor vectors = model.embed(ids);
    fuzz::require(vectors.shape() == Dims{1, info.vector_size}, "a vector");
  });
  fuzz::require(!refused || *refused == ErrorCode::bad_file, "what the files say is refused as bad_file");
  fuzz::require(info.embeds == !refused, "info says whether there are vectors");
  const std::vector<std::string> sentences{"a b", "ac ac ac ac ac ac ac", "A"};
  for (const bool truncate : {true, false}) {
    const auto code = fuzz::error_of([&] {
      const Embeddings made = model.embed(sentences, {.truncate = truncate});
      fuzz::require(made.vectors.shape() == Dims{3, info.vector_size} && made.cut <= 3, "a vector each");
    });
    fuzz::require(!code || *code == ErrorCode::bad_file || *code == ErrorCode::bad_value, "sentences are refused");
  }
}

}  // namespace
}  // namespace attend

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace attend;
  static const fuzz::Folder folder;
  static const bool written = (write_model(folder), true);
  fuzz::require(written, "the model");
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const json given = is_nested_deeper(text, 100) ? json() : json::parse(text, nullptr, false);
  if (!given.is_object()) return 0;
  for (const char* name : files) {
    std::error_code none;
    if (!given.contains(name)) std::filesystem::remove(folder.path() / name, none);
    if (given.contains(name)) folder.put(name, given[name].dump());
  }
  use(Model::load(folder.path()));
  return 0;
}
