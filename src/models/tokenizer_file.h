// What a tokenizer.json holds.
#pragma once

#include <set>
#include <variant>

#include "models/tokenizer_added.h"
#include "models/tokenizer_bpe.h"
#include "models/tokenizer_decode.h"
#include "models/tokenizer_template.h"
#include "models/tokenizer_wordpiece.h"

namespace attend::models {

struct TokenizerFile {
  std::vector<Normalizer> normalizers;
  std::vector<PreTokenizer> pre_tokenizers;
  std::variant<WordPiece, Bpe> model;
  TokenMap added;  // tokens beside the model's, some of which are the model's too
  std::set<std::string, std::less<>> special;
  AddedTokens before, after;  // sought in the text as it comes, and in the normalised text
  Template around;
  std::optional<std::vector<Decoder>> decoders;

  const TokenMap& vocabulary() const {
    return std::visit([](const auto& of) -> const TokenMap& { return of.vocabulary(); }, model);
  }
};

// Throws bad_file, naming the place.
TokenizerFile read_tokenizer(const Place& place, std::string_view json);

}  // namespace attend::models
