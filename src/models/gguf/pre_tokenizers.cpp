#include "models/gguf/pre_tokenizers.h"

namespace attend::inline v1::models {

using nlohmann::json;

json byte_level(bool splits) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", splits}};
}

json sentencepiece_decoder(bool prefix) {
  json::array_t steps = {{{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}},
                         {{"type", "ByteFallback"}},
                         {{"type", "Fuse"}}};
  if (prefix) steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return {{"type", "Sequence"}, {"decoders", steps}};
}

json wordpiece_decoder() {
  return {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}};
}

namespace {

json sequence(const json& first, const json& second) {
  return {{"type", "Sequence"}, {"pretokenizers", {first, second}}};
}

json split_before_bytes(const char* pattern) {
  return sequence({{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}},
                  byte_level(false));
}

}  // namespace

const std::vector<ByteLevelKind>& byte_level_kinds() {
  static const std::vector<ByteLevelKind> kinds = {
      {.name = "gpt-2", .normalizer = nullptr, .pre_tokenizer = byte_level(true)},
      {.name = "smollm",
       .normalizer = nullptr,
       .pre_tokenizer = sequence({{"type", "Digits"}, {"individual_digits", true}}, byte_level(true))},
      {.name = "llama-bpe",
       .normalizer = nullptr,
       .pre_tokenizer = split_before_bytes(
           R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
           R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"),
       .ignore_merges = true,
       .adds_bos = true},
      {.name = "qwen2",
       .normalizer = {{"type", "NFC"}},
       .pre_tokenizer =
           split_before_bytes(R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
                              R"(|\s*[\r\n]+|\s+(?!\S)|\s+)")},
      {.name = "modern-bert", .normalizer = {{"type", "NFC"}}, .pre_tokenizer = byte_level(true), .as_bert = true}};
  return kinds;
}

}  // namespace attend::inline v1::models
