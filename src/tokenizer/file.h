// What a tokenizer.json holds.
#pragma once

#include <filesystem>
#include <set>
#include <variant>

#include "attend/tokenizer.h"
#include "tokenizer/added.h"
#include "tokenizer/bpe.h"
#include "tokenizer/chat.h"
#include "tokenizer/decode.h"
#include "tokenizer/marian.h"
#include "tokenizer/template.h"
#include "tokenizer/unigram.h"
#include "tokenizer/wordlevel.h"
#include "tokenizer/wordpiece.h"

namespace attend::inline v1::tokenizer {

struct TokenizerFile {
  std::vector<Normalizer> normalizers;
  std::vector<PreTokenizer> pre_tokenizers;
  using Model = std::variant<WordPiece, Bpe, Unigram, WordLevel, Marian>;
  Model model;
  TokenMap added;  // tokens beside the model's, some of which are the model's too
  std::set<std::string, std::less<>> special;
  AddedTokens before, after;  // sought in the text as it comes, and in the normalised text
  Template around;
  std::optional<std::vector<Decoder>> decoders;
  Chat chat = {};

  const TokenMap& vocabulary() const {
    return std::visit([](const auto& of) -> const TokenMap& { return of.vocabulary(); }, model);
  }
};

// Throws bad_file, naming the place.
TokenizerFile read_tokenizer(const Place& place, std::string_view json);

// Of a Hugging Face folder: its tokenizer.json, or what Marian's folders have. Throws bad_file.
TokenizerFile read_folder(std::string_view function, const std::filesystem::path& path);

// {"token": id, ...} Throws bad_file.
TokenMap read_vocabulary(const Member& from);

// Of Marian's vocab.json, of tokenizer_config.json and of source.spm, by which MarianTokenizer also decodes.
TokenizerFile marian_tokenizer(const Member& vocabulary, const Member& config, const SentencePiece& pieces);

// The merges of a file, of tokens that are in the vocabulary. Throws bad_file, naming the merge.
class MergeReader {
 public:
  // prefix: so many bytes the second token loses in what the two become.
  MergeReader(const Place& place, const TokenMap& vocabulary, std::size_t prefix)
      : place_(place), vocabulary_(vocabulary), prefix_(prefix) {}

  void read(std::string_view first, std::string_view second);
  void read(std::string_view both);  // "a b"
  [[noreturn]] void refuse() const;  // what is no pair
  std::vector<Merge> take() { return std::move(merges_); }

 private:
  Place place() const;
  TokenId id(std::string_view token) const;

  const Place& place_;
  const TokenMap& vocabulary_;
  std::size_t prefix_;
  std::string merged_;
  std::vector<Merge> merges_;
};

}  // namespace attend::inline v1::tokenizer

namespace attend::inline v1 {

struct Tokenizer::Parts : tokenizer::TokenizerFile {};

}  // namespace attend::inline v1
