// Tokenizer::parse() of any charsmap of a Precompiled normaliser, and any text with it: its tokens are inside the text.
//
// The input is a byte that says how long the text is, the text, and the charsmap.
#include <string>

#include "tests/fuzz/input.h"

using namespace attend;

namespace {

std::string base64(std::string_view bytes) {
  constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t n = 0; n < bytes.size(); n += 3) {
    std::uint32_t bits = 0;
    for (std::size_t m = n; m < n + 3; ++m)
      bits = bits << 8 | (m < bytes.size() ? static_cast<unsigned char>(bytes[m]) : 0u);
    for (std::size_t m = 0; m < 4; ++m) text += n + m > bytes.size() ? '=' : digits[bits >> (18 - 6 * m) & 63];
  }
  return text;
}

std::string tokenizer_with(std::string_view charsmap) {
  return R"({"version": "1.0", "normalizer": {"type": "Precompiled", "precompiled_charsmap": ")" + base64(charsmap) +
         R"("}, "model": {"type": "Unigram", "unk_id": 0, "vocab": [["?", 0], ["a", -1], ["b", -2], ["ab", -2.5]]}})";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const std::size_t count = std::min<std::size_t>(input.byte(), input.rest().size());
  const std::string_view text = input.rest().substr(0, count);
  std::optional<Tokenizer> tokenizer;
  const auto parse = [&] { tokenizer = Tokenizer::parse(tokenizer_with(input.rest().substr(count))); };
  if (const auto code = fuzz::error_of(parse)) {
    fuzz::require(code == ErrorCode::bad_file, "a charsmap is refused as bad_file");
    return 0;
  }
  fuzz::encoded(*tokenizer, text);
  return 0;
}
