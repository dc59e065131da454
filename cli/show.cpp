#include "cli/show.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "attend/io.h"
#include "cli/command.h"

namespace attend::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Arguments {
  std::string file;
  ShowArguments what;
  std::vector<std::string> files;
  bool json = false;
};

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json layer_json(const RecordedLayer& x) {
  return {{"name", x.name}, {"kind", x.kind}, {"dtype", name_of(x.dtype)}, {"heads", x.heads}, {"queries", x.queries},
          {"keys", x.keys}, {"qk", x.has_qk}};
}

Json labels_json(const std::vector<HeadLabel>& labels) {
  Json list = Json::array();
  for (const HeadLabel& label : labels) list.push_back({{"name", label.name}, {"value", label.value}});
  return list;
}

Json excess_json(const HeadKinds& excess) {
  Json all;
  for (const std::string_view name : HeadKinds::names()) all[name] = or_null(excess.of(name));
  return all;
}

std::string to_json(const Selection& selection, const ShowArguments& arguments) {
  const Recording& recording = selection.recording;
  const auto tokens = [&](const std::vector<std::vector<std::string>>& of) {
    return selection.item < std::ssize(of) ? Json(of[static_cast<std::size_t>(selection.item)]) : Json(nullptr);
  };
  Json report = {{"schema_version", 1},
                 {"model", recording.model},
                 {"item", selection.item},
                 {"tokens", tokens(recording.tokens)},
                 {"decoder_tokens", tokens(recording.decoder_tokens)},
                 {"layers", Json::array()},
                 {"heads", Json::array()}};
  for (const RecordedLayer& layer : recording.layers()) report["layers"].push_back(layer_json(layer));
  for (const LayerHead& head : chosen_heads(selection, arguments))
    report["heads"].push_back(head_json(recording, head));
  if (arguments.query) add_query(report, query_row(selection, *arguments.query));
  return json_text(report, 2);
}

void write(const std::string& file, const Selection& selection, const ShowArguments& arguments) {
  if (ending_of(file) == ".json")
    writing([&] { write_file(file, to_json(selection, arguments)); });
  else
    write_shown(file, selection, arguments);
  tell("attend: wrote " + file);
}

void run(const Arguments& arguments) {
  check_show(arguments.what, arguments.files);
  if (arguments.json && !arguments.files.empty())
    throw UsageError("--json and -o can't stand together; -o writes a .json file too");
  if (arguments.json && !arguments.what.strip.empty()) throw UsageError("--json and --strip can't stand together");
  const Recording recording = Recording::load(arguments.file);
  const Selection selection = select(recording, arguments.what);
  if (arguments.json) return print(to_json(selection, arguments.what));
  for (const std::string& file : arguments.files) write(file, selection, arguments.what);
  if (!arguments.files.empty()) return;
  print(overview(selection, style_of(arguments.what.form).width) + "\n" + shown_text(selection, arguments.what));
}

}  // namespace

nlohmann::ordered_json head_json(const Recording& recording, const LayerHead& head) {
  Json entry = {{"layer", recording.layers()[static_cast<std::size_t>(head.layer)].name},
                {"head", head.scores.head},
                {"name", name_of(recording, head)},
                {"labels", labels_json(head.scores.labels)}};
  for (const Score& score : all_scores()) {
    entry[score.name] = or_null(score.of(head.scores));
    if (score.name == "sink") entry["sink_key"] = head.scores.sink_key < 0 ? Json(nullptr) : Json(head.scores.sink_key);
  }
  entry["excess"] = excess_json(head.scores.excess);
  const auto& rest = head.scores.without_sink;
  entry["without_sink"] = nullptr;
  if (rest)
    entry["without_sink"] = {{"labels", labels_json(rest->labels)},
                             {"excess", excess_json(rest->excess)},
                             {"effective_keys", rest->effective_keys},
                             {"rows_left_out", rest->rows_left_out}};
  return entry;
}

void add_query(nlohmann::ordered_json& report, const QueryRow& row) {
  report["query"] = row.query;
  report["token"] = or_null(row.token);
  report["entropy"] = row.entropy;
  report["distance"] = or_null(row.distance);
  report["top"] = Json::array();
  for (const QueryRow::Key& key : row.top)
    report["top"].push_back({{"key", key.key}, {"token", or_null(key.token)}, {"weight", key.weight}});
}

Command add_show(App& root) {
  App* app = root.add_subcommand(
      "show",
      "Show what a model's heads attended to, from a recording: a line for each head, one head's map, or one "
      "query's top keys.");
  app->examples(
      "attend show x.attend --sort induction --limit 10\n"
      "attend show x.attend --label induction\n"
      "attend show x.attend --head 0.3\n"
      "attend show x.attend --head 0.3 --query 5\n"
      "attend show x.attend --scale sqrt -o heads.svg");
  auto arguments = std::make_shared<Arguments>();
  app->add_option("FILE", arguments->file, "A recording, as attend explain -o x.attend writes it")
      ->type_name("FILE")
      ->required();
  const std::string what = "What to show", form = "How to show it";
  whole_number(app->add_option("--item", arguments->what.item, "Of a batch, which text, from 0 (0)"), 0)->group(what);
  add_show_what(*app, arguments->what, what);
  app->add_flag("--json", arguments->json, "Print one JSON object instead of the text")->group(form);
  file_ending(
      app->add_option("-o,--output", arguments->files,
                      "Write to FILE instead: .svg or .png (maps of all heads, of a layer's or one, or a "
                      "strip), .npy (a layer's or a head's numbers) or .json by its ending. May be given several "
                      "times"),
      {".svg", ".png", ".npy", ".json"})
      ->group(form);
  add_show_form(*app, arguments->what, form);
  return {app, [arguments] { run(*arguments); }};
}

}  // namespace attend::cli
