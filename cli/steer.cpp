// steer: pairs of texts to a direction that a model is steered by.
#include "attend/steering.h"

#include <fmt/format.h>

#include <charconv>
#include <memory>
#include <sstream>

#include "cli/command.h"
#include "cli/model.h"
#include "cli/terminal.h"

namespace attend::cli {
namespace {

struct SteerArguments {
  std::string model, pairs, output, layers, method = "mean";
  LoadArguments load;
};

// A line each: what it is to say, a tab, and what it is not to.
std::vector<TextPair> read_pairs(const std::string& file) {
  std::vector<TextPair> pairs;
  std::istringstream lines(file == "-" ? read_stdin() : read_text(file));
  std::int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.empty()) continue;
    const std::size_t tab = line.find('\t');
    if (tab == std::string::npos || tab == 0 || tab + 1 == line.size() || line.find('\t', tab + 1) != std::string::npos)
      throw Failure(fmt::format("{}, line {}: expected two texts with a tab between them", file, number));
    pairs.emplace_back(line.substr(0, tab), line.substr(tab + 1));
  }
  if (pairs.empty()) throw Failure(fmt::format("{} has no pairs of texts", file));
  return pairs;
}

// "10-20", or one layer.
void read_layers(const std::string& given, SteeringOptions& options) {
  if (given.empty()) return;
  const auto number = [&](std::string_view text) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || text.empty())
      throw UsageError(fmt::format("--layers: expected a layer or two with a dash, such as 10-20, got '{}'", given));
    return value;
  };
  const std::size_t dash = given.find('-');
  options.first = number(std::string_view(given).substr(0, dash));
  options.last = dash == std::string::npos ? options.first : number(std::string_view(given).substr(dash + 1));
}

void run(const SteerArguments& x) {
  Progress progress;
  SteeringOptions options{.progress = progress.stage()};
  if (x.method == "principal") options.method = SteeringOptions::Method::principal;
  read_layers(x.layers, options);
  const std::vector<TextPair> pairs = read_pairs(x.pairs);
  const Model model = Model::load(find_model(x.model), model_options(x.load));
  const Steering made = make_steering(model, pairs, options);
  writing([&] { made.save(x.output); });
  tell(fmt::format("attend: wrote {}: {} pairs, layers {} to {}", x.output, pairs.size(),
                   made.directions.begin()->first, made.directions.rbegin()->first));
}

}  // namespace

Command add_steer(App& root) {
  App* app = root.add_subcommand(
      "steer",
      "Find the direction in a decoder's stream that tells one kind of text from another, from pairs of texts. attend "
      "model --steer and llama.cpp's --control-vector add that direction while the model writes.");
  app->examples(
      "attend steer smollm2 pairs.tsv -o calm.gguf\n"
      "attend steer smollm2 pairs.tsv -o calm.gguf --layers 10-20 --method principal\n"
      "attend model smollm2 \"The meeting was\" --steer calm.gguf:0.8 --generate 40");
  auto arguments = std::make_shared<SteerArguments>();
  app->add_option("MODEL", arguments->model, "A folder, a .gguf file, or a name from attend model --list")
      ->type_name("FILE")
      ->required();
  app->add_option("PAIRS", arguments->pairs,
                  "A text file with a pair on each line: a text to be more like, a tab, and a text to be less like; - "
                  "reads standard input")
      ->type_name("FILE")
      ->required();
  file_ending(app->add_option("-o,--output", arguments->output, "The file to write"), {".gguf"})->required();
  choose_one(app->add_option("--method", arguments->method,
                             "Take the differences between the two texts' streams at their last tokens: their mean, or "
                             "their first principal component (default: mean)"),
             "mean|principal");
  app->add_option("--layers", arguments->layers, "Only these layers (default: all but layer 0)")
      ->type_name("FIRST-LAST");
  add_dtype(*app, arguments->load);
  return {app, [arguments] { run(*arguments); }};
}

}  // namespace attend::cli
