// The page that computes: lesson.html, which the library was built with or without (docs/page.md).
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "attend/explain.h"

namespace attend {

// lesson.html; empty where the library was built without it.
std::string_view built_page();
// The style sheet of the steps that a page shows where nothing computes.
std::string_view static_style();

// The page with the text of each mark <!--attend:NAME--> in its place. What is put in is not looked at for marks.
std::string fill_page(std::string_view page, const std::map<std::string_view, std::string>& texts);

// to_html() and page_note() of a library that was built with that page.
std::string to_html(const Trace& trace, const TextStyle& style, std::string_view page);
std::string page_note(const Trace& trace, std::string_view page);

}  // namespace attend
