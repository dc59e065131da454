// Tokens that are found in a text before anything else is done to it: [MASK], <|im_start|>, ...
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/steps.h"
#include "tokenizer/vocabulary.h"

namespace attend::tokenizer {

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
  // `texts`: what is looked for, of each token.
  AddedTokens(std::vector<AddedToken> tokens, const std::vector<std::string>& texts);

  // The text cut at the tokens that are in it: of those that begin at one place the longest.
  std::vector<Word> find(std::string_view text) const;

 private:
  struct Sought {
    std::string text;
    AddedToken token;
  };
  const Sought* at(std::string_view rest) const;

  std::array<std::vector<Sought>, 256> sought_;  // by the first byte, the longest first
};

}  // namespace attend::tokenizer
