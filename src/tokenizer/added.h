// Tokens that are found in a text before anything else is done to it: [MASK], <|im_start|>, ...
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/steps.h"
#include "tokenizer/unigram.h"

namespace attend::inline v1::tokenizer {

struct AddedToken {
  std::string text;
  TokenId id = 0;
  bool single_word = false;          // not in the middle of a word
  bool left = false, right = false;  // takes the white space beside it along
  bool normalized = true;            // is looked for in the normalised text
  bool special = false;
};

class AddedTokens {
 public:
  AddedTokens() = default;
  // `texts`: what is looked for, of each token; none twice.
  AddedTokens(std::vector<AddedToken> tokens, const std::vector<std::string>& texts);

  // The text cut at the tokens that are in it: of those that begin at one place the longest. The time that it takes is
  // the text's length, whatever the tokens are.
  std::vector<Word> find(std::string_view text) const;

 private:
  struct Match {
    std::size_t begin, place;  // place: in tokens_
  };
  // Of each place of the text at which tokens begin the longest, the last place first.
  std::vector<Match> longest(std::string_view text) const;

  std::vector<AddedToken> tokens_;
  std::vector<std::size_t> sizes_;  // of what is looked for
  // An automaton (Aho and Corasick 1975) that reads texts from their end: of what it has read, a node is the most that
  // a token may end with.
  std::optional<Trie> backwards_;
  std::vector<std::uint32_t> shorter_;  // of each node, the next shorter one that is true as well
  std::vector<TokenId> begun_;          // of each node, the longest token that begins there
};

}  // namespace attend::inline v1::tokenizer
