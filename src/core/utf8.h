// UTF-8 (RFC 3629): bytes to code points and back.
#pragma once

#include <string>
#include <string_view>

namespace attend {

// The code points of the text. Throws bad_value, naming `what` and the byte's position, where it is not UTF-8:
// overlong forms, surrogates and values beyond U+10FFFF are not.
std::u32string decode_utf8(std::string_view text, std::string_view what);

std::string encode_utf8(std::u32string_view code_points);

}  // namespace attend
