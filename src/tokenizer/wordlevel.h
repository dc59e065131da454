// WordLevel: each word is a token.
#pragma once

#include "tokenizer/vocabulary.h"

namespace attend::inline v1::tokenizer {

class WordLevel {
 public:
  WordLevel(TokenMap vocabulary, std::string_view unknown)
      : vocabulary_(std::move(vocabulary)), unknown_(vocabulary_.id(unknown)) {}

  const TokenMap& vocabulary() const { return vocabulary_; }
  std::optional<TokenId> unknown() const { return unknown_; }
  // Throws bad_value for what is unknown where there is no token for it.
  void tokenize(std::string_view word, std::vector<WordToken>& to) const {
    std::optional<TokenId> id = vocabulary_.id(word);
    if (!id) id = unknown_;
    if (!id) fail_unknown(word);
    to.push_back({*id, 0, static_cast<std::uint32_t>(word.size())});
  }

 private:
  TokenMap vocabulary_;
  std::optional<TokenId> unknown_;
};

}  // namespace attend::inline v1::tokenizer
