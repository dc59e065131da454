// What a page shows without JavaScript: pictures of all heads, and where the most telling ones look.
#include <algorithm>
#include <map>

#include "attend/look.h"
#include "core/utf8.h"
#include "look/maps.h"
#include "pages/pages.h"
#include "picture/text.h"

namespace attend::inline v1 {

namespace {

constexpr std::size_t most_heads = 8, most_links = 5;
constexpr MapSize thumbnail = {64, 64};

std::string escaped(std::string_view text, const char* what) {
  return escape_markup(encode_utf8(one_line(text, {"recording_page", what})));
}

// Layers whose maps can stand in one grid, in the recording's order.
std::vector<std::vector<std::int64_t>> grids_of(const Recording& recording) {
  std::vector<std::vector<std::int64_t>> grids;
  std::map<std::tuple<std::string, std::string, std::vector<std::int64_t>>, std::size_t> known;
  for (std::int64_t n = 0; n < std::ssize(recording.layers()); ++n) {
    const RecordedLayer& layer = recording.at(n);
    const std::string stack = layer.name.substr(0, layer.name.find_first_of("0123456789"));
    const auto [found, is_new] = known.emplace(std::tuple(stack, layer.kind, layer.heads), grids.size());
    if (is_new) grids.emplace_back();
    grids[found->second].push_back(n);
  }
  return grids;
}

// "encoder.0.self to encoder.5.self"
std::string names_of(const Recording& recording, const std::vector<std::int64_t>& layers) {
  const std::string& first = recording.at(layers.front()).name;
  return layers.size() == 1 ? first : fmt::format("{} to {}", first, recording.at(layers.back()).name);
}

std::string pictures(const Recording& recording, std::int64_t item) {
  std::string out;
  const auto grids = grids_of(recording);
  for (const auto& layers : grids) {
    if (grids.size() > 1) out += fmt::format("<h2>{}</h2>\n", escaped(names_of(recording, layers), "a layer's name"));
    out += fmt::format("<figure>{}</figure>\n",
                       recording_picture(recording, layers, {.item = item, .title = "", .most = thumbnail}).svg());
  }
  return out;
}

std::string link_text(const Recording& recording, const TellingHead& head, const Link& link, std::int64_t item) {
  const auto word = [&](const std::vector<std::vector<std::string>>& tokens, std::int64_t place) {
    const std::string& token = tokens[static_cast<std::size_t>(item)][static_cast<std::size_t>(place)];
    return escaped(token, "a token");
  };
  return fmt::format("{} → {} {:.2f}", word(recording.query_tokens(head.head.layer), link.query),
                     word(recording.key_tokens(head.head.layer), link.key), link.weight);
}

// A line for each of the heads with the strongest links between words.
std::string telling_table(const Recording& recording, std::int64_t item) {
  const std::vector<TellingHead> telling = telling_heads(recording, heads_of(recording, item), most_heads);
  if (telling.empty()) return "";
  std::string out =
      "<h2>The most telling heads</h2>\n<p>Where their words look most, of the words that are 2 or more apart.</p>\n"
      "<table class=\"telling\">\n<tr><th>head</th><th>what it does</th><th>strongest links</th></tr>\n";
  for (const TellingHead& head : telling) {
    std::vector<std::string> links;
    for (std::size_t n = 0; n < std::min(most_links, head.links.size()); ++n)
      links.push_back(link_text(recording, head, head.links[n], item));
    out += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td></tr>\n",
                       escaped(name_of(recording, head.head), "a layer's name"),
                       escaped(head.head.scores.label_text(), ""), fmt::join(links, ", "));
  }
  return out + "</table>\n";
}

}  // namespace

std::string static_part(const Recording& recording, std::int64_t item, const std::string& lead,
                        const std::string& note) {
  std::string title = recording.model.empty() ? "A recording" : escaped(recording.model, "model");
  if (recording.activations != Activations::exact)
    title += fmt::format(" ({} activations)", name_of(recording.activations));
  std::string out = fmt::format("<h1>{}</h1>\n<p>{}</p>\n", title, escaped(lead, "text"));
  if (!note.empty())
    out += fmt::format("<p class=\"note\">This page does not compute: {}.</p>\n", escaped(note, "note"));
  return out + pictures(recording, item) + telling_table(recording, item);
}

}  // namespace attend::inline v1
