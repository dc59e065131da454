// What `show` and `model` are asked for of a recording, and how they give it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "attend/io.h"
#include "cli/attention_options.h"
#include "cli/command.h"
#include "cli/show.h"
#include "cli/suggest.h"

namespace attend::cli {
namespace {

[[noreturn]] void fail_no_layer(const Recording& recording, const std::string& name) {
  const auto& layers = recording.layers();
  std::vector<std::string> names;
  names.reserve(layers.size());
  for (const RecordedLayer& layer : layers) names.push_back(layer.name);
  std::string suggestion = did_you_mean(name, names);
  if (suggestion.empty() && !names.empty())
    suggestion = names.size() == 1 ? fmt::format("; there is {}", names[0])
                                   : fmt::format("; there are 0 to {}, called {} to {}", names.size() - 1,
                                                 names.front(), names.back());
  throw UsageError(fmt::format("--layer: no layer '{}'{}", name, suggestion));
}

std::optional<std::int64_t> named_layer(const Recording& recording, const std::string& name) {
  const auto& layers = recording.layers();
  const auto found = std::ranges::find(layers, name, &RecordedLayer::name);
  return found != layers.end() ? std::optional(found - layers.begin()) : std::nullopt;
}

// By its name, or by its place in the recording.
std::int64_t find_layer(const Recording& recording, const std::string& name) {
  if (const auto named = named_layer(recording, name)) return *named;
  const auto number = parse_whole_numbers(name);
  if (number && number->size() == 1 && number->front() >= 0 && number->front() < std::ssize(recording.layers()))
    return number->front();
  fail_no_layer(recording, name);
}

// "18.6" is head 6 of the layer that the model calls 18; "6" is one of the layer that --layer says.
struct HeadPlace {
  std::string layer;  // empty: --layer says it
  std::int64_t head = 0;
};
HeadPlace head_place(const ShowArguments& x) {
  const std::size_t dot = x.head.rfind('.');
  const auto number = parse_whole_numbers(x.head.substr(dot == std::string::npos ? 0 : dot + 1));
  if (!number || number->size() != 1 || number->front() < 0)
    throw UsageError(fmt::format("--head: expected a head such as 18.6, or with --layer a number, got '{}'", x.head));
  if (dot == std::string::npos && x.layer.empty())
    throw UsageError(fmt::format("--head: say of which layer: such as 18.{}, or with --layer", x.head));
  if (dot != std::string::npos && !x.layer.empty())
    throw UsageError(fmt::format("--head: {} says its layer; without --layer, or a number with it", x.head));
  return {dot == std::string::npos ? "" : x.head.substr(0, dot), number->front()};
}

// A recording may be of some layers: what a head is called tells the model's number, never a place among these.
std::int64_t layer_of_head(const Recording& recording, const std::string& name) {
  if (const auto whole = named_layer(recording, name)) return *whole;
  if (const auto of_one_stack = named_layer(recording, name + ".self")) return *of_one_stack;
  fail_no_layer(recording, name);
}

std::string title_of(const Selection& selection) {
  std::string name = selection.recording.layers()[static_cast<std::size_t>(*selection.layer)].name;
  if (selection.head) name = head_name(name, *selection.head);
  return selection.recording.model.empty() ? name : fmt::format("{}: {}", selection.recording.model, name);
}

// All maps of a layer in one tensor [H,R,C], or one head's [R,C].
Tensor stacked(const std::vector<HeadMap>& maps) {
  const Tensor& first = maps[0].values;
  if (maps.size() == 1) return first.clone();
  Tensor all({std::ssize(maps), first.size(0), first.size(1)}, first.dtype());
  for (std::size_t n = 0; n < maps.size(); ++n)
    all.view().select(0, static_cast<std::int64_t>(n)).copy_from(maps[n].values);
  return all;
}

void write_strip(const std::string& file, const Selection& selection, const ShowArguments& arguments) {
  HeadStrip made = head_strip(selection, arguments.strip, picture_scale(arguments.scale));
  if (ending_of(file) == ".npy") return writing([&] { write_npy(file, made.values); });
  made.strip.title = title_of(selection);
  const std::string bytes = ending_of(file) == ".png" ? png_token_strip(made.strip) : svg_token_strip(made.strip);
  writing([&] { write_file(file, bytes); });
  warn_of_missing_characters(file, fmt::format("{}{}", made.strip.title, fmt::join(made.strip.tokens, "")));
}

void write_maps(const std::string& file, const Selection& selection, const ShowArguments& arguments) {
  const std::vector<HeadMap> maps = layer_maps(selection, *selection.layer, picture_scale(arguments.scale));
  if (ending_of(file) == ".npy") return writing([&] { write_npy(file, stacked(maps)); });
  std::vector<HeatMap> drawn;
  const std::vector<LayerHead> heads = heads_of(selection);
  for (const LayerHead& head : heads) {
    drawn.push_back(maps[drawn.size()].map);
    drawn.back().title = fmt::format("head {}: {}", head.scores.head, head.scores.label_text());
  }
  std::string title = title_of(selection);
  if (selection.head) title += ": " + heads[0].scores.label_text(), drawn[0].title.clear();
  const std::string bytes = ending_of(file) == ".png" ? png_heat_map(drawn, title) : svg_heat_map(drawn, title);
  writing([&] { write_file(file, bytes); });
  const HeatMap& any = drawn[0];
  warn_of_missing_characters(
      file, fmt::format("{}{}{}", title, fmt::join(any.row_labels, ""), fmt::join(any.column_labels, "")));
}

void write_grid(const std::string& file, const Selection& selection, const ShowArguments& arguments) {
  const AllMaps all = head_grid(selection, picture_scale(arguments.scale));
  const std::string bytes = ending_of(file) == ".png" ? png_head_grid(all.grid) : svg_head_grid(all.grid);
  writing([&] { write_file(file, bytes); });
  warn_of_missing_characters(file, all.grid.title);
}

}  // namespace

std::string ending_of(const std::string& file) {
  return std::filesystem::path(file).extension().string();
}

void check_show(const ShowArguments& x, const std::vector<std::string>& files) {
  const auto needs_head = [&](const char* option) {
    if (x.head.empty()) throw UsageError(fmt::format("{}: say of which head, with --head", option));
  };
  if (!x.head.empty()) (void)head_place(x);
  if (!x.head.empty() && (!x.sort.empty() || !x.label.empty() || x.limit))
    throw UsageError("--head: one head has no table for --sort, --label or --limit");
  if (x.query) needs_head("--query");
  if (!x.strip.empty()) needs_head("--strip");
  if (x.query && !x.strip.empty()) throw UsageError("--query and --strip can't stand together");
  for (const std::string& file : files) {
    const std::string ending = ending_of(file);
    if (ending == ".attend") continue;  // it holds all of it
    if (x.query && ending != ".json")
      throw UsageError(fmt::format("-o: a query's top keys go into a .json file, not into '{}'", file));
    if (!x.strip.empty() && ending == ".json")
      throw UsageError(fmt::format("-o: a strip goes into a .svg, .png or .npy file, not into '{}'", file));
    if (ending == ".npy" && x.layer.empty() && x.head.empty())
      throw UsageError("-o: say of which layer numbers are, with --layer");
  }
}

Selection select(const Recording& recording, const ShowArguments& arguments) {
  Selection selection{recording, arguments.item};
  const std::optional<HeadPlace> one = arguments.head.empty() ? std::nullopt : std::optional(head_place(arguments));
  if (one && !one->layer.empty()) selection.layer = layer_of_head(recording, one->layer);
  if (!arguments.layer.empty()) selection.layer = find_layer(recording, arguments.layer);
  for (const RecordedLayer& layer : recording.layers())
    if (arguments.item >= layer.batch)
      throw UsageError(layer.batch == 1
                           ? fmt::format("--item: there is item 0 alone, got {}", arguments.item)
                           : fmt::format("--item: there are 0 to {}, got {}", layer.batch - 1, arguments.item));
  if (!one) return selection;
  const RecordedLayer& layer = recording.layers()[static_cast<std::size_t>(*selection.layer)];
  if (std::ranges::find(layer.heads, one->head) == layer.heads.end()) {
    const bool all = layer.heads.back() == std::ssize(layer.heads) - 1;
    throw UsageError(fmt::format(
        "--head: layer {} has {}, got {}", layer.name,
        all ? fmt::format("0 to {}", layer.heads.back()) : fmt::format("{}", fmt::join(layer.heads, ", ")), one->head));
  }
  selection.head = one->head;
  if (arguments.query && *arguments.query >= layer.queries)
    throw UsageError(
        fmt::format("--query: layer {} has 0 to {}, got {}", layer.name, layer.queries - 1, *arguments.query));
  return selection;
}

namespace {

// That some head may have the label: its excess is known, also where it is small.
void check_label(const Recording& recording, const std::vector<LayerHead>& heads, const std::string& label) {
  const auto says = [&](const std::string& why) {
    throw UsageError(fmt::format("--label: whether a head is {} is not known: {}", label, why));
  };
  const std::string none = why_no_labels(heads);
  if (!none.empty()) says(none);
  if (std::ranges::find(HeadKinds::names(), label) == HeadKinds::names().end()) return;
  const auto known = [&](const LayerHead& x) { return x.scores.excess.of(label).has_value(); };
  if (std::ranges::none_of(heads, known)) says(why_unknown(recording, heads, label));
}

}  // namespace

std::vector<LayerHead> chosen_heads(const Selection& selection, const ShowArguments& arguments) {
  std::vector<LayerHead> heads = heads_of(selection);
  if (!arguments.label.empty()) {
    check_label(selection.recording, heads, arguments.label);
    std::erase_if(heads, [&](const LayerHead& x) { return !x.scores.has_label(arguments.label); });
  }
  if (!arguments.sort.empty() && arguments.sort != "layer" && !heads.empty()) {
    const auto score = std::ranges::find(all_scores(), arguments.sort, &Score::name);
    const auto known = [&](const LayerHead& x) { return score->of(x.scores).has_value(); };
    if (std::ranges::none_of(heads, known))
      throw UsageError(fmt::format("--sort: {} is not known of these heads: {}", arguments.sort,
                                   why_unknown(selection.recording, heads, arguments.sort)));
  }
  sort_heads(heads, arguments.sort);
  if (arguments.limit && *arguments.limit < std::ssize(heads)) heads.resize(static_cast<std::size_t>(*arguments.limit));
  return heads;
}

void write_shown(const std::string& file, const Selection& selection, const ShowArguments& arguments) {
  if (!arguments.strip.empty())
    write_strip(file, selection, arguments);
  else if (selection.layer)
    write_maps(file, selection, arguments);
  else
    write_grid(file, selection, arguments);
}

std::string shown_text(const Selection& selection, const ShowArguments& arguments) {
  const TerminalStyle style = style_of(arguments.form);
  if (selection.layer && selection.head) {
    const std::string text = head_text(selection.recording, heads_of(selection).front(), style.width);
    if (arguments.query) return text + "\n" + query_text(query_row(selection, *arguments.query));
    const PictureScale scale = picture_scale(arguments.scale);
    if (!arguments.strip.empty())
      return text + "\n" + terminal_token_strip(head_strip(selection, arguments.strip, scale).strip, style);
    HeadMap map = std::move(layer_maps(selection, *selection.layer, scale).front());
    const int beside = map.map.row_labels.empty() ? 14 : style.width / 3 + 2;  // the rows' indices, or their words
    map = merged_map(selection, *selection.layer, std::move(map), style.width - beside);
    return text + "\n" + terminal_heat_map(map.map, style);
  }
  const std::vector<LayerHead> heads = chosen_heads(selection, arguments);
  if (heads.empty())
    return arguments.label.empty() ? "no heads\n" : fmt::format("no head has the label {}\n", arguments.label);
  // A file or a pipe has no edge.
  const int width = arguments.form.width > 0 || on_terminal() ? style.width : widest;
  return heads_table(selection.recording, selection.item, heads, width, arguments.sort);
}

void add_show_what(App& app, ShowArguments& arguments, const std::string& group) {
  app.add_option("--layer", arguments.layer,
                 "A layer, by its name or its number from 0: the table of its heads, with -o their maps")
      ->type_name("NAME|N")
      ->group(group);
  app.add_option("--head", arguments.head,
                 "One head, such as 18.6, or with --layer its number from 0: its scores and its map")
      ->type_name("LAYER.N|N")
      ->group(group);
  whole_number(
      app.add_option("--query", arguments.query, "With --head: the top keys of one query, from 0, and their weights"),
      0)
      ->group(group);
  choose_one(app.add_option("--strip", arguments.strip,
                            "With --head: the tokens, each on the colour of what it received, of its lift or of its "
                            "entropy as a query"),
             "received|lift|entropy")
      ->group(group);
  choose_one(app.add_option("--sort", arguments.sort, "Heads of the largest score first (layer: as they are)"),
             "sink|self|previous|duplicate|induction|local|entropy|distance|layer")
      ->group(group);
  choose_one(app.add_option("--label", arguments.label, "Heads with that label alone, also beside a sink"),
             "sink|self|previous|duplicate|induction|local|broad|focused|other")
      ->group(group);
  whole_number(app.add_option("--limit", arguments.limit, "At most so many heads"), 1)->group(group);
}

void add_show_form(App& app, ShowArguments& arguments, const std::string& group) {
  choose_one(app.add_option("--scale", arguments.scale,
                            "How values are spread over the colours; sqrt and log show small weights beside a large "
                            "one (linear)"),
             "linear|sqrt|log")
      ->group(group);
  for (Option* option : add_text_form(app, arguments.form)) option->group(group);
}

}  // namespace attend::cli
