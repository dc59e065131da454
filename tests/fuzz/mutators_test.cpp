// Mutations keep a file's form: most of what they make is refused, if at all, for what it says.
#include <nlohmann/json.hpp>

#include "models/gguf/file.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/mutators/mutate.h"
#include "tests/io/files.h"

namespace attend::fuzz {
namespace {

// In the place of libFuzzer's.
std::string flip_one(std::string bytes, std::size_t longest) {
  bytes.resize(std::min(bytes.size(), longest));
  if (!bytes.empty()) bytes[bytes.size() / 2] ^= 1;
  return bytes;
}

bool has_form(const std::filesystem::path& file) {
  return !error_of([&] { models::GgufFile("test", file); });
}

TEST(FuzzMutators, GgufFilesStayWhole) {
  const test::Folder folder;
  Random random(1);
  int whole = 0, made = 0, changed = 0;
  for (const auto& file : std::filesystem::directory_iterator(test::data("fuzz/corpus/gguf"))) {
    if (!has_form(file.path())) continue;
    const std::string bytes = test::get(file.path());
    for (int n = 0; n < 30; ++n, ++made) {
      const std::string mutated = mutate_gguf(bytes, random, flip_one);
      changed += mutated != bytes;
      test::put(folder / "x.gguf", mutated);
      whole += has_form(folder / "x.gguf");
    }
  }
  // A count is wrong in one of eight; some sizes are not those of a block, and some names come twice.
  EXPECT_GT(made, 200);
  EXPECT_GT(whole, made / 2) << made;
  EXPECT_LT(whole, made * 7 / 8) << "none is broken";
  EXPECT_GT(changed, made * 9 / 10);
}

TEST(FuzzMutators, JsonStaysJson) {
  constexpr std::string_view names[] = {"hidden_size", "factor"};
  Random random(1);
  std::string text = R"({"model_type": "llama", "layers": [1, 2.5, null], "deep": {"er": true}})";
  for (int n = 0; n < 1000; ++n) {
    text = mutate_json(text, names, random, flip_one);
    ASSERT_TRUE(nlohmann::json::accept(text)) << text;
  }
  EXPECT_NE(text.find("factor"), std::string::npos) << text;
}

}  // namespace
}  // namespace attend::fuzz
