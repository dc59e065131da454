// Words and their ids, as the documents take them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attend/api.h"

namespace attend::inline v0 {

// Commas are dropped, the rest is split on Unicode white space (as Python's split()).
// A byte order mark (U+FEFF) at the start is dropped too.
// Throws bad_value, naming the byte, for text that is not UTF-8.
ATTEND_API std::vector<std::string> split_words(std::string_view text);

// The distinct words in code point order (as Python sorts strings); a word's id is its place.
class ATTEND_API Vocabulary {
 public:
  explicit Vocabulary(std::span<const std::string> tokens);
  std::int64_t size() const { return static_cast<std::int64_t>(words_.size()); }
  const std::vector<std::string>& words() const { return words_; }
  // Throws bad_value for a word that is not in the vocabulary.
  std::vector<std::int64_t> ids(std::span<const std::string> tokens) const;

 private:
  std::vector<std::string> words_;
};

}  // namespace attend::inline v0
