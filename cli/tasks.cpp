// rank: the lines of a file that answer a query best. classify: a class of each line. tag: labelled spans of each line.
#include "attend/tasks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "attend/error.h"
#include "attend/models.h"
#include "cli/command.h"
#include "cli/lines.h"
#include "cli/model.h"
#include "cli/terminal.h"

namespace attend::cli {
namespace {

using Json = nlohmann::ordered_json;

struct TaskArguments {
  std::string model, file, query, function, aggregation = "simple";
  LoadArguments load;
  std::optional<std::int64_t> max_tokens;
  std::int64_t count = 10;
  bool pairs = false, json = false;
  TextForm form;
};

Model open(const TaskArguments& arguments) {
  return Model::load(find_model(arguments.model), model_options(arguments.load));
}

template <class Of>
std::optional<Of> named(const std::string& name, std::span<const Of> all) {
  const auto found = std::ranges::find_if(all, [&](Of each) { return name_of(each) == name; });
  return found == all.end() ? std::nullopt : std::optional(*found);
}

// ---- rank ----

struct RankedLine {
  double score = 0;
  std::int64_t line = 0;
  std::string text;
};

// Of all lines so far the `count` best; of equal ones the first.
void keep_best(std::vector<RankedLine>& best, std::int64_t count) {
  std::ranges::stable_sort(best, std::greater(), &RankedLine::score);
  if (std::ssize(best) > count) best.resize(static_cast<std::size_t>(count));
}

void run_rank(const TaskArguments& arguments) {
  const Model model = open(arguments);
  RankOptions options;
  options.max_tokens = arguments.max_tokens, options.count = arguments.count;
  if (!arguments.function.empty()) options.function = named(arguments.function, score_functions());
  std::vector<RankedLine> best;
  std::int64_t cut = 0;
  Lines file(arguments.file);
  for_each_lines(file, options.progress, [&](const std::vector<std::string>& lines, std::int64_t before) {
    const Ranking ranking = rank(model, arguments.query, lines, options);
    cut += ranking.cut;
    for (const Ranked& each : ranking.passages)
      best.push_back({each.score, before + each.passage + 1, lines[static_cast<std::size_t>(each.passage)]});
    keep_best(best, arguments.count);
  });
  if (cut > 0) tell(fmt::format("attend: {} of the lines were too long with the query, and cut", cut));
  if (arguments.json) {
    Json report = {{"schema_version", 1}, {"ranked", Json::array()}};
    for (const RankedLine& each : best)
      report["ranked"].push_back({{"line", each.line}, {"score", each.score}, {"text", each.text}});
    return print(json_text(report));
  }
  std::vector<Column> columns = {{"score"}, {"line"}, {"text", true}};
  for (const RankedLine& each : best)
    add_line(columns, {fmt::format("{:.4f}", each.score), fmt::format("{}", each.line),
                       shortened(each.text, style_of(arguments.form).width - 20)});
  print(fmt::format("{}\n", fmt::join(lines_of(columns), "\n")));
}

// ---- classify ----

// A line, or with --pairs the two texts of one.
TaskText text_of(const std::string& line, bool pairs, std::int64_t number) {
  if (!pairs) return {line};
  const std::size_t tab = line.find('\t');
  if (tab == std::string::npos)
    throw Error(ErrorCode::bad_file, "",
                fmt::format("line {} has no tab between two texts, as --pairs expects", number));
  return {std::string_view(line).substr(0, tab), std::string_view(line).substr(tab + 1)};
}

void run_classify(const TaskArguments& arguments) {
  const Model model = open(arguments);
  ClassifyOptions options;
  options.max_tokens = arguments.max_tokens;
  if (!arguments.function.empty()) options.function = named(arguments.function, score_functions());
  (void)classify(model, {}, options);  // what is wrong with it is said before anything is read
  const std::vector<std::string>& labels = model.info().labels;
  std::size_t width = 5;
  for (const std::string& label : labels) width = std::max(width, columns_of(printable(label)));
  if (!arguments.json) print(fmt::format("{:>8}  {:>6}  {:<{}}  text\n", "score", "line", "label", width));
  const int room = style_of(arguments.form).width - static_cast<int>(width) - 20;
  Lines file(arguments.file);
  for_each_lines(file, options.progress, [&](const std::vector<std::string>& lines, std::int64_t before) {
    std::vector<TaskText> texts;
    texts.reserve(lines.size());
    for (const std::string& line : lines)
      texts.push_back(text_of(line, arguments.pairs, before + std::ssize(texts) + 1));
    const Classification found = classify(model, texts, options);
    for (std::size_t n = 0; n < lines.size(); ++n) {
      const float* scores = found.scores.data<float>() + n * labels.size();
      const std::int64_t number = before + static_cast<std::int64_t>(n) + 1;
      const std::size_t best = static_cast<std::size_t>(std::max_element(scores, scores + labels.size()) - scores);
      if (arguments.json) {
        Json line = {{"line", number}, {"label", labels[best]}, {"scores", Json::object()}};
        for (std::size_t l = 0; l < labels.size(); ++l) line["scores"][labels[l]] = scores[l];
        print(line.dump() + "\n");
        continue;
      }
      print(fmt::format("{:>8.4f}  {:>6}  {:<{}}  {}\n", scores[best], number, printable(labels[best]), width,
                        shortened(lines[n], room)));
    }
  });
}

// ---- tag ----

void run_tag(const TaskArguments& arguments) {
  const Model model = open(arguments);
  TagOptions options;
  options.max_tokens = arguments.max_tokens;
  options.aggregation = *named(arguments.aggregation, aggregations());
  (void)tag(model, std::span<const std::string>(), options);
  std::size_t width = 5;
  for (const std::string& label : model.info().labels) width = std::max(width, columns_of(printable(label)));
  if (!arguments.json) print(fmt::format("{:>6}  {:>6}  {:<{}}  text\n", "score", "line", "label", width));
  Lines file(arguments.file);
  for_each_lines(file, options.progress, [&](const std::vector<std::string>& lines, std::int64_t before) {
    const std::vector<Tagged> found = tag(model, lines, options);
    for (std::size_t n = 0; n < lines.size(); ++n) {
      const std::int64_t number = before + static_cast<std::int64_t>(n) + 1;
      Json tags = Json::array();
      for (const Tag& each : found[n].tags) {
        const std::string text = lines[n].substr(static_cast<std::size_t>(each.span.begin),
                                                 static_cast<std::size_t>(each.span.end - each.span.begin));
        tags.push_back({{"label", each.label},
                        {"score", each.score},
                        {"begin", each.span.begin},
                        {"end", each.span.end},
                        {"text", text}});
        if (!arguments.json)
          print(fmt::format("{:>6.4f}  {:>6}  {:<{}}  {}\n", each.score, number, printable(each.label), width,
                            printable(text)));
      }
      if (arguments.json) print(Json{{"line", number}, {"tags", tags}}.dump() + "\n");
    }
  });
}

void add_shared(App& app, TaskArguments& arguments, const char* file) {
  app.add_option("FILE", arguments.file, file)->type_name("FILE")->required();
  whole_number(app.add_option("--max-tokens", arguments.max_tokens,
                              "Cut texts that are longer than N tokens (default: as the folder says)"),
               1);
  add_load(app, arguments.load);
  add_text_form(app, arguments.form);
}

void add_model_name(App& app, TaskArguments& arguments, const char* head) {
  app.add_option("MODEL", arguments.model, head)->type_name("FILE")->required();
}

}  // namespace

Command add_rank(App& root) {
  App* app = root.add_subcommand(
      "rank",
      "Show the lines of a file that answer a query best, as scored by a reranker (a cross-encoder or a ColBERT).");
  app->examples(
      "attend rank ms-marco-MiniLM-L6-v2 \"who wrote Faust?\" passages.txt -k 5\n"
      "attend rank ms-marco-MiniLM-L6-v2 \"who wrote Faust?\" - --json < passages.txt");
  auto arguments = std::make_shared<TaskArguments>();
  add_model_name(*app, *arguments,
                 "The folder of a ColBERT or of a model whose head has one label, or its name in a cache");
  app->add_option("QUERY", arguments->query, "The query, in quotes")->required();
  add_shared(*app, *arguments, "A text file with a passage on each line; - reads standard input");
  whole_number(app->add_option("-k,--count", arguments->count, "How many lines to show (default: 10)"), 1, 1 << 20);
  choose_one(app->add_option("--function", arguments->function,
                             "How a logit becomes a score (default: as the folder says, else sigmoid)"),
             "sigmoid|none");
  app->add_flag("--json", arguments->json, "Print one JSON object instead of the text");
  return {app, [arguments] { run_rank(*arguments); }};
}

Command add_classify(App& root) {
  App* app = root.add_subcommand(
      "classify",
      "Show the class of each line of a file, or of each pair of texts. Memory does not grow with the file.");
  app->examples(
      "attend classify distilbert-sst2 reviews.txt\n"
      "attend classify nli-MiniLM2 pairs.tsv --pairs --json");
  auto arguments = std::make_shared<TaskArguments>();
  add_model_name(*app, *arguments,
                 "The folder of a model with a head for sequence classification, or its name in a cache");
  add_shared(*app, *arguments, "A text file with a text on each line; - reads standard input");
  app->add_flag("--pairs", arguments->pairs, "Each line has two texts, with a tab between them");
  choose_one(app->add_option("--function", arguments->function,
                             "How logits become scores (default: as problem_type in config.json says)"),
             "none|sigmoid|softmax");
  app->add_flag("--json", arguments->json, "Print a JSON object for each line, with the scores of all labels");
  return {app, [arguments] { run_classify(*arguments); }};
}

Command add_tag(App& root) {
  App* app = root.add_subcommand("tag",
                                 "Show the spans of each line that have a label: names, places, parts of speech, or "
                                 "what else the model was trained for.");
  app->examples(
      "attend tag bert-ner letters.txt\n"
      "attend tag bert-ner letters.txt --aggregation first --json");
  auto arguments = std::make_shared<TaskArguments>();
  add_model_name(*app, *arguments,
                 "The folder of a model with a head for token classification, or its name in a cache");
  add_shared(*app, *arguments, "A text file with a text on each line; - reads standard input");
  choose_one(
      app->add_option(
          "--aggregation", arguments->aggregation,
          "How tokens become spans. simple: neighbours with one label. first, max, average: whole words, by their "
          "first token, their surest token or the mean of their tokens. none: each token by itself (default: simple)"),
      "none|simple|first|max|average");
  app->add_flag("--json", arguments->json, "Print a JSON object for each line; begin and end count bytes");
  return {app, [arguments] { run_tag(*arguments); }};
}

}  // namespace attend::cli
