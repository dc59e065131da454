#include <algorithm>
#include <nlohmann/json.hpp>

#include "attend/explain.h"
#include "core/message.h"
#include "explain/page.h"
#include "explain/walk.h"
#include "html/page.h"
#include "io/format.h"
#include "picture/text.h"

namespace attend::inline v1 {

namespace {

// More words than these are too many to compute at each key that is pressed, and to draw.
constexpr std::size_t most_words = 200;

// Characters of the monospace face in the width of the page.
constexpr int page_columns = 96;

std::string html_of(const Paragraph& paragraph) {
  return fmt::format("<p>{}</p>\n", escape_markup(paragraph.text));
}

std::string html_of(const Formula& formula) {
  const std::string shapes =
      formula.shapes.empty() ? "" : fmt::format("<small>{}</small>", escape_markup(formula.shapes));
  return fmt::format("<p class=\"formula\">{}{}</p>\n", escape_markup(formula.text), shapes);
}

std::string html_of(const Numbers& numbers) {
  return fmt::format("<figure><figcaption>{}</figcaption><pre>{}</pre></figure>\n", escape_markup(numbers.name),
                     escape_markup(format_values(numbers.values, 0, page_columns, SciMode::off, numbers.most)));
}

std::string html_row(const std::vector<std::string>& cells, std::string_view tag) {
  std::string out = "<tr>";
  for (const std::string& cell : cells) out += fmt::format("<{0}>{1}</{0}>", tag, escape_markup(cell));
  return out + "</tr>\n";
}

std::string html_of(const Table& table) {
  std::string out = "<table>\n" + html_row(table.header, "th");
  for (const auto& row : table.rows) out += html_row(row, "td");
  return out + "</table>\n";
}

std::string html_of(const Items& items) {
  std::string out = "<ul>\n";
  for (const std::string& item : items.items) out += fmt::format("<li>{}</li>\n", escape_markup(item));
  return out + "</ul>\n";
}

std::string html_of(const Map& picture) {
  return fmt::format("<figure>{}</figure>\n", svg_heat_map({picture.map}, ""));
}

// The steps, for a page without JavaScript: no style attributes and no scripts, which lesson.html's policy would
// refuse.
std::string static_part(const Trace& trace, const TextStyle& style, const std::string& note) {
  std::string out = fmt::format("<h1>{}</h1>\n<p>Attention, step by step</p>\n", escape_markup(shown(trace.title)));
  if (!note.empty()) out += fmt::format("<p class=\"note\">This page does not compute: {}.</p>\n", escape_markup(note));
  std::size_t number = 0;
  AttentionSteps row;
  for (const Step& step : walk(trace, style, row)) {
    out += fmt::format("<h2><span>{}</span>{}</h2>\n", ++number, escape_markup(step.title));
    for (const Block& block : step.blocks) out += std::visit([](const auto& b) { return html_of(b); }, block);
  }
  return out;
}

// What the page asks its engine first (docs/page.md), as JSON that may stand in a script element.
std::string request_json(const Trace& trace, const TextStyle& style) {
  nlohmann::ordered_json request;
  if (trace.preset.empty()) {
    const auto made = nlohmann::ordered_json::parse(made_json(trace.options));
    for (const auto& [name, value] : made.items())
      if (!value.is_null()) request[name] = value;
  } else {
    request["preset"] = trace.preset;
  }
  request["focus"] = style.focus.value_or(trace.focus);
  if (style.head) request["head"] = *style.head;
  return script_json(request);
}

}  // namespace

std::string page_note(const Trace& trace, std::string_view page) {
  if (std::max(trace.tokens.size(), trace.tokens_2.size()) > most_words)
    return fmt::format(
        "more than {} words are too many for it; `attend explain ... -o FILE.attend` and `attend show "
        "FILE.attend` look into long ones, and -o FILE.png or FILE.svg draws them",
        most_words);
  if (page.empty()) return "attend was built without the page that computes, which `make page` makes";
  return "";
}

std::string to_html(const Trace& trace, const TextStyle& style, std::string_view page) {
  const std::string note = page_note(trace, page);
  std::map<std::string_view, std::string> texts{
      {"title", escape_markup(shown(trace.title)) + " - attention, step by step"},
      {"static", static_part(trace, style, note)}};
  if (note.empty()) {
    texts["request"] = request_json(trace, style);
    return fill_page(page, texts);
  }
  texts["style"] = static_style();
  return fill_page(static_page(), texts);
}

std::string page_note(const Trace& trace) {
  return page_note(trace, built_lesson());
}
std::string to_html(const Trace& trace, const TextStyle& style) {
  return to_html(trace, style, built_lesson());
}

}  // namespace attend::inline v1
