// What GGUF files say by a name or not at all, as the tokenizer.json of a model has it: pre-tokenisers and decoders.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

namespace attend::inline v1::models {

struct ByteLevelKind {
  std::string_view name;
  nlohmann::json normalizer, pre_tokenizer;
  bool ignore_merges = false;  // a word that is a token stays whole
  bool adds_bos = false;       // where the file does not say
  bool as_bert = false;        // [CLS] text [SEP], and of a pair the second text's [SEP] too
};

const std::vector<ByteLevelKind>& byte_level_kinds();

// {"type": "ByteLevel"}
nlohmann::json byte_level(bool splits);
// prefix: a space stands before each text.
nlohmann::json sentencepiece_decoder(bool prefix);
nlohmann::json wordpiece_decoder();

}  // namespace attend::inline v1::models
