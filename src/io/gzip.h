// Bytes as a .gz file (RFC 1952): what a browser's DecompressionStream("gzip") takes.
#pragma once

#include <string>
#include <string_view>

namespace attend::inline v1 {

// Of zlib's level 9, on all threads; the same bytes for any number of them.
std::string gzip(std::string_view bytes);

}  // namespace attend::inline v1
