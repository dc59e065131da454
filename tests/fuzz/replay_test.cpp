// What the fuzzers have found worth keeping, once more in every build. Where an input ends the process,
// `make fuzz TARGET=...` says which.
#include <cstdint>

#include "tests/io/files.h"

using Fuzzed = int (*)(const std::uint8_t* data, std::size_t size);

extern "C" {
int fuzz_attention(const std::uint8_t* data, std::size_t size);
int fuzz_charsmap(const std::uint8_t* data, std::size_t size);
int fuzz_command(const std::uint8_t* data, std::size_t size);
int fuzz_explain(const std::uint8_t* data, std::size_t size);
int fuzz_gguf(const std::uint8_t* data, std::size_t size);
int fuzz_kv_cache(const std::uint8_t* data, std::size_t size);
int fuzz_model(const std::uint8_t* data, std::size_t size);
int fuzz_npy(const std::uint8_t* data, std::size_t size);
int fuzz_npz(const std::uint8_t* data, std::size_t size);
int fuzz_recording(const std::uint8_t* data, std::size_t size);
int fuzz_safetensors(const std::uint8_t* data, std::size_t size);
int fuzz_sentencepiece(const std::uint8_t* data, std::size_t size);
int fuzz_sentences(const std::uint8_t* data, std::size_t size);
int fuzz_tokenizer(const std::uint8_t* data, std::size_t size);
}

namespace attend {
namespace {

void replay(const std::string& target, Fuzzed fuzzed) {
  int files = 0;
  for (const auto& file : std::filesystem::directory_iterator(test::data("fuzz/corpus") / target)) {
    SCOPED_TRACE(file.path());
    const std::string bytes = test::get(file.path());
    EXPECT_NO_THROW(fuzzed(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()));
    ++files;
  }
  EXPECT_GT(files, 0);
}

TEST(FuzzCorpus, Attention) {
  replay("attention", fuzz_attention);
}
TEST(FuzzCorpus, Charsmap) {
  replay("charsmap", fuzz_charsmap);
}
TEST(FuzzCorpus, Command) {
  replay("command", fuzz_command);
}
TEST(FuzzCorpus, Explain) {
  replay("explain", fuzz_explain);
}
TEST(FuzzCorpus, Gguf) {
  replay("gguf", fuzz_gguf);
}
TEST(FuzzCorpus, KvCache) {
  replay("kv_cache", fuzz_kv_cache);
}
TEST(FuzzCorpus, Model) {
  replay("model", fuzz_model);
}
TEST(FuzzCorpus, Npy) {
  replay("npy", fuzz_npy);
}
TEST(FuzzCorpus, Npz) {
  replay("npz", fuzz_npz);
}
TEST(FuzzCorpus, Recording) {
  replay("recording", fuzz_recording);
}
TEST(FuzzCorpus, Safetensors) {
  replay("safetensors", fuzz_safetensors);
}
TEST(FuzzCorpus, SentencePiece) {
  replay("sentencepiece", fuzz_sentencepiece);
}
TEST(FuzzCorpus, Sentences) {
  replay("sentences", fuzz_sentences);
}
TEST(FuzzCorpus, Tokenizer) {
  replay("tokenizer", fuzz_tokenizer);
}

}  // namespace
}  // namespace attend
