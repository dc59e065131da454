// What the normalisers and pre-tokenisers ask about a code point. utf8proc knows most of it; unicode_table.h has
// where `tokenizers` answers otherwise.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/growth.h"

namespace attend::inline v1::tokenizer {

bool is_white_space(char32_t point);
bool is_control(char32_t point);  // Cc, Cf and Co, but tab, line feed and carriage return
bool is_accent(char32_t point);   // Mn, as BERT strips it
// Without what str.strip() of Python takes for white space at both ends. `text` is UTF-8.
std::string strip_space(std::string_view text);
bool is_mark(char32_t point);  // Mn, Mc and Me, as StripAccents does
bool is_punctuation(char32_t point);
bool is_number(char32_t point);
bool is_cjk(char32_t point);   // the blocks of ideographs that BERT sets spaces around
bool is_word(char32_t point);  // \w of a regular expression

// A number for each script; 0: of any script. Hiragana and Katakana count as Han.
int script_of(char32_t point);

// Where the characters that a reader sees begin: extended grapheme clusters (UAX 29).
class Graphemes {
 public:
  // Whether one begins at this code point, the next of the text.
  bool begins_at(char32_t point);

 private:
  enum class Indic { none, consonant, linked };

  std::optional<char32_t> last_;  // as utf8proc knows it
  std::int32_t state_ = 0;        // utf8proc's
  Indic indic_ = Indic::none;
};

// Its lower case, appended: one code point, or two.
void append_lower(char32_t point, std::u32string& to);

// A character after a change: `change` is 0 where it takes the place of the next character of the text as it was, 1
// where it is new, -n where it takes the place of the next and n more go.
struct Changed {
  char32_t point;
  std::int64_t change;
};

enum class NormalForm { nfd, nfc, nfkd, nfkc };
// Throws where it becomes more than `growth` allows.
std::vector<Changed> normalize(std::u32string_view text, NormalForm form, const Growth& growth);

}  // namespace attend::inline v1::tokenizer
