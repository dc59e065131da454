// A recording's heads as a table, and one head and one query in words.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "cli/command.h"
#include "cli/show.h"

namespace attend::cli {
namespace {

std::string cut(const std::string& text, int characters) {
  const std::string short_text = fmt::format("{:.{}}", text, characters);
  return short_text.size() < text.size() ? fmt::format("{:.{}}…", text, characters - 1) : text;
}

const std::vector<std::string>* item_of(const std::vector<std::vector<std::string>>& tokens, std::int64_t item) {
  return item < std::ssize(tokens) ? &tokens[static_cast<std::size_t>(item)] : nullptr;
}

// "3 cat", "3" where the token is unknown.
std::string key_text(const Recording& recording, std::int64_t layer, std::int64_t item, std::int64_t key,
                     int characters) {
  const std::vector<std::string>* tokens = item_of(recording.key_tokens(layer), item);
  if (!tokens) return fmt::format("{}", key);
  return fmt::format("{} {}", key, cut(printable((*tokens)[static_cast<std::size_t>(key)]), characters));
}

std::string counted(std::size_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

// "12 tokens: the cat sat ...", one line.
std::string tokens_line(const std::vector<std::string>* tokens, const char* what, int width) {
  if (!tokens) return "";
  std::string line = counted(tokens->size(), what) + ":";
  for (const std::string& token : *tokens) {
    const std::string word = " " + printable(token);
    if (columns_of(line + word) + 4 > static_cast<std::size_t>(width)) return line + " ...\n";
    line += word;
  }
  return line + "\n";
}

std::string layers_line(const Recording& recording, std::int64_t item) {
  const std::vector<RecordedLayer>& layers = recording.layers();
  if (layers.empty()) return "no layers\n";
  const auto same_heads = [&](const RecordedLayer& x) { return x.heads.size() == layers[0].heads.size(); };
  std::size_t heads = 0;
  for (const RecordedLayer& layer : layers) heads += layer.heads.size();
  std::string line = counted(layers.size(), "layer");
  if (std::ranges::all_of(layers, same_heads))
    line += fmt::format(" x {}", counted(layers[0].heads.size(), "head"));
  else
    line += fmt::format(", {}", counted(heads, "head"));
  if (recording.tokens.empty()) line += fmt::format(", {} queries x {} keys", layers[0].queries, layers[0].keys);
  if (std::ranges::all_of(layers, &RecordedLayer::has_qk)) line += ", q and k kept";
  if (recording.activations != Activations::exact)
    line += fmt::format(", {} activations", name_of(recording.activations));
  if (layers[0].batch > 1) line += fmt::format("; item {} of {} (from 0)", item, layers[0].batch);
  return line + "\n";
}

// ---- The table ----

std::vector<Column> recording_columns(const Recording& recording, const std::vector<RecordedHead>& heads) {
  const auto column = [&](std::string_view name, std::string_view heading, bool left, const auto& cell) {
    Column made{.heading = heading, .left = left, .name = name};
    for (const RecordedHead& head : heads) made.cells.push_back(cell(head));
    return made;
  };
  std::vector<Column> columns = {
      column("layer", "layer", true, [&](const RecordedHead& x) { return printable(recording.at(x.layer).name); }),
      column("head", "head", false, [](const RecordedHead& x) { return fmt::format("{}", x.scores.head); }),
      column("labels", "labels", true, [](const RecordedHead& x) { return x.scores.label_text(); }),
  };
  for (const HeadStatistic& score : head_statistics()) {
    if (std::ranges::none_of(heads, [&](const RecordedHead& x) { return score.of(x.scores).has_value(); })) continue;
    const bool is_key = score.name == "sink_key";
    columns.push_back(column(score.name, score.heading, is_key, [&](const RecordedHead& x) -> std::string {
      const std::optional<double> number = score.of(x.scores);
      if (!number) return "-";
      return is_key ? key_text(recording, x.layer, x.scores.batch, x.scores.sink_key, 9)
                    : fmt::format("{:.{}f}", *number, score.decimals);
    }));
  }
  return columns;
}

// Drops columns until lines fit, those first that others or the labels say nearly as well. Returns their headings.
std::vector<std::string_view> fit(std::vector<Column>& columns, int width, std::string_view sorted) {
  const std::vector<Column> all = columns;
  const auto needed = [&] {
    std::size_t sum = 0;
    for (const Column& column : columns) sum += 2 + column.width();
    return sum - 2;
  };
  for (const std::string_view name :
       {"self", "effective_keys", "duplicate", "distance", "local", "previous", "induction"})
    if (name != sorted && needed() > static_cast<std::size_t>(width))
      std::erase_if(columns, [&](const Column& column) { return column.name == name; });
  std::vector<std::string_view> dropped;
  for (const Column& column : all)
    if (std::ranges::find(columns, column.name, &Column::name) == columns.end()) dropped.push_back(column.heading);
  return dropped;
}

}  // namespace

std::vector<RecordedHead> heads_of(const Selection& selection) {
  return attend::heads_of(selection.recording, selection.item, selection.layer, selection.head, selection.by);
}

std::string overview(const Selection& selection, int width) {
  const Recording& r = selection.recording;
  const bool both = !r.decoder_tokens.empty();
  std::string text = r.model.empty() ? "" : printable(r.model) + "\n";
  text += tokens_line(item_of(r.tokens, selection.item), "token", width);
  if (both) text += tokens_line(item_of(r.decoder_tokens, selection.item), "decoder token", width);
  return text + layers_line(r, selection.item);
}

std::string heads_table(const Recording& recording, const std::vector<RecordedHead>& heads, int width,
                        std::string_view sorted) {
  std::vector<Column> columns = recording_columns(recording, heads);
  const std::vector<std::string_view> dropped = fit(columns, width, sorted);
  std::string text = fmt::format("{}\n", fmt::join(lines_of(columns), "\n"));
  if (!heads.empty() && heads.front().by == WeighedBy::norm)
    text =
        "By norm: a weight times what its key carries, 1 for what a query takes in the mean.\n"
        "Entropy, keys and distance are those of the weights.\n" +
        text;
  if (!dropped.empty()) text += fmt::format("(too wide for {} columns: {})\n", width, fmt::join(dropped, ", "));
  return text;
}

std::string title_of(const Recording& recording, const RecordedHead& head) {
  const std::string_view by = head.by == WeighedBy::norm ? " by norm" : "";
  return fmt::format("{}{}: {}", printable(name_of(recording, head)), by, head.scores.label_text());
}

std::string head_text(const Recording& recording, const RecordedHead& head, int width) {
  std::string text, line;
  for (const HeadStatistic& score : head_statistics()) {
    const std::optional<double> number = score.of(head.scores);
    if (!number || score.name == "sink_key") continue;  // stands with the sink
    std::string part = fmt::format("{} {:.{}f}", score.heading, *number, score.decimals);
    if (score.name == "sink")
      part += " at key " + key_text(recording, head.layer, head.scores.batch, head.scores.sink_key, 20);
    if (!line.empty() && columns_of(line + part) + 3 > static_cast<std::size_t>(width)) text += line + "\n", line = "";
    line += (line.empty() ? "" : "   ") + part;
  }
  const std::string why = why_no_labels({head});
  return title_of(recording, head) + (why.empty() ? "" : " (" + why + ")") + "\n" + text + line + "\n";
}

std::string query_text(const QueryRow& row, WeighedBy by) {
  std::string text = fmt::format("query {}{}: ", row.query, row.token ? " " + printable(*row.token) : "");
  if (row.top.empty()) return text + "no keys\n";
  text += fmt::format("entropy {:.3f} ({:.1f} keys)", row.entropy, std::exp(row.entropy));
  if (row.distance) text += fmt::format(", distance {:.1f}", *row.distance);
  if (row.sink_weight) text += fmt::format(", the sinks take {:.3f}", *row.sink_weight);
  std::vector<Column> columns = {{"key"}, {"token", true}, {by == WeighedBy::norm ? "by norm" : "weight", true}};
  double sum = 0;
  for (const QueryRow::Key& key : row.top) {
    add_line(columns, {fmt::format("{}", key.key), key.token ? cut(printable(*key.token), 30) : "",
                       fmt::format("{:.4f}  {}", key.weight, bar(key.weight, 30))});
    sum += key.weight;
  }
  if (!row.top[0].token) columns.erase(columns.begin() + 1);
  text += fmt::format("\n{}\n", fmt::join(lines_of(columns), "\n"));
  return text + fmt::format("{} {:.4f} of {}\n", row.top.size() == 1 ? "this is" : "together", sum,
                            by == WeighedBy::norm ? "what a query takes in the mean" : "the row");
}

}  // namespace attend::cli
