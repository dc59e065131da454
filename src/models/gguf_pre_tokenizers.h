// The pre-tokenisers that GGUF files name, as the tokenizer.json of the model that the name stands for has them.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

namespace attend::models {

struct ByteLevelKind {
  std::string_view name;
  nlohmann::json normalizer, pre_tokenizer;
  bool ignore_merges = false;  // a word that is a token stays whole
  bool adds_bos = false;       // where the file does not say
};

const std::vector<ByteLevelKind>& byte_level_kinds();

// {"type": "ByteLevel"}
nlohmann::json byte_level(bool splits);

}  // namespace attend::models
