// Unigram (SentencePiece: XLM-R, T5, mBART, ALBERT): of all ways to cut a word into tokens, the one whose scores sum to
// the most.
#pragma once

#include <array>
#include <span>

#include "tokenizer/vocabulary.h"

namespace attend::inline v1::tokenizer {

// Finds the tokens that a text begins with.
class Trie {
 public:
  struct Entry {
    std::string_view text;
    TokenId id;
  };
  // No text twice; all of them together less than 4 GiB.
  explicit Trie(std::vector<Entry> entries);
  explicit Trie(const TokenMap& vocabulary);

  // found(size, id) of each token, the shortest first; not of an empty one. node: of tokens that begin with that
  // node's text, without it.
  template <class Found>
  void prefixes(std::string_view text, Found found, std::uint32_t node = 0) const;

  // Its nodes; 0 is the empty text's.
  static constexpr TokenId no_token = ~TokenId{0};
  std::size_t size() const { return nodes_.size(); }
  TokenId id(std::uint32_t node) const { return nodes_[node].id; }
  // The text with one byte more; 0: no entry begins so.
  std::uint32_t next(std::uint32_t node, char byte) const {
    return node == 0 ? roots_[static_cast<unsigned char>(byte)] : child(nodes_[node], byte);
  }
  // That of a text; none: no entry begins so.
  std::optional<std::uint32_t> node(std::string_view text) const {
    std::uint32_t at = 0;
    for (const char byte : text) {
      at = next(at, byte);
      if (at == 0) return std::nullopt;
    }
    return at;
  }
  // found(node, byte, next) of all, the shorter texts first.
  template <class Found>
  void for_each_child(Found found) const;

 private:
  // The children of a node lie one after another, by their byte.
  struct Node {
    std::uint32_t first = 0;
    TokenId id = no_token;
    std::uint16_t count = 0;
    unsigned char byte = 0;
  };
  std::uint32_t child(const Node& of, char byte) const;  // 0: none

  std::vector<Node> nodes_;                 // the first is the empty text's
  std::array<std::uint32_t, 256> roots_{};  // of each byte, the node; 0: none
};

// A token of a text, or a character that is in none.
struct PathToken {
  std::uint32_t begin, end;
  std::optional<TokenId> id;
};

// The path of the greatest sum; of two that are equal, the one that was found first, as `tokenizers` and SentencePiece
// find them, with sums of Score. `scores` by id; `unknown` is the score of a character that no token is.
template <class Score>
std::vector<PathToken> best_path(std::string_view text, const Trie& trie, std::span<const Score> scores, Score unknown);

struct UnigramOptions {
  std::optional<TokenId> unknown = {};
  bool byte_fallback = false;  // what is unknown is its bytes: <0x0A>
};

class Unigram {
 public:
  // `scores` by id: the ids of the vocabulary are 0 to its size - 1.
  Unigram(TokenMap vocabulary, std::vector<double> scores, UnigramOptions options);

  const TokenMap& vocabulary() const { return vocabulary_; }
  std::optional<TokenId> unknown() const { return options_.unknown; }
  // Whether a part of a word that became this token is what the token is, as the token of what is unknown has it: it
  // may be a byte's too.
  bool is_text(TokenId token, std::string_view part) const { return token == options_.unknown && !is_bytes(part); }
  // Throws bad_value for what is unknown where there is no token for it.
  void tokenize(std::string_view word, std::vector<WordToken>& to) const;

 private:
  void find(std::string_view word, std::vector<WordToken>& to) const;
  // Whether it is no token, and becomes those of its bytes.
  bool is_bytes(std::string_view part) const;
  void append(std::string_view word, std::uint32_t begin, std::uint32_t end, std::vector<WordToken>& to) const;

  TokenMap vocabulary_;
  std::vector<double> scores_;
  UnigramOptions options_;
  double unknown_score_;
  Trie trie_;
  std::array<std::optional<TokenId>, 256> bytes_;  // <0x00> to <0xFF>
  std::uint64_t number_ = WordCache::new_model();
};

// ---- Inside ----

template <class Found>
void Trie::prefixes(std::string_view text, Found found, std::uint32_t node) const {
  std::uint32_t at = text.empty() ? 0 : next(node, text.front());
  for (std::size_t size = 1; at != 0; ++size) {
    if (nodes_[at].id != no_token) found(size, nodes_[at].id);
    at = size < text.size() ? child(nodes_[at], text[size]) : 0;
  }
}

template <class Found>
void Trie::for_each_child(Found found) const {
  for (std::uint32_t node = 0; node < nodes_.size(); ++node) {
    for (std::uint32_t n = 0; n < nodes_[node].count; ++n)
      found(node, static_cast<char>(nodes_[nodes_[node].first + n].byte), nodes_[node].first + n);
  }
}

}  // namespace attend::inline v1::tokenizer
