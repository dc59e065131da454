// What `show` and `model` are asked for of a recording, and how they give it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "attend/error.h"
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
  const std::int64_t layers = std::ssize(recording.layers());
  if (number && number->size() == 1 && number->front() >= -layers && number->front() < layers)
    return number->front() < 0 ? number->front() + layers : number->front();
  fail_no_layer(recording, name);
}

// A head without a layer is one of that which --layer says.
HeadPlace head_place(const ShowArguments& x) {
  const std::optional<HeadPlace> place = parse_head(x.head);
  if (!place)
    throw UsageError(fmt::format("--head: expected a head such as 18.6, or with --layer a number, got '{}'", x.head));
  const bool whole = x.head.find('.') != std::string::npos;
  if (!whole && x.layer.empty())
    throw UsageError(fmt::format("--head: needs a layer: name it as in 18.{}, or with --layer", x.head));
  if (whole && !x.layer.empty())
    throw UsageError(fmt::format(
        "--head: {} names its layer already; leave out --layer, or give --layer and the head's number alone", x.head));
  return *place;
}

// The first token that is the word, or the one of that number.
std::int64_t query_of(const Selection& selection, const std::string& given) {
  const RecordedLayer& layer = selection.recording.at(*selection.layer);
  if (const auto number = parse_whole_numbers(given); number && number->size() == 1) {
    if (number->front() >= layer.queries || number->front() < -layer.queries)
      throw UsageError(
          fmt::format("--query: layer {} has queries 0 to {}, got {}", layer.name, layer.queries - 1, number->front()));
    return number->front() < 0 ? number->front() + layer.queries : number->front();
  }
  const auto& texts = selection.recording.query_tokens(*selection.layer);
  const std::vector<std::string> none,
      &tokens = selection.item < std::ssize(texts) ? texts[static_cast<std::size_t>(selection.item)] : none;
  const auto found = std::ranges::find_if(tokens, [&](const std::string& token) {
    return token == given || (token.starts_with(' ') && token.substr(1) == given);
  });
  if (found == tokens.end())
    throw UsageError(fmt::format("--query: no token is '{}', expected a token of the text, or a number from 0 to {}",
                                 given, layer.queries - 1));
  return found - tokens.begin();
}

// A recording may be of some layers: what a head is called tells the model's number, never a place among these.
std::int64_t layer_of_head(const Recording& recording, const std::string& name) {
  if (const auto whole = named_layer(recording, name)) return *whole;
  if (const auto of_one_stack = named_layer(recording, name + ".self")) return *of_one_stack;
  fail_no_layer(recording, name);
}

// Those in which a decoder reads an encoder's text: of an encoder-decoder they are drawn, where nothing else is asked
// for. Empty: there are none.
std::vector<std::int64_t> cross_layers(const Recording& recording) {
  std::vector<std::int64_t> layers;
  for (std::int64_t n = 0; n < std::ssize(recording.layers()); ++n)
    if (recording.at(n).kind == "cross") layers.push_back(n);
  return layers;
}

// What -o draws, or of a head the terminal.
Picture picture_of(const Selection& selection, const ShowArguments& arguments, LookOptions options = {}) {
  options.item = selection.item, options.scale = picture_scale(arguments.scale), options.by = selection.by;
  const Recording& recording = selection.recording;
  if (!arguments.strip.empty())
    return head_strip(recording, *selection.layer, *selection.head, arguments.strip, options);
  if (arguments.links) return head_links(recording, *selection.layer, *selection.head, options);
  if (selection.head) return head_picture(recording, *selection.layer, *selection.head, options);
  if (selection.layer) return layer_picture(recording, *selection.layer, options);
  try {
    return recording_picture(recording, cross_layers(recording), options);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::bad_value) throw;
    throw UsageError(fmt::format("-o: {}: choose a layer with --layer", error.detail()));
  }
}

// All maps of a layer in one tensor [H,R,C], or what there is one of.
Tensor stacked(const std::vector<Tensor>& maps) {
  const Tensor& first = maps[0];
  if (maps.size() == 1) return first.clone();
  Tensor all({std::ssize(maps), first.size(0), first.size(1)}, first.dtype());
  for (std::size_t n = 0; n < maps.size(); ++n) all.view().select(0, static_cast<std::int64_t>(n)).copy_from(maps[n]);
  return all;
}

// Beside a map stand the words of its rows, or their indices.
int columns_beside(const Selection& selection, int width) {
  const RecordedLayer& x = selection.recording.at(*selection.layer);
  const bool of_words = x.row_blocks == x.queries || x.queries <= 64;
  return of_words && !selection.recording.query_tokens(*selection.layer).empty() ? width / 3 + 2 : 14;
}

// Effective keys are in the order of the entropy.
std::string sort_choices() {
  std::string choices;
  for (const HeadStatistic& statistic : head_statistics())
    if (statistic.decimals > 0 && statistic.name != "effective_keys") choices += fmt::format("{}|", statistic.name);
  return choices + "layer";
}

}  // namespace

std::optional<HeadPlace> parse_head(const std::string& name) {
  const std::size_t dot = name.rfind('.');
  const auto number = parse_whole_numbers(name.substr(dot == std::string::npos ? 0 : dot + 1));
  if (!number || number->size() != 1 || number->front() < 0) return std::nullopt;
  return HeadPlace{dot == std::string::npos ? "" : name.substr(0, dot), number->front()};
}

std::string ending_of(const std::string& file) {
  return std::filesystem::path(file).extension().string();
}

void check_show(const ShowArguments& x, const std::vector<std::string>& files) {
  const auto needs_head = [&](const char* option) {
    if (x.head.empty()) throw UsageError(fmt::format("{}: needs a head, with --head", option));
  };
  if (!x.head.empty()) (void)head_place(x);
  if (!x.head.empty() && (!x.sort.empty() || !x.label.empty() || x.limit))
    throw UsageError("--head: one head has no table for --sort, --label or --limit");
  const std::vector<std::pair<const char*, bool>> of_head = {
      {"--query", x.query.has_value()}, {"--strip", !x.strip.empty()}, {"--links", x.links}};
  const std::vector<std::pair<const char*, bool>> printed = {{"--json", x.json}, {"--csv", x.csv}};
  std::vector<const char*> one_of;
  for (const auto& [option, given] : of_head) {
    if (given) needs_head(option), one_of.push_back(option);
  }
  for (const auto& [option, given] : printed) {
    if (!given) continue;
    if (!files.empty())
      throw UsageError(fmt::format("{0} and -o can't stand together; -o writes a .{1} file too", option, option + 2));
    if (x.csv || !x.query) one_of.push_back(option);
  }
  if (one_of.size() > 1) throw UsageError(fmt::format("{} and {} can't stand together", one_of[1], one_of[0]));
  if (x.links && files.empty()) throw UsageError("--links: a terminal has no room for lines: say -o x.svg or -o x.png");
  for (const std::string& file : files) {
    const std::string ending = ending_of(file);
    if (ending == ".attend" || ending == ".html") continue;  // they hold all of it
    if (x.query && ending != ".json")
      throw UsageError(fmt::format("-o: a query's top keys go into a .json file, not into '{}'", file));
    if ((!x.strip.empty() || x.links) && ending != ".svg" && ending != ".png" && (x.links || ending != ".npy"))
      throw UsageError(fmt::format(
          "-o: {}, not into '{}'",
          x.links ? "links go into a .svg or .png file" : "a strip goes into a .svg, .png or .npy file", file));
    if (ending == ".npy" && x.layer.empty() && x.head.empty())
      throw UsageError("-o: the numbers in a .npy file need a layer, with --layer");
  }
}

Selection select(const Recording& recording, const ShowArguments& arguments) {
  Selection selection{recording, arguments.item, weighed_by(arguments.by)};
  for (const RecordedLayer& layer : recording.layers())
    if (selection.by == WeighedBy::norm && !layer.has_key_sizes)
      throw UsageError(fmt::format("--by: layer {} was recorded by weight only; record it with --by norm", layer.name));
  const std::optional<HeadPlace> one = arguments.head.empty() ? std::nullopt : std::optional(head_place(arguments));
  if (one && !one->layer.empty()) selection.layer = layer_of_head(recording, one->layer);
  if (!arguments.layer.empty()) selection.layer = find_layer(recording, arguments.layer);
  for (const RecordedLayer& layer : recording.layers())
    if (arguments.item >= layer.batch)
      throw UsageError(layer.batch == 1 ? fmt::format("--item: expected 0, the only item, got {}", arguments.item)
                                        : fmt::format("--item: expected an item from 0 to {}, got {}", layer.batch - 1,
                                                      arguments.item));
  if (!one) return selection;
  const RecordedLayer& layer = recording.at(*selection.layer);
  if (std::ranges::find(layer.heads, one->head) == layer.heads.end()) {
    const bool all = layer.heads.back() == std::ssize(layer.heads) - 1;
    throw UsageError(fmt::format(
        "--head: layer {} has {}, got {}", layer.name,
        all ? fmt::format("0 to {}", layer.heads.back()) : fmt::format("{}", fmt::join(layer.heads, ", ")), one->head));
  }
  selection.head = one->head;
  if (arguments.query) selection.query = query_of(selection, *arguments.query);
  return selection;
}

std::vector<RecordedHead> chosen_heads(const Selection& selection, const ShowArguments& arguments) {
  std::vector<RecordedHead> heads = heads_of(selection);
  const auto asked = [](const char* option, const auto& choose) {
    try {
      choose();
    } catch (const Error& error) {
      if (error.code() != ErrorCode::bad_value) throw;
      throw UsageError(fmt::format("{}: {}", option, error.detail()));
    }
  };
  if (!arguments.label.empty()) asked("--label", [&] { keep_label(selection.recording, heads, arguments.label); });
  if (!arguments.sort.empty() && arguments.sort != "layer")
    asked("--sort", [&] { sort_heads(selection.recording, heads, arguments.sort); });
  if (arguments.limit && *arguments.limit < std::ssize(heads)) heads.resize(static_cast<std::size_t>(*arguments.limit));
  return heads;
}

std::optional<QueryRow> chosen_query(const Selection& selection, const ShowArguments& arguments) {
  if (!arguments.query) return std::nullopt;
  return query_row(selection.recording, *selection.layer, *selection.head, *selection.query, selection.item,
                   selection.by);
}

std::string csv_of(const Selection& selection, const ShowArguments& arguments) {
  return printable_lines(heads_csv(selection.recording, chosen_heads(selection, arguments)));
}

void write_shown(const std::string& file, const Selection& selection, const ShowArguments& arguments) {
  if (ending_of(file) == ".csv") return writing([&] { write_file(file, csv_of(selection, arguments)); });
  const Picture picture = picture_of(selection, arguments);
  if (ending_of(file) == ".npy") return writing([&] { write_npy(file, stacked(picture.numbers)); });
  write_picture(file, picture);
}

std::string shown_text(const Selection& selection, const ShowArguments& arguments) {
  const TerminalStyle style = style_of(arguments.form);
  if (selection.layer && selection.head) {
    const std::string text = head_text(selection.recording, heads_of(selection).front(), style.width);
    if (const auto row = chosen_query(selection, arguments)) return text + "\n" + query_text(*row, selection.by);
    // The title stands above already.
    const LookOptions room{.title = "", .most = MapSize{60, style.width - columns_beside(selection, style.width)}};
    return text + "\n" + *picture_of(selection, arguments, room).terminal(style);
  }
  const std::vector<RecordedHead> heads = chosen_heads(selection, arguments);
  if (heads.empty())
    return arguments.label.empty() ? "no heads\n" : fmt::format("no head has the label {}\n", arguments.label);
  // A file or a pipe has no edge.
  const int width = arguments.form.width > 0 || on_terminal() ? style.width : widest;
  return heads_table(selection.recording, heads, width, arguments.sort);
}

void add_show_what(App& app, ShowArguments& arguments) {
  app.add_option(
         "--layer", arguments.layer,
         "One layer, by its name or its number from 0 (-1 is the last): the table of its heads, or with -o their maps")
      ->type_name("NAME|N");
  app.add_option("--head", arguments.head,
                 "One head, such as 18.6 (with --layer its number alone, from 0): its scores and its map")
      ->type_name("LAYER.N|N");
  app.add_option("--query", arguments.query,
                 "With --head: the top keys of one query, and their weights. The query is the first token that is "
                 "WORD, or a number from 0 (-1 is the last)")
      ->type_name("N|WORD");
  choose_one(
      app.add_option(
          "--strip", arguments.strip,
          "With --head: the tokens, each coloured by what it received, by its lift or by its entropy as a query"),
      "received|lift|entropy");
  choose_one(app.add_option("--by", arguments.by,
                            "What heads are measured by: weight, or norm, which multiplies each weight by the size of "
                            "what its key carries (default: weight)"),
             "weight|norm");
  app.add_flag("--links", arguments.links,
               "With --head and -o: draw lines from each token to the tokens it looks at most");
  choose_one(app.add_option("--sort", arguments.sort,
                            "Sort heads by this score, the largest first (default: layer, the model's order)"),
             sort_choices());
  choose_one(app.add_option("--label", arguments.label,
                            "Show only heads with this label, also those that have it besides a sink"),
             fmt::format("{}|broad|focused|other", fmt::join(HeadKinds::names(), "|")));
  whole_number(app.add_option("--limit", arguments.limit, "Show at most N heads"), 1);
}

void add_show_form(App& app, ShowArguments& arguments) {
  app.add_flag("--json", arguments.json, "Print one JSON object instead of the text");
  app.add_flag("--csv", arguments.csv,
               "Print CSV instead of the text, a line for each head with its labels and scores");
  choose_one(
      app.add_option("--scale", arguments.scale,
                     "How values map to colours; sqrt and log show small weights beside a large one (default: sqrt)"),
      "linear|sqrt|log");
  add_text_form(app, arguments.form);
}

}  // namespace attend::cli
