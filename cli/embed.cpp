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
#include "attend/models.h"
#include "attend/vectors.h"
#include "cli/command.h"
#include "cli/model.h"
#include "cli/terminal.h"

namespace attend::cli {
namespace {

// ---- Lines ----

// Lines of a file, or of standard input, one after another. A line end at the end of all is none of a line's.
class Lines {
 public:
  explicit Lines(const std::string& file) : name_(file == "-" ? "standard input" : file) {
    if (file == "-") return;
    file_.open(file, std::ios::binary);
    std::error_code error;
    const auto size = std::filesystem::file_size(file, error);
    if (!file_.is_open() || std::filesystem::is_directory(file))
      throw Error(ErrorCode::bad_file, "", fmt::format("'{}' can't be read", file));
    if (!error) size_ = static_cast<double>(size);
  }

  // False: there are no more.
  bool next(std::string& line) {
    std::istream& from = file_.is_open() ? file_ : std::cin;
    if (!std::getline(from, line)) {
      if (from.bad()) throw Error(ErrorCode::bad_file, "", fmt::format("{}: can't be read", name_));
      return false;
    }
    read_ += static_cast<double>(line.size() + 1);
    if (line.ends_with('\r')) line.pop_back();
    return true;
  }
  // How much has been read of it, from 0 to 1; none where that is not known.
  std::optional<double> share() const { return size_ > 0 ? std::optional(std::min(1.0, read_ / size_)) : std::nullopt; }

 private:
  std::string name_;
  std::ifstream file_;
  double size_ = 0, read_ = 0;
};

// What the library says of sentences[3] is of a line, counted from 1, of those that came before it too.
[[noreturn]] void fail_for_line(const Error& error, std::int64_t before) {
  constexpr std::string_view begin = "sentences[";
  const std::string_view detail = error.detail();
  std::int64_t place = 0;
  if (!detail.starts_with(begin)) throw Error(error);
  const auto end = std::from_chars(detail.data() + begin.size(), detail.data() + detail.size(), place).ptr;
  throw Error(error.code(), "", fmt::format("line {}{}", before + place + 1, std::string_view(end + 1, detail.end())));
}

// ---- embed ----

struct EmbedArguments {
  std::string model, file, output, dtype;
  std::optional<std::string> prompt;
  bool normalize = false;
};

// A row of the writer for each line. How many lines were too long, and cut.
std::int64_t embed_lines(const Model& model, EmbedOptions options, Lines& lines, VectorWriter& writer) {
  constexpr std::size_t most_lines = 1 << 12, most_bytes = 1 << 20;  // in memory at once
  Progress progress;
  const std::function<void(double)> told = progress.stage();
  const std::function<void(std::int64_t)> counted = progress.count("lines");
  std::int64_t cut = 0;
  double done = 0;  // of the file
  for (bool more = true; more;) {
    std::vector<std::string> sentences;
    std::size_t bytes = 0;
    std::string line;
    while (sentences.size() < most_lines && bytes < most_bytes && (more = lines.next(line))) {
      bytes += line.size();
      sentences.push_back(std::move(line));
    }
    const std::optional<double> read = lines.share();
    if (told && read) options.progress = [&, before = done](double part) { told(before + (*read - before) * part); };
    if (counted && !read)
      options.progress = [&](double part) {
        counted(writer.rows() + std::llround(part * static_cast<double>(sentences.size())));
      };
    done = read.value_or(0);
    try {
      const Embeddings made = model.embed(sentences, options);
      cut += made.cut;
      writing([&] { writer.add(made.vectors); });
    } catch (const Error& error) {
      fail_for_line(error, writer.rows());
    }
  }
  return cut;
}

void run_embed(const EmbedArguments& arguments) {
  const Model model = Model::load(find_model(arguments.model), model_options(arguments.dtype));
  EmbedOptions options{.prompt = arguments.prompt, .progress = {}};
  if (arguments.normalize) options.normalize = true;
  (void)model.embed(std::vector<std::string>{}, options);  // what is wrong with it is said before anything is read
  Lines lines(arguments.file);
  std::optional<VectorWriter> writer;
  writing([&] { writer.emplace(arguments.output, model.info().vector_size); });
  const std::int64_t cut = embed_lines(model, options, lines, *writer);
  writing([&] { writer->commit(); });
  const std::string of_cut =
      cut > 0 ? fmt::format("; {} of the lines were longer than {} tokens, and cut", cut, model.info().max_seq_length)
              : "";
  tell(fmt::format("attend: wrote {}: {} vectors of {} numbers{}", arguments.output, writer->rows(),
                   model.info().vector_size, of_cut));
}

// ---- near ----

struct NearArguments {
  std::string vectors, file, model, query, dtype;
  std::optional<std::string> prompt;
  std::int64_t count = 10;
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
                fmt::format("'{}' has {} lines, and '{}' {} rows: they don't belong together", arguments.file, count,
                            arguments.vectors, rows));
  return found;
}

void run_near(const NearArguments& arguments) {
  const VectorFile file(arguments.vectors);
  const Model model = Model::load(find_model(arguments.model), model_options(arguments.dtype));
  const Embeddings query =
      model.embed(std::vector<std::string>{arguments.query}, {.prompt = arguments.prompt, .progress = {}});
  if (file.rows().size(1) != query.vectors.size(1))
    throw Error(ErrorCode::bad_file, "",
                fmt::format("'{}' has vectors of {} numbers, and {} makes {}: they don't belong together",
                            arguments.vectors, file.rows().size(1), arguments.model, query.vectors.size(1)));
  const std::vector<Near> nearest = file.nearest(query.vectors.view().select(0, 0), arguments.count);
  const std::vector<std::string> lines = lines_at(arguments, file.rows().size(0), nearest);
  if (arguments.json) {
    nlohmann::ordered_json report = {{"schema_version", 1}, {"nearest", nlohmann::ordered_json::array()}};
    for (std::size_t n = 0; n < nearest.size(); ++n)
      report["nearest"].push_back(
          {{"line", nearest[n].row + 1}, {"similarity", nearest[n].similarity}, {"text", lines[n]}});
    return print(json_text(report));
  }
  const auto room = static_cast<std::size_t>(std::max(20, style_of(arguments.form).width - 18));
  std::vector<Column> columns = {{"cosine"}, {"line"}, {"text", true}};
  for (std::size_t n = 0; n < nearest.size(); ++n) {
    std::string text = printable(lines[n]);
    if (columns_of(text) > room) text = fmt::format("{:.{}}…", text, room - 1);
    add_line(columns, {fmt::format("{:.4f}", nearest[n].similarity), fmt::format("{}", nearest[n].row + 1), text});
  }
  print(fmt::format("{}\n", fmt::join(lines_of(columns), "\n")));
}

void add_model_options(App& app, std::string& dtype, std::optional<std::string>& prompt) {
  app.add_option("--prompt", prompt,
                 "What stands before each text: the name of one of the model's prompts (query, document, ...), or a "
                 "text (the model's own, if it has one)")
      ->type_name("NAME|TEXT");
  add_dtype(app, dtype);
}

}  // namespace

Command add_embed(App& root) {
  App* app = root.add_subcommand(
      "embed",
      "Make a vector of each line of a file, as sentence-transformers does. Memory does not grow with the file.");
  app->examples(
      "attend embed minilm sentences.txt -o vectors.npy\n"
      "attend embed e5 - --prompt \"passage: \" -o vectors.npy < sentences.txt");
  auto arguments = std::make_shared<EmbedArguments>();
  app->add_option("MODEL", arguments->model, "A folder, a .gguf file, or a name that attend model --list says")
      ->type_name("FILE")
      ->required();
  app->add_option("FILE", arguments->file, "A text file, a sentence on each line; - for standard input")
      ->type_name("FILE")
      ->required();
  file_ending(app->add_option("-o,--output", arguments->output, "Write the vectors to FILE: a row for each line, f32"),
              {".npy"})
      ->required();
  add_model_options(*app, arguments->dtype, arguments->prompt);
  app->add_flag("--normalize", arguments->normalize, "Scale the vectors to length 1, if the model does not");
  return {app, [arguments] { run_embed(*arguments); }};
}

Command add_near(App& root) {
  App* app = root.add_subcommand(
      "near", "Show the lines of a file that are nearest to a text, by the vectors that attend embed made of them.");
  app->examples(
      "attend near vectors.npy sentences.txt minilm \"a cat on a mat\" -k 5\n"
      "attend near vectors.npy sentences.txt minilm \"a cat on a mat\" --json");
  auto arguments = std::make_shared<NearArguments>();
  app->add_option("VECTORS", arguments->vectors, "What attend embed wrote: an .npy file with a row for each line")
      ->type_name("FILE")
      ->required();
  app->add_option("FILE", arguments->file, "The text file that it was made of")->type_name("FILE")->required();
  app->add_option("MODEL", arguments->model, "The model that it was made with")->type_name("FILE")->required();
  app->add_option("QUERY", arguments->query, "The text, in quotes")->required();
  whole_number(app->add_option("-k,--count", arguments->count, "How many lines (10)"), 1, 1 << 20);
  add_model_options(*app, arguments->dtype, arguments->prompt);
  app->add_flag("--json", arguments->json, "Print one JSON object instead");
  add_text_form(*app, arguments->form);
  return {app, [arguments] { run_near(*arguments); }};
}

}  // namespace attend::cli
