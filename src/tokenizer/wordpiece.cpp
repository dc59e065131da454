#include "tokenizer/wordpiece.h"

#include <algorithm>

#include "core/utf8.h"

namespace attend::tokenizer {

WordPiece::WordPiece(TokenMap vocabulary, WordPieceOptions options)
    : vocabulary_(std::move(vocabulary)),
      options_(std::move(options)),
      unknown_(vocabulary_.id(options_.unknown).value_or(0)) {
  for (const auto& [token, id] : vocabulary_.ids()) {
    longest_ = std::max(longest_, token.size());
    if (token.starts_with(options_.prefix)) continuing_.emplace(token.substr(options_.prefix.size()), id);
  }
}

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
    const TextMap<TokenId>& tokens = begin == 0 ? vocabulary_.ids() : continuing_;
    auto end = static_cast<std::uint32_t>(std::min<std::size_t>(size, begin + longest_));
    auto found = tokens.end();
    for (; end > begin; --end) {
      if (end < size && !begins_character(word[end])) continue;
      found = tokens.find(word.substr(begin, end - begin));
      if (found != tokens.end()) break;
    }
    if (found == tokens.end()) return give_up();
    to.push_back({found->second, begin, end});
    begin = end;
  }
}

}  // namespace attend::tokenizer
