// A SentencePiece model (.spm, .model) of type Unigram: pieces with scores, and how a text is normalised for them.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tokenizer/charsmap.h"
#include "tokenizer/growth.h"
#include "tokenizer/unigram.h"

namespace attend::inline v1::tokenizer {

class SentencePiece {
 public:
  // From what is in such a file. Throws bad_file, naming the place: for what would be computed otherwise, too.
  SentencePiece(const Place& place, std::string_view bytes);

  // What is unknown is one piece as far as it goes. Bytes of the text.
  struct Piece {
    std::string text;
    std::uint32_t begin, end;
  };
  // Throws where the charsmap makes more of the text than `growth` allows.
  std::vector<Piece> encode(std::string_view text, Growth& growth) const;
  std::string decode(std::span<const std::string> pieces) const;

 private:
  // A text as its pieces have it, and where each of its bytes comes from; one more for the end.
  struct Normalized {
    std::string text;
    std::vector<std::uint32_t> origins;
  };
  Normalized normalize(std::string_view text, const Growth& growth) const;
  // What takes the place of the text's first bytes.
  Charsmap::Match first(std::string_view text) const;

  enum class Kind { normal, unknown, control };
  struct Reader;

  std::optional<Charsmap> charsmap_;
  bool prefix_ = true, drops_spaces_ = true, marks_spaces_ = true;
  std::optional<Trie> trie_;
  std::vector<std::string> texts_;  // of the pieces
  std::vector<float> scores_;
  float unknown_score_ = 0;
  TextMap<Kind> kinds_;
};

}  // namespace attend::inline v1::tokenizer
