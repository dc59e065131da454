// The tokens of a model and their ids, and the words that were tokenised before.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace attend::inline v1::tokenizer {

struct HashText {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
template <class Value>
using TextMap = std::unordered_map<std::string, Value, HashText, std::equal_to<>>;

using TokenId = std::uint32_t;

class TokenMap {
 public:
  // For so many tokens.
  void reserve(std::size_t count) { ids_.reserve(count), tokens_.reserve(count); }
  // Where the token has an id already, it gets this one.
  void add(std::string token, TokenId id);
  // What token(id) says, in the place of the token.
  void call(TokenId id, std::string name) { tokens_.insert_or_assign(id, std::move(name)); }
  std::optional<TokenId> id(std::string_view token) const;
  const std::string* token(TokenId id) const;
  std::size_t size() const { return ids_.size(); }
  const TextMap<TokenId>& ids() const { return ids_; }

 private:
  TextMap<TokenId> ids_;
  std::unordered_map<TokenId, std::string> tokens_;
};

// The tokens of bytes, <0x00> to <0xFF>.
std::array<std::optional<TokenId>, 256> byte_tokens(const TokenMap& vocabulary);

// Throws bad_value: no token has this, and the tokenizer has none for what is unknown.
[[noreturn]] void fail_unknown(std::string_view text);

// A token of a word, and the bytes of the word that it stands for.
struct WordToken {
  TokenId id;
  std::uint32_t begin, end;
};

// Words that came lately, with their tokens: of this thread alone, so that nothing waits. A word is kept in one place,
// where it drives out another.
class WordCache {
 public:
  static WordCache& of_this_thread();

  struct Word {
    std::uint64_t model = 0;  // 0: none
    std::string text;
    std::vector<WordToken> tokens;
  };
  // The place for this word of that model. It holds the word where `model` and `text` say so.
  Word& place(std::uint64_t model, std::string_view text);
  static bool takes(std::string_view text) { return text.size() <= 64; }

  // A number that no other model has; so is the one after it, for a model that reads words in two ways.
  static std::uint64_t new_model();

 private:
  std::vector<Word> words_ = std::vector<Word>(std::size_t{1} << 14);
};

// The tokens of a word, appended: from the cache, or from make(), which appends them.
template <class Make>
void append_cached(std::uint64_t model, std::string_view word, std::vector<WordToken>& to, Make make) {
  if (!WordCache::takes(word)) return make();
  WordCache::Word& place = WordCache::of_this_thread().place(model, word);
  if (place.model == model && place.text == word) {
    to.insert(to.end(), place.tokens.begin(), place.tokens.end());
    return;
  }
  const auto first = static_cast<std::ptrdiff_t>(to.size());
  make();
  place.model = 0;
  place.text = word, place.tokens.assign(to.begin() + first, to.end());
  place.model = model;
}

}  // namespace attend::inline v1::tokenizer
