// WordPiece (BERT): the longest tokens that a word begins with, one after the other.
#pragma once

#include "tokenizer/unigram.h"

namespace attend::inline v1::tokenizer {

struct WordPieceOptions {
  std::string unknown = "[UNK]";
  std::string prefix = "##";       // of a token that does not begin a word
  std::size_t longest_word = 100;  // characters: a longer one is unknown
};

class WordPiece {
 public:
  // The unknown token is in the vocabulary.
  WordPiece(TokenMap vocabulary, WordPieceOptions options);

  const TokenMap& vocabulary() const { return vocabulary_; }
  const std::string& continuation() const { return options_.prefix; }
  std::optional<TokenId> unknown() const { return unknown_; }
  void tokenize(std::string_view word, std::vector<WordToken>& to) const;

 private:
  void find(std::string_view word, std::vector<WordToken>& to) const;

  TokenMap vocabulary_;
  WordPieceOptions options_;
  TokenId unknown_;
  Trie tokens_;
  std::optional<std::uint32_t> continuing_;  // the prefix's node; none: no token begins with it
  std::uint64_t number_ = WordCache::new_model();
};

}  // namespace attend::inline v1::tokenizer
