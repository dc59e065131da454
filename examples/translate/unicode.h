// UTF-8, where it may be broken: a model that writes byte by byte may stop inside a character.
#pragma once

#include <string>
#include <string_view>

namespace translate {

// The code points of a text; a byte that belongs to none is U+FFFD.
std::u32string code_points(std::string_view text);
std::string to_utf8(std::u32string_view points);

}  // namespace translate
