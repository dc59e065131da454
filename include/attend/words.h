// Words and their ids, for the examples that split a sentence into words.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attend/api.h"

namespace attend::inline v1 {

// Drops commas and a leading byte order mark (U+FEFF), and splits on Unicode white space, as Python's split(). Throws
// bad_value, naming the byte, for text that is not UTF-8.
ATTEND_API std::vector<std::string> split_words(std::string_view text);

// The distinct words in code point order, as Python sorts strings. A word's id is its index.
class ATTEND_API Vocabulary {
 public:
  explicit Vocabulary(std::span<const std::string> tokens);
  std::int64_t size() const { return static_cast<std::int64_t>(words_.size()); }
  const std::vector<std::string>& words() const { return words_; }
  // Throws bad_value for an unknown word.
  std::vector<std::int64_t> ids(std::span<const std::string> tokens) const;

 private:
  std::vector<std::string> words_;
};

}  // namespace attend::inline v1
