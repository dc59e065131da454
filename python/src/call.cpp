#include "call.h"

#include <array>
#include <string_view>
#include <utility>

namespace attend::python {

std::string translate_names(std::string_view detail) {
  std::string message(detail);
  // FlashAttention's names, which Python users know.
  constexpr std::array<std::pair<std::string_view, std::string_view>, 2> names{
      {{"query_starts", "cu_seqlens_q"}, {"key_starts", "cu_seqlens_k"}}};
  for (const auto& [name, python_name] : names) {
    for (std::size_t at = message.find(name); at != message.npos; at = message.find(name, at + python_name.size())) {
      message.replace(at, name.size(), python_name);
    }
  }
  return message;
}

}  // namespace attend::python
