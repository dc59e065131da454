#include "tokenizer/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <queue>

#include "core/utf8.h"

namespace attend::inline v1::tokenizer {

namespace {

std::size_t character_size(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0xc0 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

std::uint64_t pair_of(TokenId first, TokenId second) {
  return std::uint64_t{first} << 32 | second;
}

std::size_t hash_of(std::uint64_t pair) {
  pair *= 0x9e3779b97f4a7c15;
  return static_cast<std::size_t>(pair ^ pair >> 32);
}

bool stands_for_itself(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte != 0xad);
}

}  // namespace

const std::array<std::string, 256>& byte_characters() {
  static const std::array<std::string, 256> characters = [] {
    std::array<std::string, 256> all;
    char32_t next = 256;
    for (int byte = 0; byte < 256; ++byte) {
      const char32_t point = stands_for_itself(byte) ? static_cast<char32_t>(byte) : next++;
      all[static_cast<std::size_t>(byte)] = encode_utf8(std::u32string(1, point));
    }
    return all;
  }();
  return characters;
}

std::optional<unsigned char> byte_of(char32_t character) {
  static const std::array<std::optional<unsigned char>, 324> bytes = [] {
    std::array<std::optional<unsigned char>, 324> all;
    std::size_t next = 256;
    for (int byte = 0; byte < 256; ++byte) {
      all[stands_for_itself(byte) ? static_cast<std::size_t>(byte) : next++] = static_cast<unsigned char>(byte);
    }
    return all;
  }();
  return character < bytes.size() ? bytes[character] : std::nullopt;
}

// A part of the word: a list's entry, so that merging moves nothing. One that was merged into another has no size.
struct Bpe::Symbol {
  TokenId id;
  std::uint32_t size;
  std::int64_t previous, next;
};

// A pair that may be merged: the symbol that it begins with.
struct Bpe::Candidate {
  std::uint32_t rank;
  TokenId merged;
  std::int64_t at;
  bool operator<(const Candidate& other) const {  // a heap has the greatest on top
    return rank != other.rank ? rank > other.rank : at > other.at;
  }
};

class Bpe::Merging {
 public:
  Merging(const Bpe& bpe, std::vector<Symbol>& symbols) : bpe_(bpe), symbols_(symbols) {}

  void run() {
    std::vector<Candidate> all;
    for (std::int64_t at = 0; at + 1 < std::ssize(symbols_); ++at) {
      if (const auto found = candidate(at)) all.push_back(*found);
    }
    queue_ = Queue(std::less<Candidate>(), std::move(all));
    while (!queue_.empty()) {
      const Candidate top = queue_.top();
      queue_.pop();
      merge(top);
    }
  }

 private:
  using Queue = std::priority_queue<Candidate>;

  Symbol& symbol(std::int64_t at) { return symbols_[static_cast<std::size_t>(at)]; }
  std::optional<Candidate> candidate(std::int64_t at) {
    const Symbol& first = symbol(at);
    if (first.next < 0) return std::nullopt;
    const Ranked* merge = bpe_.merge_of(first.id, symbol(first.next).id);
    return merge ? std::optional(Candidate{merge->rank, merge->merged, at}) : std::nullopt;
  }
  void push(std::int64_t at) {
    if (at < 0) return;
    if (const auto found = candidate(at)) queue_.push(*found);
  }
  void merge(const Candidate& top) {
    Symbol& first = symbol(top.at);
    if (first.size == 0) return;
    const auto still = candidate(top.at);  // one of the two may have been merged since
    if (!still || still->merged != top.merged) return;
    Symbol& second = symbol(first.next);
    first.id = top.merged, first.size += second.size, first.next = second.next;
    second.size = 0;
    if (first.next >= 0) symbol(first.next).previous = top.at;
    push(first.previous);
    push(top.at);
  }

  const Bpe& bpe_;
  std::vector<Symbol>& symbols_;
  Queue queue_;
};

Bpe::Bpe(TokenMap vocabulary, const std::vector<Merge>& merges, BpeOptions options)
    : vocabulary_(std::move(vocabulary)), options_(std::move(options)) {
  if (options_.unknown) unknown_ = vocabulary_.id(*options_.unknown).value_or(0);
  std::size_t places = 16;
  while (places < merges.size() * 2) places *= 2;
  merges_.resize(places);
  for (std::uint32_t rank = 0; rank < merges.size(); ++rank) {
    const std::uint64_t pair = pair_of(merges[rank].first, merges[rank].second);
    std::size_t at = hash_of(pair) & (places - 1);
    while (merges_[at].pair != no_pair && merges_[at].pair != pair) at = (at + 1) & (places - 1);
    merges_[at] = {pair, rank, merges[rank].merged};
  }
  for (std::size_t character = 0; character < ascii_.size(); ++character) {
    ascii_[character] = vocabulary_.id(std::string(1, static_cast<char>(character)));
  }
  if (options_.byte_fallback) bytes_ = byte_tokens(vocabulary_);
}

const Bpe::Ranked* Bpe::merge_of(TokenId first, TokenId second) const {
  const std::uint64_t pair = pair_of(first, second);
  for (std::size_t at = hash_of(pair) & (merges_.size() - 1); merges_[at].pair != no_pair;
       at = (at + 1) & (merges_.size() - 1)) {
    if (merges_[at].pair == pair) return &merges_[at];
  }
  return nullptr;
}

bool Bpe::append_bytes(std::string_view character, std::vector<Symbol>& to) const {
  const auto token = [&](char byte) { return bytes_[static_cast<unsigned char>(byte)]; };
  if (!std::ranges::all_of(character, [&](char byte) { return token(byte).has_value(); })) return false;
  for (const char byte : character) to.push_back({*token(byte), 1, 0, 0});
  return true;
}

// One for each character that is a token. What is none becomes its bytes, or the unknown token, or nothing.
std::vector<Bpe::Symbol> Bpe::symbols(std::string_view word) const {
  std::vector<Symbol> out;
  out.reserve(word.size());
  std::uint32_t unknown = 0;  // bytes that wait for what follows
  const auto flush = [&] {
    if (unknown > 0) out.push_back({unknown_, unknown, 0, 0});
    unknown = 0;
  };
  const bool bare = options_.prefix.empty() && options_.suffix.empty();
  std::string text;
  for (std::size_t at = 0, size = 0; at < word.size(); at += size) {
    size = std::min(character_size(word[at]), word.size() - at);
    const bool last = at + size == word.size();
    text = at == 0 ? "" : options_.prefix;
    text += word.substr(at, size);
    if (last) text += options_.suffix;
    const auto id = bare && size == 1 ? ascii_[static_cast<unsigned char>(word[at]) & 0x7f] : vocabulary_.id(text);
    if (id) {
      flush();
      out.push_back({*id, static_cast<std::uint32_t>(size), 0, 0});
    } else if (options_.byte_fallback && append_bytes(text, out)) {
      continue;
    } else if (options_.unknown) {
      if (!options_.fuse_unknown) flush();
      unknown += static_cast<std::uint32_t>(size);
    }
  }
  flush();
  for (std::int64_t n = 0; n < std::ssize(out); ++n) {
    out[static_cast<std::size_t>(n)].previous = n - 1;
    out[static_cast<std::size_t>(n)].next = n + 1 < std::ssize(out) ? n + 1 : -1;
  }
  return out;
}

void Bpe::tokenize(std::string_view word, bool byte_level, std::vector<WordToken>& to) const {
  append_cached(number_ + (byte_level ? 1 : 0), word, to, [&] { find(word, byte_level, to); });
}

void Bpe::find(std::string_view word, bool byte_level, std::vector<WordToken>& to) const {
  std::string characters;
  std::vector<std::uint32_t> byte;  // of each byte of `characters`, where it is in the word
  if (byte_level) {
    for (std::uint32_t n = 0; n < word.size(); ++n) {
      characters += byte_characters()[static_cast<unsigned char>(word[n])];
      byte.resize(characters.size(), n);
    }
    word = characters;
  }
  const auto size = static_cast<std::uint32_t>(word.size());
  const auto add = [&](TokenId id, std::uint32_t begin, std::uint32_t end) {
    begin = std::min(begin, size - 1), end = std::min(end, size);  // an unknown suffix's bytes are none of the word's
    to.push_back(byte_level ? WordToken{id, byte[begin], byte[end - 1] + 1} : WordToken{id, begin, end});
  };
  if (options_.ignore_merges) {
    if (const auto whole = vocabulary_.id(word)) return add(*whole, 0, size);
  }
  std::vector<Symbol> parts = symbols(word);
  Merging(*this, parts).run();
  std::uint32_t at = 0;
  for (const Symbol& part : parts) {
    if (part.size == 0) continue;
    add(part.id, at, at + part.size);
    at += part.size;
  }
}

}  // namespace attend::inline v1::tokenizer
