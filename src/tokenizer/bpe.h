// Byte-pair encoding: a word's characters, of which the pair that was merged first in training is merged first, until
// no known pair is left.
#pragma once

#include <array>

#include "tokenizer/vocabulary.h"

namespace attend::inline v1::tokenizer {

struct BpeOptions {
  std::optional<std::string> unknown = {};  // in the vocabulary
  std::string prefix = {}, suffix = {};     // of a token that does not begin a word, and of one that ends it
  bool fuse_unknown = false;                // unknown characters in a row are one token
  bool byte_fallback = false;               // an unknown character is its bytes: <0x0A>
  bool ignore_merges = false;               // a word that is a token is that token
};

// What two tokens become, and how early.
struct Merge {
  TokenId first, second;
  TokenId merged;
};

class Bpe {
 public:
  // The merges in their order; of a pair that comes twice, the last counts.
  Bpe(TokenMap vocabulary, const std::vector<Merge>& merges, BpeOptions options);

  const TokenMap& vocabulary() const { return vocabulary_; }
  const std::string& continuation() const { return options_.prefix; }
  std::optional<TokenId> unknown() const { return options_.unknown ? std::optional(unknown_) : std::nullopt; }
  // byte_level: the word's bytes are tokenised as byte_characters() has them.
  void tokenize(std::string_view word, bool byte_level, std::vector<WordToken>& to) const;

 private:
  struct Ranked {
    std::uint64_t pair = no_pair;
    std::uint32_t rank;
    TokenId merged;
  };
  static constexpr std::uint64_t no_pair = ~std::uint64_t{0};
  struct Symbol;
  struct Candidate;
  class Merging;

  void find(std::string_view word, bool byte_level, std::vector<WordToken>& to) const;
  std::vector<Symbol> symbols(std::string_view word) const;
  bool append_bytes(std::string_view character, std::vector<Symbol>& to) const;
  const Ranked* merge_of(TokenId first, TokenId second) const;

  TokenMap vocabulary_;
  BpeOptions options_;
  std::vector<Ranked> merges_;  // a hash table of a power of two places
  TokenId unknown_ = 0;
  std::array<std::optional<TokenId>, 128> ascii_;  // tokens of one character
  std::array<std::optional<TokenId>, 256> bytes_;  // <0x00> to <0xFF>
  std::uint64_t number_ = WordCache::new_model();
};

// Byte-level BPE writes each byte as one visible character: GPT-2's table.
const std::array<std::string, 256>& byte_characters();
// The byte that a character stands for there.
std::optional<unsigned char> byte_of(char32_t character);

}  // namespace attend::inline v1::tokenizer
