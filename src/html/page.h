// Pages that compute: the templates which the library was built with or without (docs/page.md), and how they are
// filled.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace attend::inline v1 {

// lesson.html, explorer.html and class.html; empty where the library was built without it.
std::string_view built_lesson();
std::string_view built_explorer();
std::string_view built_class();
// What stands in their place where nothing computes: title, style and static are its marks.
std::string_view static_page();
// The style sheet of what a page shows where nothing computes.
std::string_view static_style();

// The page with the text of each mark <!--attend:NAME--> in its place. What is put in is not looked at for marks.
std::string fill_page(std::string_view page, const std::map<std::string_view, std::string>& texts);

// JSON as a script element may hold it: ASCII alone, and no '<', so that "</script>" in a text ends no script. Bytes
// that are not UTF-8 become U+FFFD.
std::string script_json(const nlohmann::ordered_json& value);

}  // namespace attend::inline v1
