// match: which token of a passage each token of a query matched, by a model with a vector for each.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "attend/analysis_look.h"
#include "attend/late_interaction.h"
#include "attend/models.h"
#include "cli/command.h"
#include "cli/model.h"
#include "cli/terminal.h"

namespace attend::cli {
namespace {

using Json = nlohmann::ordered_json;

struct MatchArguments {
  std::string model, query, passage, output;
  LoadArguments load;
  bool json = false;
};

// A text's tokens with their vectors, as they are shown.
struct Side {
  TokenVectors vectors;
  std::vector<std::string> tokens = {};
};
Side side_of(const Model& model, const std::string& text, TextRole role) {
  Side side{embed_tokens(model, text, {.role = role, .progress = {}})};
  const auto texts = model.tokenizer().texts(side.vectors.ids);
  for (std::size_t n = 0; n < texts.size(); ++n)
    side.tokens.push_back(texts[n].value_or(fmt::format("{}", side.vectors.ids[n])));
  return side;
}

std::string match_json(const MaxSim& match, const Side& query, const Side& passage) {
  Json report = {{"schema_version", 1}, {"score", match.score}, {"matches", Json::array()}};
  for (std::size_t q = 0; q < query.tokens.size(); ++q) {
    const auto best = static_cast<std::size_t>(match.best[q]);
    const float* row = match.similarities.data<float>() + q * passage.tokens.size();
    report["matches"].push_back({{"query", query.tokens[q]},
                                 {"passage", passage.tokens[best]},
                                 {"place", match.best[q]},
                                 {"similarity", row[best]}});
  }
  return json_text(report);
}

std::string match_table(const MaxSim& match, const Side& query, const Side& passage) {
  std::vector<Column> columns = {{"similarity"}, {"query", true}, {"passage", true}};
  const auto own = static_cast<std::size_t>(filled_from(query.tokens));
  double sum = 0;
  for (std::size_t q = 0; q < own; ++q) {
    const auto best = static_cast<std::size_t>(match.best[q]);
    const float* row = match.similarities.data<float>() + q * passage.tokens.size();
    sum += static_cast<double>(row[best]);
    add_line(columns, {fmt::format("{:.4f}", row[best]), printable(query.tokens[q]), printable(passage.tokens[best])});
  }
  if (own < query.tokens.size())
    add_line(columns, {fmt::format("{:.4f}", match.score - sum),
                       fmt::format("{} {}", query.tokens.size() - own, printable(query.tokens.back())), "together"});
  return fmt::format("{}\n{:>10.4f}  in all\n", fmt::join(lines_of(columns), "\n"), match.score);
}

void run_match(const MatchArguments& arguments) {
  const Model model = Model::load(find_model(arguments.model), model_options(arguments.load));
  const Side query = side_of(model, arguments.query, TextRole::query),
             passage = side_of(model, arguments.passage, TextRole::document);
  const MaxSim match = max_sim(query.vectors.vectors, passage.vectors.vectors);
  if (!arguments.output.empty()) {
    write_picture(arguments.output, match_picture(match, query.tokens, passage.tokens));
    return tell(fmt::format("attend: wrote {}", arguments.output));
  }
  print(arguments.json ? match_json(match, query, passage) : match_table(match, query, passage));
}

}  // namespace

Command add_match(App& root) {
  App* app = root.add_subcommand("match",
                                 "Show which token of a passage each token of a query matched, and how well the "
                                 "passage answers. The model is a ColBERT, which has a vector for each token.");
  app->examples(
      "attend match colbertv2.0 \"who wrote Faust?\" \"Goethe wrote Faust.\"\n"
      "attend match colbertv2.0 \"who wrote Faust?\" \"Goethe wrote Faust.\" -o match.svg");
  auto arguments = std::make_shared<MatchArguments>();
  app->add_option("MODEL", arguments->model, "The folder of a ColBERT, or its name in a cache")
      ->type_name("FILE")
      ->required();
  app->add_option("QUERY", arguments->query, "The query, in quotes")->required();
  app->add_option("PASSAGE", arguments->passage, "The passage, in quotes")->required();
  file_ending(app->add_option("-o,--output", arguments->output, "Write a picture to FILE, with a line to each match"),
              {".svg", ".png"});
  app->add_flag("--json", arguments->json, "Print one JSON object instead of the text");
  add_load(*app, arguments->load);
  return {app, [arguments] { run_match(*arguments); }};
}

}  // namespace attend::cli
