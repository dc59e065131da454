// UTF-8 (RFC 3629): bytes to code points and back; how wide the code points stand in a terminal.
#pragma once

#include <string>
#include <string_view>

#include "core/message.h"

namespace attend::inline v1 {

// The code points of the text. Throws bad_value, naming `what.part` and the byte's position, where it is not UTF-8:
// overlong forms, surrogates and values beyond U+10FFFF are not.
std::u32string decode_utf8(std::string_view text, const Place& what);
bool is_utf8(std::string_view text);

// Whether a byte of UTF-8 is the first of its character.
inline bool begins_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0) != 0x80;
}

std::string encode_utf8(std::u32string_view code_points);

// Columns that the text takes in a terminal: two for each East Asian wide character and emoji, none for combining marks
// and joiners, one for all else (controls too: replace them before printing). A sequence of joined emoji counts as its
// parts, as most terminals draw it; those that join them leave columns free.
int display_width(std::u32string_view text);

// The text itself where it takes no more columns than that, else its beginning and '…'.
std::u32string fit_to_columns(std::u32string_view text, int columns);

}  // namespace attend::inline v1
