#include "tokenizer/added.h"

#include <algorithm>

#include "core/utf8.h"

namespace attend::inline v1::tokenizer {

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

// White space that goes on before a place of a text and behind it. Each run is looked at once, however many tokens ask
// for it, one place after another.
class WhiteSpace {
 public:
  explicit WhiteSpace(std::string_view text) : text_(text) {}

  std::size_t begin(std::size_t at) { return around(at).begin; }
  std::size_t end(std::size_t at) { return around(at).end; }

 private:
  struct Run {
    std::size_t begin, end;
  };
  const Run& around(std::size_t at) {
    if (run_.begin <= at && at <= run_.end) return run_;
    Run run{at, at};
    while (run.begin > 0) {
      const std::size_t last = last_character(text_.substr(0, run.begin));
      if (!is_white_space(character(text_.substr(last, run.begin - last)))) break;
      run.begin = last;
    }
    while (run.end < text_.size()) {
      const std::size_t size = first_size(text_.substr(run.end));
      if (!is_white_space(character(text_.substr(run.end, size)))) break;
      run.end += size;
    }
    return run_ = run;
  }

  std::string_view text_;
  Run run_{1, 0};  // no place is in this one
};

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, const std::vector<std::string>& texts)
    : tokens_(std::move(tokens)) {
  if (texts.empty()) return;
  std::vector<std::string> reversed;
  reversed.reserve(texts.size());
  std::vector<Trie::Entry> entries;
  entries.reserve(texts.size()), sizes_.reserve(texts.size());
  for (const std::string& text : texts) {
    sizes_.push_back(text.size());
    const std::string& each = reversed.emplace_back(text.rbegin(), text.rend());
    entries.push_back({each, static_cast<TokenId>(entries.size())});
  }
  const Trie& trie = backwards_.emplace(std::move(entries));
  shorter_.resize(trie.size()), begun_.resize(trie.size(), Trie::no_token);
  trie.for_each_child([&](std::uint32_t parent, char byte, std::uint32_t node) {
    std::uint32_t found = 0;
    for (std::uint32_t at = parent; at != 0 && found == 0;) {
      at = shorter_[at];
      found = trie.next(at, byte);
    }
    shorter_[node] = found;
    begun_[node] = trie.id(node) != Trie::no_token ? trie.id(node) : begun_[found];
  });
}

std::vector<AddedTokens::Match> AddedTokens::longest(std::string_view text) const {
  std::vector<Match> matches;
  if (!backwards_) return matches;
  std::uint32_t node = 0;
  for (std::size_t at = text.size(); at-- > 0;) {
    std::uint32_t next = backwards_->next(node, text[at]);
    while (next == 0 && node != 0) {
      node = shorter_[node];
      next = backwards_->next(node, text[at]);
    }
    node = next;
    if (begun_[node] != Trie::no_token) matches.push_back({at, begun_[node]});
  }
  return matches;
}

std::vector<Word> AddedTokens::find(std::string_view text) const {
  std::vector<Word> words;
  WhiteSpace space(text);
  std::size_t last = 0;  // all before is in words
  std::size_t next = 0;  // where a token may begin
  const std::vector<Match> matches = longest(text);
  for (auto match = matches.rbegin(); match != matches.rend(); ++match) {
    if (match->begin < next) continue;
    const AddedToken& token = tokens_[match->place];
    std::size_t from = match->begin, end = from + sizes_[match->place];
    next = end;
    if (token.single_word && (ends_with_word(text.substr(0, from)) || begins_with_word(text.substr(end)))) continue;
    if (token.left) from = std::max(space.begin(from), last);
    if (token.right) end = space.end(end);
    if (from >= end) continue;  // an earlier token took all of it with its white space
    if (last < from) words.push_back({last, from});
    words.push_back({from, end, token.id});
    last = end;
  }
  if (last < text.size()) words.push_back({last, text.size()});
  return words;
}

}  // namespace attend::inline v1::tokenizer
