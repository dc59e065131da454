#include "html/page.h"

#include <nlohmann/json.hpp>

// page.S
extern "C" const char attend_style_begin[], attend_style_end[], attend_page_begin[], attend_page_end[],
    attend_explorer_begin[], attend_explorer_end[], attend_class_begin[], attend_class_end[];

namespace attend::inline v1 {

std::string_view built_lesson() {
  return {attend_page_begin, attend_page_end};
}

std::string_view built_explorer() {
  return {attend_explorer_begin, attend_explorer_end};
}

std::string_view built_class() {
  return {attend_class_begin, attend_class_end};
}

std::string_view static_style() {
  return {attend_style_begin, attend_style_end};
}

// By its policy nothing loads and nothing runs; styles may stand anywhere, as none can load anything either.
std::string_view static_page() {
  return R"(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline';
 img-src data:; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title><!--attend:title--></title>
<style>
<!--attend:style--></style>
</head>
<body class="plain">
<main id="static">
<!--attend:static--></main>
</body>
</html>
)";
}

std::string fill_page(std::string_view page, const std::map<std::string_view, std::string>& texts) {
  constexpr std::string_view opens = "<!--attend:", closes = "-->";
  std::size_t size = page.size();
  for (const auto& [name, text] : texts) size += text.size();
  std::string out;
  out.reserve(size);
  while (true) {
    const std::size_t mark = page.find(opens);
    const std::size_t end = page.find(closes, mark);
    if (mark == page.npos || end == page.npos) return out.append(page);
    const std::size_t name = mark + opens.size();
    out.append(page.substr(0, mark)).append(texts.at(page.substr(name, end - name)));
    page.remove_prefix(end + closes.size());
  }
}

std::string script_json(const nlohmann::ordered_json& value) {
  std::string out;
  for (const char c : value.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace)) {
    if (c == '<')
      out += "\\u003c";
    else
      out += c;
  }
  return out;
}

}  // namespace attend::inline v1
