#include "attend/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <memory>

#include "attend/io.h"
#include "cli/command.h"
#include "cli/suggest.h"
#include "cli/terminal.h"

namespace attend::cli {
namespace {

constexpr int widest = 10000;

struct Arguments {
  ExplainOptions options;
  std::string cross;
  std::string preset;
  std::string focus;
  std::string weights = "uniform";
  std::string colour = "auto";
  std::vector<std::string> files;
  std::int64_t head = 1;
  int width = 0;
  bool list = false;
  bool json = false;
};

void list_presets() {
  std::size_t name_width = 0;
  std::size_t document_width = 0;
  for (const Preset& preset : presets()) {
    name_width = std::max(name_width, preset.name.size());
    document_width = std::max(document_width, preset.document.size());
  }
  for (const Preset& preset : presets())
    print(
        fmt::format("{:<{}}  {:<{}}  {}\n", preset.name, name_width, preset.document, document_width, preset.summary));
}

void require_preset(const std::string& name) {
  std::vector<std::string> names;
  for (const Preset& preset : presets()) names.emplace_back(preset.name);
  if (std::find(names.begin(), names.end(), name) == names.end())
    throw UsageError(fmt::format("no preset '{}'{}", name, did_you_mean(name, names)));
}

std::string read_stdin() {
  std::string text;
  char chunk[1 << 16];
  while (const std::size_t count = std::fread(chunk, 1, sizeof chunk, stdin)) text.append(chunk, count);
  if (std::ferror(stdin) != 0) throw Failure(fmt::format("standard input: {}", std::strerror(errno)));
  return text;
}

// A word of the sentence, else a position counted from 1. A word wins: "3 2 1" has the word 1 at position 3.
std::int64_t focus_row(const std::string& focus, const std::vector<std::string>& tokens) {
  const auto word = std::find(tokens.begin(), tokens.end(), focus);
  if (word != tokens.end()) return word - tokens.begin();
  const auto count = static_cast<std::int64_t>(tokens.size());
  std::int64_t position = 0;
  const auto [end, error] = std::from_chars(focus.data(), focus.data() + focus.size(), position);
  if (end == focus.data() + focus.size() && !focus.empty()) {
    if (error == std::errc() && position >= 1 && position <= count) return position - 1;
    throw UsageError(
        fmt::format("--focus: expected a word of the sentence or a position from 1 to {}, got '{}'", count, focus));
  }
  throw UsageError(fmt::format("--focus: the sentence has no word '{}'{}", focus, did_you_mean(focus, tokens)));
}

Trace make_trace(Arguments& arguments) {
  if (!arguments.preset.empty()) {
    require_preset(arguments.preset);
    return explain_preset(arguments.preset);
  }
  ExplainOptions& options = arguments.options;
  if (options.text == "-") options.text = read_stdin();
  if (!arguments.cross.empty()) options.second_text = arguments.cross;
  options.weights = arguments.weights == "linear" ? WeightInit::linear : WeightInit::uniform;
  return explain(options);
}

std::int64_t head_index(std::int64_t head, const Trace& trace) {
  const std::int64_t heads = trace.multi_head() ? trace.queries.size(0) : 1;
  if (head > heads)
    throw UsageError(fmt::format("--head: there {} {}, got {}", heads == 1 ? "is" : "are",
                                 heads == 1 ? "1 head" : fmt::format("{} heads", heads), head));
  return head - 1;
}

void run(Arguments& arguments) {
  if (arguments.list) return list_presets();
  Trace trace = make_trace(arguments);
  if (!arguments.focus.empty()) trace.focus = focus_row(arguments.focus, trace.tokens);
  TextStyle style;
  style.head = head_index(arguments.head, trace);
  style.width = arguments.width > 0 ? arguments.width : std::min(terminal_width(), widest);
  style.colour = use_colour(arguments.colour);

  for (const std::string& file : arguments.files) {
    writing([&] { write_trace(file, trace, style); });
    tell("attend: wrote " + file);
  }
  if (arguments.json)
    print(to_json(trace) + "\n");
  else if (arguments.files.empty())
    print(to_text(trace, style));
}

// Each of these would change what a preset is.
std::vector<CLI::Option*> add_sentence_options(CLI::App& app, Arguments& arguments) {
  ExplainOptions& options = arguments.options;
  const std::string group = "The sentence and its sizes";
  std::vector<CLI::Option*> all = {
      app.add_option(
             "TEXT", options.text,
             "The sentence, in quotes; - reads it from standard input. Default: \"" + ExplainOptions().text + "\"")
          ->type_name("TEXT"),
      app.add_option("--cross", arguments.cross, "Cross-attention: keys and values come from this second sentence")
          ->type_name("TEXT"),
      whole_number(app.add_option("--seed", options.seed, "Seed of the random numbers, as torch.manual_seed (123)"), 0,
                   std::numeric_limits<std::uint64_t>::max()),
      whole_number(app.add_option("--embedding-size", options.embedding_size, "Numbers for each word (16)"), 1),
      whole_number(app.add_option("--d-k", options.d_k, "Size of a query and of a key (24)"), 1),
      whole_number(app.add_option("--d-v", options.d_v, "Size of a value (28)"), 1),
      whole_number(app.add_option("--heads", options.heads, "Number of heads; 0 is one head without a head axis (0)"),
                   0),
      choose_one(app.add_option("--weights", arguments.weights,
                                "How w_query, w_key and w_value are drawn: between 0 and 1, or as torch.nn.Linear "
                                "(uniform)"),
                 "uniform|linear"),
      app.add_flag("--causal", options.causal, "A word attends to itself and the words before it"),
  };
  for (CLI::Option* option : all) option->group(group);
  return all;
}

void add_output_options(CLI::App& app, Arguments& arguments) {
  const std::string group = "What to show";
  app.add_option("--focus", arguments.focus, "The query to work out: a word of the sentence, or its place from 1")
      ->type_name("WORD|N")
      ->group(group);
  whole_number(app.add_option("--head", arguments.head, "The head that the text and the .html page show, from 1 (1)"),
               1)
      ->group(group);
  app.add_flag("--json", arguments.json, "Print one JSON object instead of the text")->group(group);
  file_ending(app.add_option("-o,--output", arguments.files,
                             "Write to FILE instead: .json, .npz, .safetensors, .svg, .png or .html by its ending. "
                             "May be given several times"),
              {".json", ".npz", ".safetensors", ".svg", ".png", ".html"})
      ->take_all()
      ->allow_extra_args(false)
      ->group(group);
  choose_one(app.add_option("--color", arguments.colour,
                            "Colour in the text; auto asks the terminal and NO_COLOR "
                            "(auto)"),
             "auto|always|never")
      ->group(group);
  whole_number(app.add_option("--width", arguments.width, "Columns of the text (those of the terminal)"), 20, widest)
      ->group(group);
}

}  // namespace

Command add_explain(CLI::App& root) {
  CLI::App* app = root.add_subcommand("explain", "Show attention on a sentence, step by step, with every number.");
  app->footer(
      "attend explain\n"
      "attend explain \"the cat sat on the mat\" --focus cat\n"
      "attend explain --preset life-multihead --head 2\n"
      "attend explain \"the cat sat\" --cross \"le chat\" -o cat.svg -o cat.npz\n"
      "attend explain --json | jq .tensors.weights");
  auto arguments = std::make_shared<Arguments>();
  app->add_option("--preset", arguments->preset, "A part of a document, exactly as it stands there")
      ->type_name("PRESET")
      ->group("A document");
  app->add_flag("--list", arguments->list, "List the presets, with their documents")->group("A document");
  CLI::Option* preset = app->get_option("--preset");
  for (CLI::Option* option : add_sentence_options(*app, *arguments)) preset->excludes(option);
  add_output_options(*app, *arguments);
  return {app, [arguments] { run(*arguments); }};
}

}  // namespace attend::cli
