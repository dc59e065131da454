#include "models/tasks/logit_score.h"

#include <algorithm>
#include <string>
#include <vector>

#include "core/message.h"
#include "models/sentences/keys.h"
#include "models/sentences/module_files.h"

namespace attend::inline v1::models {

namespace {

namespace fs = std::filesystem;

constexpr const char* logit_score_function = "Model.load";

// Whether a module of that class is there. What else is wrong with the file, embed() says: a decoder needs none of it.
bool names_logit_score(const fs::path& list) {
  if (!is_there(list)) return false;
  try {
    const JsonFile file = read_json(logit_score_function, list);
    return std::ranges::any_of(file.root().list(), [](const Member& each) {
      return each.given("type") && each["type"].text().ends_with(".LogitScore");
    });
  } catch (const Error&) {
    return false;
  }
}

std::int64_t read_token(const Member& config, const char* key, std::int64_t vocabulary) {
  return config[key].whole(0, vocabulary - 1);
}

}  // namespace

std::optional<LogitScore> read_logit_score(const fs::path& folder, std::int64_t vocabulary) {
  const fs::path list = folder / "modules.json";
  if (!names_logit_score(list)) return std::nullopt;
  const JsonFile all = read_json(logit_score_function, list);
  const std::vector<ModuleEntry> modules = followed_entries(all.root());
  std::vector<std::string> names;
  names.reserve(modules.size());
  for (const ModuleEntry& each : modules) names.push_back(each.name());
  if (names != std::vector<std::string>{"Transformer", "LogitScore"})
    fail(ErrorCode::bad_file, logit_score_function, "{}: {} are not known here together; Transformer, LogitScore are",
         quote(list.string()), fmt::join(names, ", "));
  const JsonFile file = read_json(logit_score_function, folder / modules[1].path() / "config.json");
  const Member config = file.object();
  config.only({"true_token_id", "false_token_id", "module_input_name"});
  only_value(config, "module_input_name", "causal_logits");
  LogitScore score{read_token(config, "true_token_id", vocabulary)};
  if (config.given("false_token_id")) score.no = read_token(config, "false_token_id", vocabulary);
  return score;
}

TaskHead head_of(const LogitScore& score, const Output& output) {
  if (output.softcap > 0)
    fail(ErrorCode::bad_file, logit_score_function,
         "a LogitScore of a model whose logits have a softcap is not known here");
  const Linear& layer = output.layer;
  std::vector<double> sums(static_cast<std::size_t>(layer.in_size()) + 1);  // of the weight, and of the bias
  const auto add = [&](std::int64_t token, double factor) {
    const Tensor row = layer.weight_rows(token, token + 1);
    for (std::int64_t e = 0; e < row.count(); ++e)
      sums[static_cast<std::size_t>(e)] += factor * static_cast<double>(row.data<float>()[e]);
    if (layer.bias()) sums.back() += factor * static_cast<double>(layer.bias()->data<float>()[token]);
  };
  add(score.yes, output.scale);
  if (score.no) add(*score.no, -output.scale);
  Tensor weight({1, layer.in_size()}), bias({1});
  std::transform(sums.begin(), sums.end() - 1, weight.data<float>(),
                 [](double sum) { return static_cast<float>(sum); });
  bias.data<float>()[0] = static_cast<float>(sums.back());
  return {.task = ModelTask::classify, .reads = TaskHead::Reads::last, .output = Linear(weight, bias.view())};
}

}  // namespace attend::inline v1::models
