#include "tokenizer/wordpiece.h"

#include <algorithm>

#include "core/utf8.h"

namespace attend::inline v1::tokenizer {

WordPiece::WordPiece(TokenMap vocabulary, WordPieceOptions options)
    : vocabulary_(std::move(vocabulary)),
      options_(std::move(options)),
      unknown_(vocabulary_.id(options_.unknown).value_or(0)),
      tokens_(vocabulary_),
      continuing_(tokens_.node(options_.prefix)) {}

void WordPiece::tokenize(std::string_view word, std::vector<WordToken>& to) const {
  append_cached(number_, word, to, [&] { find(word, to); });
}

void WordPiece::find(std::string_view word, std::vector<WordToken>& to) const {
  const auto size = static_cast<std::uint32_t>(word.size());
  const std::size_t first = to.size();
  const auto give_up = [&] {
    to.resize(first);
    to.push_back({unknown_, 0, size});
  };
  const auto characters = static_cast<std::size_t>(std::ranges::count_if(word, begins_character));
  if (characters > options_.longest_word) return give_up();
  for (std::uint32_t begin = 0; begin < size;) {
    std::uint32_t end = begin;
    TokenId id = 0;
    const auto found = [&](std::size_t bytes, TokenId token) {
      end = begin + static_cast<std::uint32_t>(bytes), id = token;
    };
    if (begin == 0 || continuing_) tokens_.prefixes(word.substr(begin), found, begin == 0 ? 0 : *continuing_);
    if (end == begin) return give_up();
    to.push_back({id, begin, end});
    begin = end;
  }
}

}  // namespace attend::inline v1::tokenizer
