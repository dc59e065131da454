// What the normalisers and pre-tokenisers ask about a code point. utf8proc knows most of it; unicode_table.h has
// where `tokenizers` answers otherwise.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace attend::tokenizer {

bool is_white_space(char32_t point);
bool is_control(char32_t point);  // Cc, Cf and Co, but tab, line feed and carriage return
bool is_accent(char32_t point);   // Mn
bool is_punctuation(char32_t point);
bool is_number(char32_t point);
bool is_cjk(char32_t point);   // the blocks of ideographs that BERT sets spaces around
bool is_word(char32_t point);  // \w of a regular expression

// Its lower case, appended: one code point, or two.
void append_lower(char32_t point, std::u32string& to);

// A character after a change: `change` is 0 where it takes the place of the next character of the text as it was, 1
// where it is new, -n where it takes the place of the next and n more go.
struct Changed {
  char32_t point;
  std::int64_t change;
};

enum class NormalForm { nfd, nfc, nfkd, nfkc };
std::vector<Changed> normalize(std::u32string_view text, NormalForm form);

}  // namespace attend::tokenizer
