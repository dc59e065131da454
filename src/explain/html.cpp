#include "attend/explain.h"
#include "core/message.h"
#include "explain/walk.h"
#include "io/format.h"
#include "picture/text.h"

namespace attend {

namespace {

constexpr std::string_view style_sheet = R"(
:root { color-scheme: light dark; --ink: #1c2430; --quiet: #5b6675; --paper: #ffffff; --wash: #f3f5f8; --line: #d9dee5; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf0; --quiet: #9aa6b5; --paper: #14181e; --wash: #1d232b; --line: #333c47; } }
body { max-width: 54rem; margin: 3rem auto; padding: 0 1.25rem; color: var(--ink); background: var(--paper);
  font: 1rem/1.55 system-ui, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; margin-bottom: .2rem; }
h2 { font-size: 1.15rem; margin: 2.6rem 0 .4rem; padding-top: 1.2rem; border-top: 1px solid var(--line); }
h2 span { color: var(--quiet); margin-right: .6rem; font-variant-numeric: tabular-nums; }
.formula { font: 1rem/1.5 "DejaVu Serif", Georgia, serif; font-style: italic; margin: .9rem 0 .9rem 1.5rem; }
.formula small { font: .85rem ui-monospace, monospace; color: var(--quiet); margin-left: 1.2rem; white-space: nowrap; }
figure { margin: .8rem 0; }
figcaption { font: .85rem ui-monospace, monospace; color: var(--quiet); }
pre { margin: .2rem 0; padding: .7rem .9rem; background: var(--wash); border-radius: .4rem; overflow-x: auto;
  font: .82rem/1.45 ui-monospace, monospace; }
table { border-collapse: collapse; margin: .8rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .9rem; text-align: right; border-bottom: 1px solid var(--line); }
th { color: var(--quiet); font-weight: 500; font-size: .9rem; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
ul { columns: 15rem; list-style: none; padding: 0; margin: .6rem 0; font: .82rem/1.6 ui-monospace, monospace; }
li { white-space: pre; }
svg { max-width: 100%; height: auto; }
)";

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

std::string html_of(const Picture& picture) {
  return fmt::format("<figure>{}</figure>\n", svg_heat_map({picture.map}, ""));
}

}  // namespace

std::string to_html(const Trace& trace, const TextStyle& style) {
  const std::string title = escape_markup(shown(trace.title));
  std::string out = fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>{} - attention, step by step</title>\n<style>{}</style>\n</head>\n<body>\n<h1>{}</h1>\n"
      "<p>Attention, step by step</p>\n",
      title, style_sheet, title);
  std::size_t number = 0;
  AttentionSteps row;
  for (const Step& step : walk(trace, style, row)) {
    out += fmt::format("<h2><span>{}</span>{}</h2>\n", ++number, escape_markup(step.title));
    for (const Block& block : step.blocks) out += std::visit([](const auto& b) { return html_of(b); }, block);
  }
  return out + "</body>\n</html>\n";
}

}  // namespace attend
