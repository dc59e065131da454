#include "attend/explain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <memory>
#include <optional>

#include "attend/error.h"
#include "attend/io.h"
#include "attend/picture.h"
#include "attend/words.h"
#include "cli/command.h"
#include "cli/open.h"
#include "cli/suggest.h"
#include "cli/terminal.h"

namespace attend::cli {
namespace {

struct ExplainArguments {
  ExplainOptions options;
  std::string preset;
  std::string focus;
  std::string weights;
  std::string sheet;
  TextForm form;
  std::vector<std::string> files;
  std::optional<std::int64_t> head;
  bool no_scale = false;
  bool all = false;
  bool list = false;
  bool json = false;
  bool open = false;

  bool writes(const std::vector<std::string>& endings) const {
    return std::ranges::any_of(files, [&](const std::string& file) {
      return std::ranges::find(endings, std::filesystem::path(file).extension().string()) != endings.end();
    });
  }
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

// What the outputs need: text and pages draw one head's weights, pictures all heads' unless --head says which.
ExplainKeep needed(const ExplainArguments& arguments) {
  const bool everything = arguments.json || arguments.writes({".json", ".npz", ".safetensors"});
  ExplainKeep keep{.scores = everything || arguments.all};
  const bool every_head = everything || (!arguments.head && arguments.writes({".svg", ".png"}));
  if (!every_head) keep.head = arguments.head.value_or(0);
  return keep;
}

void check_head(const std::optional<std::int64_t>& head, std::int64_t heads) {
  if (head && *head >= std::max<std::int64_t>(heads, 1))
    throw UsageError(heads <= 1 ? fmt::format("--head: expected 0, the only head, got {}", *head)
                                : fmt::format("--head: expected a head from 0 to {}, got {}", heads - 1, *head));
}

Trace make_trace(ExplainArguments& arguments) {
  if (!arguments.preset.empty()) {
    require_preset(arguments.preset);
    Trace trace = explain_preset(arguments.preset);
    check_head(arguments.head, trace.options.heads);
    return trace;
  }
  ExplainOptions& options = arguments.options;
  check_head(arguments.head, options.heads);
  if (options.text == "-") options.text = read_stdin();
  if (!arguments.weights.empty())
    options.weights = arguments.weights == "linear" ? WeightInit::linear : WeightInit::uniform;
  options.scale = !arguments.no_scale;
  Progress progress;
  ExplainKeep keep = needed(arguments);
  keep.progress = progress.stage();
  std::int64_t size = explain_bytes(options, keep);
  if ((arguments.json || arguments.writes({".json"})) && size < INT64_MAX / 4)
    size += size / 4 * 11;  // some 11 characters a number
  if (size >= std::int64_t{1} << 30)
    tell(
        fmt::format("attend: this will take about {} of memory, which grows with the square of the number of words and "
                    "with the heads",
                    bytes(size)));
  return explain(options, keep);
}

void write_sheet(const ExplainArguments& arguments) {
  SheetOptions options{.text = arguments.options.text.value_or("Life is short, eat dessert first"),
                       .seed = arguments.options.seed,
                       .causal = arguments.options.causal};
  if (options.text == "-") options.text = read_stdin();
  if (!arguments.focus.empty()) options.focus = focus_row(arguments.focus, split_words(options.text));
  const std::string sheet = [&] {
    try {
      return exercise_sheet(options);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::bad_value) throw;
      throw UsageError(fmt::format("--sheet: {}", error.detail()));
    }
  }();
  writing([&] { write_file(arguments.sheet, sheet); });
  tell("attend: wrote " + arguments.sheet);
  if (arguments.open) open_in_browser(arguments.sheet);
}

void run(ExplainArguments& arguments) {
  if (arguments.list) return list_presets();
  if (!arguments.sheet.empty()) return write_sheet(arguments);
  Trace trace = make_trace(arguments);
  if (!arguments.focus.empty()) trace.focus = focus_row(arguments.focus, trace.tokens);
  TextStyle style{.head = arguments.head, .all = arguments.all};
  const TerminalStyle terminal = style_of(arguments.form);
  style.width = terminal.width, style.colour = terminal.colour;

  // The page that --open shows is the first that is asked for, else one in the cache.
  const auto is_page = [](const std::string& file) { return file.ends_with(".html"); };
  if (arguments.open && std::ranges::none_of(arguments.files, is_page))
    arguments.files.push_back(cache_file("explain.html"));
  for (const std::string& file : arguments.files) {
    writing([&] {
      write_trace(file, trace, style);
      warn_of_missing_characters(
          file, fmt::format("{}{}{}", trace.title, fmt::join(trace.tokens, ""), fmt::join(trace.tokens_2, "")));
    });
    tell("attend: wrote " + file);
    if (const std::string note = page_note(trace); is_page(file) && !note.empty())
      tell(fmt::format("attend: {} does not compute: {}", file, note));
  }
  if (arguments.open) open_in_browser(*std::ranges::find_if(arguments.files, is_page));
  if (arguments.json)
    print(printable_json(to_json(trace)) + "\n");
  else if (arguments.files.empty())
    print_pages(to_text(trace, style));
}

// Each of these would change what a preset is.
std::vector<Option*> add_sentence_options(App& app, ExplainArguments& arguments) {
  ExplainOptions& options = arguments.options;
  app.begin_group("The sentence and its sizes");
  return {
      app.add_option("TEXT", options.text,
                     "The sentence, in quotes; - reads it from standard input. Default: \"Life is short, eat dessert "
                     "first\", computed as in the documents of --list"),
      app.add_option("--cross", options.second_text, "Cross-attention: keys and values come from this second sentence"),
      whole_number(
          app.add_option("--seed", options.seed, "Seed of the random numbers, as in torch.manual_seed (default: 123)"),
          0, std::numeric_limits<std::uint64_t>::max()),
      whole_number(
          app.add_option("--embedding-size", options.embedding_size, "Size of each word's embedding (default: 16)"), 1),
      whole_number(app.add_option("--d-k", options.d_k, "Size of the queries and keys in each head (default: 24)"), 1),
      whole_number(app.add_option("--d-v", options.d_v, "Size of the values in each head (default: 28)"), 1),
      whole_number(app.add_option("--heads", options.heads,
                                  "Number of heads, whose results are joined and projected; 0 is one head without a "
                                  "head axis (default: 0)"),
                   0),
      choose_one(app.add_option("--weights", arguments.weights,
                                "How to draw the weight matrices: linear as torch.nn.Linear does, uniform between 0 "
                                "and 1 (default: linear; without TEXT uniform, as in the documents)"),
                 "linear|uniform"),
      app.add_flag("--causal", options.causal, "A word attends to itself and the words before it"),
      app.add_flag("--positions", options.positions, "Add sinusoidal position encodings to the embeddings"),
      app.add_flag("--no-scale", arguments.no_scale, "Do not divide the scores by sqrt(d_k) before the softmax"),
      whole_number(
          app.add_option("--window", options.window,
                         "A word attends to itself, the N words before it and, without --causal, the N words after it"),
          0),
  };
}

// A sheet's sizes are its own.
void add_sheet(App& app, ExplainArguments& arguments) {
  app.begin_group("For a class");
  Option* sheet =
      file_ending(app.add_option("--sheet", arguments.sheet,
                                 "Write an exercise sheet to FILE.html for a sentence of 2 to 12 words: students work "
                                 "out one word's attention (--focus) with a pocket calculator, and the answers follow. "
                                 "--seed N gives other numbers; --causal works too"),
                  {".html"});
  constexpr std::array used = {"--seed", "--causal", "--focus", "--open", "--sheet"};
  for (const Option* other : app.options())
    if (std::ranges::find(used, other->spellings().back()) == used.end()) sheet->excludes(other);
}

void add_output_options(App& app, ExplainArguments& arguments) {
  app.begin_group("What to show");
  app.add_option("--focus", arguments.focus, "The query to work out: a word of the sentence, or its position from 1")
      ->type_name("WORD|N");
  whole_number(
      app.add_option("--head", arguments.head,
                     "The head to show, from 0 (default: head 0 in the text and the page, all heads in pictures)"),
      0);
  app.add_flag("--all", arguments.all, "Show whole matrices in the text and the page, not only one word's rows");
  app.add_flag("--json", arguments.json, "Print one JSON object instead of the text");
  file_ending(app.add_option("-o,--output", arguments.files,
                             "Write to FILE instead, in the format of its ending: .json, .npz, .safetensors, .attend "
                             "(a recording for attend show), .svg, .png or .html. May be given several times"),
              {".json", ".npz", ".safetensors", ".attend", ".svg", ".png", ".html"});
  app.add_flag("--open", arguments.open,
               "Open the page in the browser: the one from -o FILE.html, else one in the cache folder");
  add_text_form(app, arguments.form);
}

}  // namespace

Command add_explain(App& root) {
  App* app = root.add_subcommand(
      "explain", "Show attention on a sentence: who attends to whom, and how it comes about, step by step.");
  app->examples(
      "attend explain\n"
      "attend explain \"the cat sat on the mat\" --focus cat --positions\n"
      "attend explain --preset life-multihead --head 1 --open\n"
      "attend explain \"the cat sat\" --cross \"le chat\" -o cat.svg -o cat.npz\n"
      "attend explain \"the cat sat on the mat\" --sheet sheet.html --seed 7");
  auto arguments = std::make_shared<ExplainArguments>();
  app->begin_group("An example from a document");
  Option* preset = app->add_option("--preset", arguments->preset,
                                   "Show an example with the same numbers as in its document (--list has the names)")
                       ->type_name("PRESET");
  app->add_flag("--list", arguments->list, "List the presets and the documents they come from");
  for (Option* option : add_sentence_options(*app, *arguments)) preset->excludes(option);
  add_output_options(*app, *arguments);
  add_sheet(*app, *arguments);
  return {app, [arguments] { run(*arguments); }};
}

}  // namespace attend::cli
