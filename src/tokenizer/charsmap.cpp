#include "tokenizer/charsmap.h"

#include <algorithm>
#include <utility>

#include "core/utf8.h"

namespace attend::inline v1::tokenizer {

namespace {

// Bytes of what takes the place of a few characters: SentencePiece's own maps have 33 at most.
constexpr std::size_t longest_text = 1024;

// ---- A unit of the trie ----

bool has_leaf(std::uint32_t unit) {
  return (unit >> 8 & 1) != 0;
}

std::uint32_t label(std::uint32_t unit) {
  return unit & (1u << 31 | 0xff);
}

// What leads from a node to its children, whose places differ from there in the lowest byte alone: each by its own.
std::size_t offset(std::uint32_t unit) {
  return std::size_t{unit >> 10} << ((unit & 1u << 9) >> 6);
}

std::uint32_t text_of_leaf(std::uint32_t unit) {
  return unit & ~(1u << 31);
}

}  // namespace

Charsmap::Charsmap(const Place& place, std::string_view bytes) {
  const auto word = [&](std::size_t at) {
    std::uint32_t of = 0;
    for (std::size_t n = 0; n < 4; ++n) of |= std::uint32_t{static_cast<unsigned char>(bytes[at + n])} << 8 * n;
    return of;
  };
  if (bytes.size() < 4) fail_at(place, "{} bytes, expected 4 or more", bytes.size());
  const std::size_t units = word(0) / 4;
  if (units == 0 || units > bytes.size() / 4 - 1)
    fail_at(place, "a trie of {} bytes in {}, expected at least 4, and that they are there", word(0), bytes.size());
  trie_.reserve(units);
  for (std::size_t n = 0; n < units; ++n) trie_.push_back(word(4 + 4 * n));
  texts_ = bytes.substr(4 + 4 * units);
  if (!is_utf8(texts_)) fail_at(place, "the texts are not UTF-8");
  check(place);
}

// Each node that can be reached once, so that matching needs no checks.
void Charsmap::check(const Place& place) const {
  std::vector<bool> seen(trie_.size());
  std::vector<std::size_t> nodes;
  const auto reach = [&](std::size_t node) {
    if ((node | 0xff) >= trie_.size()) fail_at(place, "the trie goes on at {}, it has {} units", node, trie_.size());
    if (!seen[node]) nodes.push_back(node);
    seen[node] = true;
  };
  reach(offset(trie_[0]));
  while (!nodes.empty()) {
    const std::size_t node = nodes.back();
    nodes.pop_back();
    for (std::uint32_t byte = 1; byte < 256; ++byte) {
      const std::uint32_t unit = trie_[node ^ byte];
      if (label(unit) != byte) continue;
      const std::size_t next = node ^ byte ^ offset(unit);
      reach(next);
      if (!has_leaf(unit)) continue;
      const std::uint32_t text = text_of_leaf(trie_[next]);
      if (text > texts_.size() || (text < texts_.size() && !begins_character(texts_[text])))
        fail_at(place, "a text begins at byte {} of {}", text, texts_.size());
      if (std::string_view(texts_).substr(text, longest_text + 1).find('\0') > longest_text &&
          texts_.size() - text > longest_text)
        fail_at(place, "the text at byte {} has more than {} bytes", text, longest_text);
    }
  }
}

template <class Found>
void Charsmap::prefixes(std::string_view text, Found found) const {
  std::size_t node = offset(trie_[0]);
  for (std::size_t n = 0; n < text.size() && text[n] != '\0'; ++n) {
    const auto byte = static_cast<unsigned char>(text[n]);
    const std::uint32_t unit = trie_[node ^ byte];
    if (label(unit) != byte) return;
    node ^= byte ^ offset(unit);
    if (has_leaf(unit) && !found(n + 1, trie_[node])) return;
  }
}

Charsmap::Match Charsmap::match(std::size_t size, std::uint32_t leaf) const {
  const std::string_view from = std::string_view(texts_).substr(text_of_leaf(leaf));
  return {size, from.substr(0, from.find('\0'))};
}

std::optional<Charsmap::Match> Charsmap::shortest(std::string_view text) const {
  std::optional<Match> first;
  prefixes(text, [&](std::size_t size, std::uint32_t leaf) {
    first = match(size, leaf);
    return false;
  });
  return first;
}

std::optional<Charsmap::Match> Charsmap::longest(std::string_view text) const {
  std::optional<std::pair<std::size_t, std::uint32_t>> last;
  prefixes(text, [&](std::size_t size, std::uint32_t leaf) {
    last = {size, leaf};
    return true;
  });
  return last ? std::optional(match(last->first, last->second)) : std::nullopt;
}

std::string decode_base64(const Member& from) {
  constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const std::string text = from.text();
  const std::size_t size = std::min(text.find('='), text.size());
  const std::size_t padding = text.size() - size;
  std::string bytes;
  std::uint32_t bits = 0;
  for (std::size_t n = 0; n < size; ++n) {
    const std::size_t digit = digits.find(text[n]);
    if (digit == std::string_view::npos) from.refuse("base64");
    bits = bits << 6 | static_cast<std::uint32_t>(digit);
    const std::size_t left = (n + 1) * 6 % 8;  // bits that are no byte yet
    if (left < 6) bytes += static_cast<char>(bits >> left);
  }
  const bool ends_well = text.size() % 4 == 0 && padding <= 2 && text.find_first_not_of('=', size) == std::string::npos;
  if (!ends_well || (bits & ((1u << size * 6 % 8) - 1)) != 0) from.refuse("base64");
  return bytes;
}

}  // namespace attend::inline v1::tokenizer
