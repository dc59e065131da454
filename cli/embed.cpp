// embed: each line of a file to a row of vectors. near: the lines whose rows are nearest to a text's.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "attend/error.h"
#include "attend/late_interaction.h"
#include "attend/models.h"
#include "attend/tasks.h"
#include "attend/vectors.h"
#include "cli/command.h"
#include "cli/lines.h"
#include "cli/model.h"
#include "cli/terminal.h"

namespace attend::cli {
namespace {

// ---- embed ----

struct EmbedArguments {
  std::string model, file, output;
  LoadArguments load;
  std::optional<std::string> prompt;
  bool normalize = false;
};

// A row of the writer for each line. How many lines were too long, and cut.
std::int64_t embed_lines(const Model& model, EmbedOptions options, Lines& lines, VectorWriter& writer) {
  std::int64_t cut = 0;
  for_each_lines(lines, options.progress, [&](const std::vector<std::string>& sentences, std::int64_t) {
    const Embeddings made = model.embed(sentences, options);
    cut += made.cut;
    writing([&] { writer.add(made.vectors); });
  });
  return cut;
}

std::string of_cut(std::int64_t cut, const Model& model) {
  if (cut == 0) return "";
  return fmt::format("; {} of the lines were longer than {} tokens, and cut", cut, model.info().max_seq_length);
}

// Of a model with a vector for each token: each line's, as a document.
void embed_line_tokens(const EmbedArguments& arguments, const Model& model) {
  if (arguments.normalize) throw UsageError("--normalize: token vectors have length 1 already");
  TokenVectorOptions options{.prompt = arguments.prompt, .progress = {}};
  (void)embed_tokens(model, std::vector<std::string>{}, options);
  Lines lines(arguments.file);
  std::optional<TokenVectorWriter> writer;
  writing([&] { writer.emplace(arguments.output, model.info().vector_size); });
  std::int64_t cut = 0;
  for_each_lines(lines, options.progress, [&](const std::vector<std::string>& texts, std::int64_t) {
    for (const TokenVectors& each : embed_tokens(model, texts, options)) {
      cut += each.cut ? 1 : 0;
      writing([&] { writer->add(each.vectors); });
    }
  });
  writing([&] { writer->commit(); });
  tell(fmt::format("attend: wrote {}: {} vectors of {} numbers, of {} lines{}", arguments.output, writer->rows(),
                   model.info().vector_size, writer->texts(), of_cut(cut, model)));
}

void run_embed(const EmbedArguments& arguments) {
  const Model model = Model::load(find_model(arguments.model), model_options(arguments.load));
  if (model.info().vectors == VectorKind::token) return embed_line_tokens(arguments, model);
  EmbedOptions options{.prompt = arguments.prompt, .progress = {}};
  if (arguments.normalize) options.normalize = true;
  (void)model.embed(std::vector<std::string>{}, options);  // what is wrong with it is said before anything is read
  Lines lines(arguments.file);
  std::optional<VectorWriter> writer;
  writing([&] { writer.emplace(arguments.output, model.info().vector_size); });
  const std::int64_t cut = embed_lines(model, options, lines, *writer);
  writing([&] { writer->commit(); });
  tell(fmt::format("attend: wrote {}: {} vectors of {} numbers{}", arguments.output, writer->rows(),
                   model.info().vector_size, of_cut(cut, model)));
}

// ---- near ----

struct NearArguments {
  std::string vectors, file, model, query, rerank;
  LoadArguments load;
  std::optional<std::string> prompt;
  std::int64_t count = 10;
  std::optional<std::int64_t> candidates;
  bool json = false;
  TextForm form;
};

// The lines with these numbers, in the order of these. Throws bad_file where the file has not as many lines as there
// are rows.
std::vector<std::string> lines_at(const NearArguments& arguments, std::int64_t rows, const std::vector<Near>& nearest) {
  Lines lines(arguments.file);
  std::vector<std::string> found(nearest.size());
  std::int64_t count = 0;
  for (std::string line; lines.next(line); ++count) {
    const auto at = std::ranges::find(nearest, count, &Near::row);
    if (at != nearest.end()) found[static_cast<std::size_t>(at - nearest.begin())] = line;
  }
  if (count != rows)
    throw Error(ErrorCode::bad_file, "",
                fmt::format("'{}' has {} lines, but '{}' has {} rows: they don't belong together", arguments.file,
                            count, arguments.vectors, rows));
  return found;
}

// A line that is shown, and what a reranker made of it.
struct NearLine {
  Near near;
  std::string text;
  std::optional<double> score;
};

void check_size(const NearArguments& arguments, std::int64_t of_file, std::int64_t of_model) {
  if (of_file != of_model)
    throw Error(ErrorCode::bad_file, "",
                fmt::format("'{}' has vectors of {} numbers, but {} makes vectors of {}: they don't belong together",
                            arguments.vectors, of_file, arguments.model, of_model));
}

// The nearest rows of so many, by the cosine; or where a line has a vector for each token by MaxSim.
struct Searched {
  std::int64_t rows = 0;
  std::vector<Near> nearest;
};
Searched search_tokens(const NearArguments& arguments, const Model& model, std::int64_t count) {
  const TokenVectorFile file(arguments.vectors);
  const TokenVectors query =
      embed_tokens(model, arguments.query, {.role = TextRole::query, .prompt = arguments.prompt, .progress = {}});
  check_size(arguments, file.size(), query.vectors.size(1));
  Searched found{.rows = file.texts(), .nearest = {}};
  for (const NearText& each : file.nearest(query.vectors, count)) found.nearest.push_back({each.text, each.score});
  return found;
}
Searched search(const NearArguments& arguments, const Model& model, std::int64_t count) {
  if (model.info().vectors == VectorKind::token) return search_tokens(arguments, model, count);
  const VectorFile file(arguments.vectors);
  const Embeddings query =
      model.embed(std::vector<std::string>{arguments.query}, {.prompt = arguments.prompt, .progress = {}});
  check_size(arguments, file.rows().size(1), query.vectors.size(1));
  return {file.rows().size(0), file.nearest(query.vectors.view().select(0, 0), count)};
}

// The nearest lines, or those of the candidates that answer the query best.
std::vector<NearLine> near_lines(const NearArguments& arguments, const Model& model) {
  const auto [rows, nearest] = search(
      arguments, model,
      arguments.rerank.empty() ? arguments.count : std::max(arguments.count, arguments.candidates.value_or(100)));
  const std::vector<std::string> lines = lines_at(arguments, rows, nearest);
  std::vector<NearLine> all;
  if (arguments.rerank.empty()) {
    for (std::size_t n = 0; n < nearest.size(); ++n) all.push_back({nearest[n], lines[n], std::nullopt});
    return all;
  }
  const Model reranker = Model::load(find_model(arguments.rerank), model_options(arguments.load));
  Progress progress;
  RankOptions options;
  options.count = arguments.count, options.progress = progress.stage();
  for (const Ranked& each : rank(reranker, arguments.query, lines, options).passages) {
    const auto n = static_cast<std::size_t>(each.passage);
    all.push_back({nearest[n], lines[n], each.score});
  }
  return all;
}

std::string near_json(const std::vector<NearLine>& lines, bool of_tokens) {
  nlohmann::ordered_json report = {{"schema_version", 1}, {"nearest", nlohmann::ordered_json::array()}};
  for (const NearLine& each : lines) {
    nlohmann::ordered_json line = {{"line", each.near.row + 1},
                                   {of_tokens ? "max_sim" : "similarity", each.near.similarity}};
    if (each.score) line["score"] = *each.score;
    line["text"] = each.text;
    report["nearest"].push_back(std::move(line));
  }
  return json_text(report);
}

void run_near(const NearArguments& arguments) {
  if (arguments.candidates && arguments.rerank.empty())
    throw UsageError("--candidates: nothing uses it without --rerank");
  const Model model = Model::load(find_model(arguments.model), model_options(arguments.load));
  const bool of_tokens = model.info().vectors == VectorKind::token;
  const std::vector<NearLine> lines = near_lines(arguments, model);
  if (arguments.json) return print(near_json(lines, of_tokens));
  std::vector<Column> columns;
  if (!arguments.rerank.empty()) columns.push_back({"score"});
  for (const Column& each : {Column{of_tokens ? "maxsim" : "cosine"}, Column{"line"}, Column{"text", true}})
    columns.push_back(each);
  for (const NearLine& each : lines) {
    std::vector<std::string> cells;
    if (each.score) cells.push_back(fmt::format("{:.4f}", *each.score));
    cells.push_back(fmt::format("{:.4f}", each.near.similarity));
    cells.push_back(fmt::format("{}", each.near.row + 1));
    cells.push_back(shortened(each.text, style_of(arguments.form).width - (each.score ? 27 : 18)));
    add_line(columns, cells);
  }
  print(fmt::format("{}\n", fmt::join(lines_of(columns), "\n")));
}

void add_model_options(App& app, LoadArguments& load, std::optional<std::string>& prompt) {
  app.add_option("--prompt", prompt,
                 "What to put before each text: one of the model's prompts by its name (query, document, ...), or a "
                 "text (default: the model's own prompt, if it has one)")
      ->type_name("NAME|TEXT");
  add_load(app, load);
}

}  // namespace

Command add_embed(App& root) {
  App* app = root.add_subcommand("embed",
                                 "Turn each line of a file into a vector, as sentence-transformers does. A ColBERT "
                                 "gives a vector for each token instead. Memory does not grow with the file.");
  app->examples(
      "attend embed minilm sentences.txt -o vectors.npy\n"
      "attend embed e5 - --prompt \"passage: \" -o vectors.npy < sentences.txt");
  auto arguments = std::make_shared<EmbedArguments>();
  app->add_option("MODEL", arguments->model, "A folder, a .gguf file, or a name from attend model --list")
      ->type_name("FILE")
      ->required();
  app->add_option("FILE", arguments->file, "A text file with a sentence on each line; - reads standard input")
      ->type_name("FILE")
      ->required();
  file_ending(app->add_option("-o,--output", arguments->output,
                              "Write the vectors to FILE, f32, a row for each line. A ColBERT writes a row for each "
                              "token, and beside x.npy a file x.starts.npy that says where each line begins"),
              {".npy"})
      ->required();
  add_model_options(*app, arguments->load, arguments->prompt);
  app->add_flag("--normalize", arguments->normalize, "Scale the vectors to length 1, if the model does not");
  return {app, [arguments] { run_embed(*arguments); }};
}

Command add_near(App& root) {
  App* app = root.add_subcommand("near",
                                 "Show the lines of a file that are nearest to a text, by the vectors that attend "
                                 "embed made from them. Nearest is by cosine, with a ColBERT by MaxSim.");
  app->examples(
      "attend near vectors.npy sentences.txt minilm \"a cat on a mat\" -k 5\n"
      "attend near v.npy lines.txt minilm \"who wrote Faust?\" --rerank ms-marco-MiniLM\n"
      "attend near vectors.npy sentences.txt minilm \"a cat on a mat\" --json");
  auto arguments = std::make_shared<NearArguments>();
  app->add_option("VECTORS", arguments->vectors, "The .npy file that attend embed wrote")
      ->type_name("FILE")
      ->required();
  app->add_option("FILE", arguments->file, "The text file that the vectors were made from")
      ->type_name("FILE")
      ->required();
  app->add_option("MODEL", arguments->model, "The model that made the vectors")->type_name("FILE")->required();
  app->add_option("QUERY", arguments->query, "The text, in quotes")->required();
  whole_number(app->add_option("-k,--count", arguments->count, "How many lines to show (default: 10)"), 1, 1 << 20);
  app->add_option("--rerank", arguments->rerank,
                  "Score the nearest lines with this reranker, a model whose head has one label, and show those that "
                  "answer best")
      ->type_name("MODEL");
  whole_number(app->add_option("--candidates", arguments->candidates,
                               "With --rerank: how many of the nearest lines the reranker reads (default: 100)"),
               1, 1 << 20);
  add_model_options(*app, arguments->load, arguments->prompt);
  app->add_flag("--json", arguments->json, "Print one JSON object instead of the text");
  add_text_form(*app, arguments->form);
  return {app, [arguments] { run_near(*arguments); }};
}

}  // namespace attend::cli
