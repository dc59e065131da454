#include "tokenizer/added.h"

#include <algorithm>

#include "core/utf8.h"

namespace attend::tokenizer {

namespace {

// Where the last character of the text begins.
std::size_t last_character(std::string_view text) {
  std::size_t at = text.size() - 1;
  while (at > 0 && !begins_character(text[at])) --at;
  return at;
}

std::size_t first_size(std::string_view text) {
  std::size_t size = 1;
  while (size < text.size() && !begins_character(text[size])) ++size;
  return size;
}

char32_t character(std::string_view text) {
  return decode_utf8(text, {"Tokenizer::encode", "text"}).front();
}

bool ends_with_word(std::string_view text) {
  return !text.empty() && is_word(character(text.substr(last_character(text))));
}

bool begins_with_word(std::string_view text) {
  return !text.empty() && is_word(character(text.substr(0, first_size(text))));
}

// The size of the text without white space at its end.
std::size_t without_space(std::string_view text) {
  while (!text.empty() && is_white_space(character(text.substr(last_character(text))))) {
    text = text.substr(0, last_character(text));
  }
  return text.size();
}

std::size_t leading_space(std::string_view text) {
  std::size_t size = 0;
  while (size < text.size()) {
    const std::size_t next = first_size(text.substr(size));
    if (!is_white_space(character(text.substr(size, next)))) break;
    size += next;
  }
  return size;
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, const std::vector<std::string>& texts) {
  for (std::size_t n = 0; n < tokens.size(); ++n) {
    sought_[static_cast<unsigned char>(texts[n].front())].push_back({texts[n], std::move(tokens[n])});
  }
  for (auto& list : sought_) {
    std::ranges::stable_sort(list, std::greater<>(), [](const Sought& each) { return each.text.size(); });
  }
}

const AddedTokens::Sought* AddedTokens::at(std::string_view rest) const {
  for (const Sought& each : sought_[static_cast<unsigned char>(rest.front())]) {
    if (rest.starts_with(each.text)) return &each;
  }
  return nullptr;
}

std::vector<Word> AddedTokens::find(std::string_view text) const {
  std::vector<Word> words;
  std::size_t last = 0;  // all before is in words
  for (std::size_t begin = 0; begin < text.size();) {
    const Sought* found = at(text.substr(begin));
    if (!found) {
      ++begin;
      continue;
    }
    const AddedToken& token = found->token;
    std::size_t from = begin, end = begin + found->text.size();
    begin = end;
    if (token.single_word && (ends_with_word(text.substr(0, from)) || begins_with_word(text.substr(end)))) continue;
    if (token.left) from = std::max(without_space(text.substr(0, from)), last);
    if (token.right) end += leading_space(text.substr(end));
    if (from >= end) continue;  // an earlier token took all of it with its white space
    if (last < from) words.push_back({last, from});
    words.push_back({from, end, token.id});
    last = end;
  }
  if (last < text.size()) words.push_back({last, text.size()});
  return words;
}

}  // namespace attend::tokenizer
