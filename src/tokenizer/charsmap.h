// SentencePiece's table of what takes the place of which characters: a trie of their bytes, and the texts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/json_member.h"

namespace attend::inline v1::tokenizer {

class Charsmap {
 public:
  // `bytes`: the size of the trie in bytes, in four bytes; the trie; the texts, each with a byte 0 at its end. Throws
  // bad_file, naming the place, where the trie leaves its array, or a text is not where it says.
  Charsmap(const Place& place, std::string_view bytes);

  // Of a text's first bytes, and what takes their place.
  struct Match {
    std::size_t size;
    std::string_view text;
  };
  std::optional<Match> shortest(std::string_view text) const;
  std::optional<Match> longest(std::string_view text) const;

 private:
  void check(const Place& place) const;
  Match match(std::size_t size, std::uint32_t leaf) const;
  // found(size, leaf) of each match, the shortest first, until it is false.
  template <class Found>
  void prefixes(std::string_view text, Found found) const;

  std::vector<std::uint32_t> trie_;  // of darts-clone
  std::string texts_;
};

// Throws bad_file.
std::string decode_base64(const Member& from);

}  // namespace attend::inline v1::tokenizer
