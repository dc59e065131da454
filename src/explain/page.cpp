#include "explain/page.h"

// page.S
extern "C" const char attend_style_begin[], attend_style_end[], attend_page_begin[], attend_page_end[];

namespace attend {

std::string_view built_page() {
  return {attend_page_begin, attend_page_end};
}

std::string_view static_style() {
  return {attend_style_begin, attend_style_end};
}

std::string fill_page(std::string_view page, const std::map<std::string_view, std::string>& texts) {
  constexpr std::string_view opens = "<!--attend:", closes = "-->";
  std::string out;
  while (true) {
    const std::size_t mark = page.find(opens);
    const std::size_t end = page.find(closes, mark);
    if (mark == page.npos || end == page.npos) return out.append(page);
    const std::size_t name = mark + opens.size();
    out.append(page.substr(0, mark)).append(texts.at(page.substr(name, end - name)));
    page.remove_prefix(end + closes.size());
  }
}

}  // namespace attend
