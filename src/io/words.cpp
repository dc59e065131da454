#include <algorithm>
#include <iterator>

#include "attend/io.h"
#include "core/message.h"
#include "core/utf8.h"

namespace attend::inline v1 {

namespace {

// Where Python's str.split() splits: the code points whose bidirectional class is B, S or WS, or whose category is Zs.
bool is_white_space(char32_t point) {
  return (point >= 0x09 && point <= 0x0d) || (point >= 0x1c && point <= 0x20) || point == 0x85 || point == 0xa0 ||
         point == 0x1680 || (point >= 0x2000 && point <= 0x200a) || point == 0x2028 || point == 0x2029 ||
         point == 0x202f || point == 0x205f || point == 0x3000;
}

}  // namespace

std::vector<std::string> split_words(std::string_view text) {
  std::vector<std::string> words;
  std::u32string word;
  const auto end_word = [&] {
    if (!word.empty()) words.push_back(encode_utf8(word));
    word.clear();
  };
  const std::u32string points = decode_utf8(text, {"split_words", "text"});
  for (const char32_t point : std::u32string_view(points).substr(points.starts_with(U'\ufeff') ? 1 : 0)) {
    if (is_white_space(point)) {
      end_word();
    } else if (point != U',') {
      word.push_back(point);
    }
  }
  end_word();
  return words;
}

// std::string compares bytes as unsigned, and in UTF-8 that is the order of the code points: a longer form begins with
// a larger byte and holds only larger code points, and within one length the bits stand most significant first.
Vocabulary::Vocabulary(std::span<const std::string> tokens) : words_(tokens.begin(), tokens.end()) {
  std::sort(words_.begin(), words_.end());
  words_.erase(std::unique(words_.begin(), words_.end()), words_.end());
}

std::vector<std::int64_t> Vocabulary::ids(std::span<const std::string> tokens) const {
  std::vector<std::int64_t> out;
  out.reserve(tokens.size());
  for (const std::string& token : tokens) {
    const auto place = std::lower_bound(words_.begin(), words_.end(), token);
    if (place == words_.end() || *place != token)
      fail(ErrorCode::bad_value, "Vocabulary::ids", "\"{}\" is not one of the vocabulary's {} words", token, size());
    out.push_back(std::distance(words_.begin(), place));
  }
  return out;
}

}  // namespace attend::inline v1
