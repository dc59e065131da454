// Tokenizer::load() of a folder with any source.spm, and any text with it: its tokens are inside the text.
//
// The input is a byte that says how long the text is, the text, and the file.
#include <string>

#include "tests/fuzz/input.h"

using namespace attend;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::Folder folder;
  static const auto vocabulary = folder.put("vocab.json", R"({"</s>": 0, "<unk>": 1, "▁a": 2, "b": 3, "<pad>": 4})");
  fuzz::Input input(data, size);
  const std::size_t count = std::min<std::size_t>(input.byte(), input.rest().size());
  const std::string_view text = input.rest().substr(0, count);
  folder.put("source.spm", input.rest().substr(count));
  std::optional<Tokenizer> tokenizer;
  if (const auto code = fuzz::error_of([&] { tokenizer = Tokenizer::load(folder.path()); })) {
    fuzz::require(code == ErrorCode::bad_file, "a file is refused as bad_file");
    return 0;
  }
  if (const auto found = fuzz::encoded(*tokenizer, text)) tokenizer->decode(found->ids, false);
  return 0;
}
