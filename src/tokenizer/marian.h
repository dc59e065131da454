// Marian's tokenizers (OPUS-MT), as Transformers' MarianTokenizer computes them: SentencePiece's pieces, whose ids
// stand in a vocabulary of their own.
#pragma once

#include "tokenizer/sentencepiece.h"

namespace attend::inline v1::tokenizer {

class Marian {
 public:
  Marian(TokenMap vocabulary, SentencePiece pieces, TokenId unknown)
      : vocabulary_(std::move(vocabulary)), pieces_(std::move(pieces)), unknown_(unknown) {}

  const TokenMap& vocabulary() const { return vocabulary_; }
  // A language's code that the text begins with, >>fra<<, is one token.
  void tokenize(std::string_view text, Growth& growth, std::vector<WordToken>& to) const;

 private:
  TokenId id_of(std::string_view piece) const { return vocabulary_.id(piece).value_or(unknown_); }

  TokenMap vocabulary_;
  SentencePiece pieces_;
  TokenId unknown_;
};

}  // namespace attend::inline v1::tokenizer
