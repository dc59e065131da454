#include "core/utf8.h"
#include "io/file.h"

namespace attend::inline v1 {

std::string quote(std::string_view text) {
  constexpr std::size_t longest = 200;
  std::u32string points;
  bool valid = true;
  try {
    points = decode_utf8(text, {"", "text"});
  } catch (const Error&) {
    valid = false;
    for (const char byte : text.substr(0, longest + 1)) points.push_back(static_cast<unsigned char>(byte));
  }
  std::string out = "'";
  for (const char32_t point : std::u32string_view(points).substr(0, longest)) {
    const bool plain = point >= 0x20 && (point < 0x7f || (valid && point >= 0xa0));
    out += plain ? encode_utf8({&point, 1}) : fmt::format("\\x{:02x}", static_cast<std::uint32_t>(point));
  }
  return out + (points.size() > longest ? "...'" : "'");
}

}  // namespace attend::inline v1
