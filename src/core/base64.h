// Bytes as text (RFC 4648, with '+' and '/', without line breaks).
#pragma once

#include <string>
#include <string_view>

namespace attend::inline v1 {

std::string base64(std::string_view bytes);

}  // namespace attend::inline v1
