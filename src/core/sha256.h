// SHA-256 (FIPS 180-4): texts that are known by it.
#pragma once

#include <string>
#include <string_view>

namespace attend::inline v1 {

// In hexadecimal.
std::string sha256(std::string_view bytes);

}  // namespace attend::inline v1
