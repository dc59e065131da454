// A GGUF file of any bytes, as a model and as a tokenizer: every number that is there can be read, and what is said of
// texts and sentences.
#include "models/gguf/own_keys.h"
#include "models/gguf/read.h"
#include "tests/fuzz/input.h"

using namespace attend;

namespace {

template <class Call>
void refused_as_bad_file(Call call) {
  if (const auto code = fuzz::error_of(call)) {
    fuzz::require(code == ErrorCode::bad_file, "a file is refused as bad_file");
  }
}

void read_all(const models::Weights& weights) {
  for (const auto& [name, matrix] : weights.all()) {
    const Tensor copy = matrix.blocks ? models::numbers(matrix) : matrix.view.clone();
    fuzz::require(copy.count() > 0 && copy.shape() == matrix.view.shape(), "a tensor has numbers");
    fuzz::require(matrix.blocks || fuzz::same(copy, matrix.view), "they are read as they are");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::Folder folder;
  const std::filesystem::path path = folder.put("x.gguf", {reinterpret_cast<const char*>(data), size});
  refused_as_bad_file([&] { read_all(models::read_gguf("load", path).weights); });
  refused_as_bad_file([&] {
    const models::GgufFile file = models::read_gguf("load", path).file;
    ModelInfo info;
    models::read_own_generation(file, info);
    models::SentenceModules sentences;
    sentences.texts.max_tokens = 16;
    models::read_own_sentences(file, 2, sentences);
    fuzz::require(sentences.vector_size > 0 && sentences.texts.max_tokens <= 16,
                  "vectors have numbers, and sentences a length");
  });
  std::optional<Tokenizer> tokenizer;
  refused_as_bad_file([&] { tokenizer = Model::load_tokenizer(path); });
  if (tokenizer) fuzz::encoded(*tokenizer, "a text");
  return 0;
}
