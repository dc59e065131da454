// Recording::to_bytes(): what save() writes, and smaller files.
#include <filesystem>
#include <fstream>

#include "attend/attention.h"
#include "attend/random.h"
#include "tests/expect.h"

namespace attend {
namespace {

struct Case {
  std::int64_t tokens = 12, blocks = 256;
  bool key_sizes = false;
};

// Three layers of two heads.
Recording record(const Case& of) {
  Generator generator(7);
  Recorder recorder({.map = {of.blocks, of.blocks}, .keep_qk = true, .key_sizes = of.key_sizes});
  const AttentionOptions options{.causal = true};
  for (const char* name : {"0.self", "1.self", "2.self"}) {
    const Tensor q = generator.randn({1, 2, of.tokens, 8}), k = generator.randn({1, 2, of.tokens, 8});
    const AttentionResult rows = attention(q, k, k, options, {.lse_low = true});
    RecordCall call{name};
    const Tensor sizes = generator.uniform({1, 2, of.tokens}, 2, 2);
    if (of.key_sizes) call.key_sizes = sizes;
    recorder.add(call, q, k, rows.lse, *rows.lse_low, options);
  }
  return recorder.finish();
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Recording loaded(const std::string& bytes) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "bytes_test.attend";
  write_file(path, bytes);
  return Recording::load(path);
}

TEST(RecordingBytes, AreThoseThatSaveWrites) {
  const Recording recording = record({.blocks = 4, .key_sizes = true});
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "bytes_test_saved.attend";
  recording.save(path);
  EXPECT_EQ(read_file(path), recording.to_bytes());
  EXPECT_EQ(Recording::load(path).to_bytes(), recording.to_bytes());
}

TEST(RecordingBytes, WithoutQueriesAndKeysTheRestIsTheSame) {
  const Recording recording = record({.blocks = 4});
  const Recording part = loaded(recording.to_bytes({.qk = {1}}));
  for (const std::int64_t layer : {0, 1, 2}) {
    EXPECT_EQ(part.at(layer).has_qk, layer != 1);
    for (const char* name : {"map", "map_max", "lse", "top_keys", "entropy"})
      test::expect_same(part.numbers(layer, name), recording.numbers(layer, name), name);
  }
  test::expect_same(part.weights(2, 0, 1), recording.weights(2, 0, 1));
  test::expect_error(
      ErrorCode::bad_value, [&] { part.weights(1, 0, 1); }, "q and k were not kept");
  EXPECT_EQ(part.to_bytes(), recording.to_bytes({.qk = {1}}));
}

// The options that were tensors go with q and k.
TEST(RecordingBytes, ABiasIsLeftOutToo) {
  Generator generator(7);
  const Tensor q = generator.randn({1, 2, 6, 8}), k = generator.randn({1, 2, 6, 8}),
               bias = generator.randn({1, 2, 6, 6});
  const AttentionOptions options{.bias = bias};
  const AttentionResult rows = attention(q, k, k, options, {.lse_low = true});
  Recorder recorder({.keep_qk = true});
  recorder.add({"0.self"}, q, k, rows.lse, *rows.lse_low, options);
  const Recording recording = recorder.finish();
  EXPECT_TRUE(loaded(recording.to_bytes()).at(0).has_qk);
  const Recording part = loaded(recording.to_bytes({.qk = {0}}));
  EXPECT_FALSE(part.at(0).has_qk);
  EXPECT_EQ(part.at(0).calls[0].tensors, std::vector<std::string>{"bias"});
}

// Beside what attention_map() makes of q and k in so many blocks.
TEST(RecordingBytes, CoarserMapsAreThoseOfTheirBlocks) {
  for (const Case& of :
       {Case{.tokens = 300}, Case{.tokens = 200}, Case{.tokens = 300, .blocks = 128, .key_sizes = true}}) {
    const Recording recording = record(of);
    const Recording coarse = loaded(recording.to_bytes({.maps = {0, 2}}));
    EXPECT_EQ(coarse.at(1).row_blocks, recording.at(1).row_blocks);
    const std::int64_t blocks = coarse.at(0).row_blocks;
    EXPECT_LE(blocks, 64);
    EXPECT_GE(blocks, 40);
    for (const std::int64_t layer : {0, 2}) {
      const Tensor q = recording.numbers(layer, "q"), k = recording.numbers(layer, "k"),
                   lse = recording.numbers(layer, "lse");
      const AttentionMap expected = attention_map({blocks, blocks}, q, k, lse, {.causal = true});
      test::expect_close(coarse.numbers(layer, "map"), expected.map, 1e-6);
      test::expect_close(coarse.numbers(layer, "map_max"), expected.map_max, 1e-6);
      if (!of.key_sizes) continue;
      Tensor carried = expected.map.view().clone();  // every key's size is 2
      for (std::int64_t n = 0; n < carried.count(); ++n) carried.data<float>()[n] *= 2;
      test::expect_close(coarse.numbers(layer, "carried_map"), carried, 1e-6);
    }
  }
  test::expect_error(
      ErrorCode::bad_value, [&] { record({}).to_bytes({.maps = {3}}); }, "layer 3, expected 0 to 2");
  test::expect_error(
      ErrorCode::bad_value, [&] { record({}).to_bytes({.qk = {-1}}); }, "layer -1, expected 0 to 2");
}

}  // namespace
}  // namespace attend
