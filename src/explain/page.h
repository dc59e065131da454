// to_html() and page_note() with a page that computes other than the one that the library was built with.
#pragma once

#include <string>
#include <string_view>

#include "attend/explain.h"

namespace attend::inline v1 {

// page: lesson.html; empty: none.
std::string to_html(const Trace& trace, const TextStyle& style, std::string_view page);
std::string page_note(const Trace& trace, std::string_view page);

}  // namespace attend::inline v1
