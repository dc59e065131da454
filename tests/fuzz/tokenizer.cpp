// Tokenizer::parse() of any JSON, and what was read with any text: the tokens' bytes are inside it, in whole
// characters.
//
// The input is a tokenizer.json up to its first byte 0, which JSON has none of, and then a text; without a byte 0, a
// text for a small tokenizer with all kinds of parts.
#include <algorithm>
#include <string>

#include "tests/fuzz/input.h"

using namespace attend;

namespace {

constexpr const char* small = R"({"version": "1.0", "added_tokens": [
  {"id": 6, "content": "<m>", "single_word": true, "lstrip": true, "rstrip": true, "normalized": false, "special": true},
  {"id": 7, "content": "É", "single_word": false, "lstrip": false, "rstrip": false, "normalized": true, "special": false}],
  "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "BertNormalizer", "clean_text": true,
    "handle_chinese_chars": true, "strip_accents": true, "lowercase": true}]},
  "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": true},
    {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}]},
  "post_processor": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
  "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
  "model": {"type": "BPE", "unk_token": "?", "vocab": {"?": 0, "a": 1, "Ġ": 2, "Ã": 3, "Ġa": 4, "aa": 5},
    "merges": ["Ġ a", ["a", "a"]]}})";

void check(const Encoding& found, std::string_view text) {
  const std::size_t count = found.ids.size();
  fuzz::require(found.offsets.size() == count && found.special.size() == count && found.types.size() == count &&
                    found.texts.size() == count,
                "lists of one size");
  const auto is_edge = [&](std::int64_t at) {
    const auto place = static_cast<std::size_t>(at);
    return place == text.size() || (static_cast<unsigned char>(text[place]) & 0xc0) != 0x80;
  };
  for (const Range& bytes : found.offsets) {
    fuzz::require(is_edge(bytes.begin) && is_edge(bytes.end), "a token is of whole characters");
  }
}

void use(const Tokenizer& tokenizer, std::string_view text) {
  const std::optional<Encoding> found = fuzz::encoded(tokenizer, text);
  if (!found) return;
  check(*found, text);
  fuzz::require(tokenizer.encode(text).ids == found->ids, "the same again");
  fuzz::error_of([&] { tokenizer.decode(found->ids); });
  fuzz::error_of([&] { tokenizer.encode_pair(text, text, false); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Tokenizer fixed = Tokenizer::parse(small);
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t end = input.find('\0');
  if (end == std::string_view::npos) {
    use(fixed, input);
    return 0;
  }
  std::optional<Tokenizer> tokenizer;
  if (const auto code = fuzz::error_of([&] { tokenizer = Tokenizer::parse(input.substr(0, end)); })) {
    fuzz::require(code == ErrorCode::bad_file, "a file is refused as bad_file");
    return 0;
  }
  use(*tokenizer, input.substr(end + 1));
  return 0;
}
