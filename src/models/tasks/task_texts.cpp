#include "models/tasks/task_texts.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "core/message.h"
#include "models/sentences/keys.h"

namespace attend::inline v1 {

namespace {

namespace fs = std::filesystem;

constexpr const char* reading = "Model";  // what messages of the folder's files begin with

constexpr ScoreFunction all_functions[] = {ScoreFunction::none, ScoreFunction::sigmoid, ScoreFunction::softmax};

// The path of a class of torch.nn.
ScoreFunction read_function(const Member& of) {
  const std::string path = of.text(), name = path.substr(path.rfind('.') + 1);
  if (path.starts_with("torch.nn.") && name == "Identity") return ScoreFunction::none;
  if (path.starts_with("torch.nn.") && name == "Sigmoid") return ScoreFunction::sigmoid;
  models::refuse_value(of, "Identity and Sigmoid of torch.nn are");
}

// As CrossEncoder looks for it: in its own file, then in config.json under two names.
std::optional<ScoreFunction> read_rank_function(const Member& config) {
  if (config.given("sentence_transformers")) {
    const Member own = config["sentence_transformers"];
    if (own.value().is_object() && own.given("activation_fn")) return read_function(own["activation_fn"]);
  }
  constexpr const char* older = "sbert_ce_default_activation_function";
  return config.given(older) ? std::optional(read_function(config[older])) : std::nullopt;
}

// Whether Transformers gives the model token_type_ids: as model_input_names says, or as the tokenizer's class has it,
// which the model's type stands for where none is named.
bool reads_types(const Member& tokenizer, const Member& config) {
  if (!config.given("type_vocab_size")) return false;
  if (tokenizer.given("model_input_names")) {
    const std::vector<std::string> names = tokenizer["model_input_names"].texts();
    return std::ranges::find(names, "token_type_ids") != names.end();
  }
  const std::string type = config["model_type"].text();
  if (!tokenizer.given("tokenizer_class")) return type == "bert" || type == "electra";
  const std::string name = tokenizer["tokenizer_class"].text();
  return name.starts_with("BertTokenizer") || name.starts_with("ElectraTokenizer");
}

void read_tokenizer_config(const Member& tokenizer, const Member& config, models::TaskTexts& to) {
  to.types = reads_types(tokenizer, config);
  to.mask = models::special_token(tokenizer, "mask_token");
}

}  // namespace

std::string_view name_of(ScoreFunction function) {
  constexpr std::string_view names[] = {"none", "sigmoid", "softmax"};
  if (const auto n = static_cast<std::size_t>(function); n < std::size(names)) return names[n];
  fail(ErrorCode::bad_value, "name_of", "there is no score function {}", static_cast<int>(function));
}

std::span<const ScoreFunction> score_functions() {
  return all_functions;
}

namespace models {

TaskTexts read_task_texts(const fs::path& folder, const Member& config, bool of_logits, ModelTask task,
                          std::int64_t longest) {
  const bool fills = task == ModelTask::fill;
  TaskTexts texts;
  const fs::path inside = transformer_folder(folder);
  texts.rank_function = read_rank_function(config);
  const nlohmann::json none = nlohmann::json::object();
  read_tokenizer_config({config.place(), none}, config, texts);
  read_if_there(reading, inside / "tokenizer_config.json",
                [&](const Member& tokenizer) { read_tokenizer_config(tokenizer, config, texts); });
  const Gives gives = of_logits ? Gives::next_words : fills ? Gives::word_scores : Gives::class_scores;
  read_lengths(reading, inside, is_there(folder / "modules.json"), gives, longest, texts);
  read_if_there(reading, folder / "config_sentence_transformers.json", [&](const Member& own) {
    read_prompts(own, fills ? "SparseEncoder" : "CrossEncoder", texts);
    if (own.given("activation_fn")) texts.rank_function = read_function(own["activation_fn"]);
  });
  return texts;
}

namespace {

const Model::Parts& checked_parts(std::string_view function, const Model& model, ModelTask task) {
  const Model::Parts& parts = ModelAccess::parts(model);
  const ModelInfo& info = parts.info;
  if (!parts.head)
    fail(ErrorCode::bad_value, function, "expected a model with a head for {}, and this one of type {} has {}",
         name_of(task), info.type, info.head.empty() ? "none" : fmt::format("one for {}, not known here", info.head));
  if (parts.head->task != task)
    fail(ErrorCode::bad_value, function, "expected a model with a head for {}, and this one's is for {}: {}",
         name_of(task), name_of(parts.head->task), info.head);
  if (parts.texts_error) throw Error(*parts.texts_error);
  return parts;
}

TaskTexts with(TaskTexts rules, std::string_view function, const TaskOptions& options) {
  if (!options.max_tokens) return rules;
  if (*options.max_tokens < 1)
    fail(ErrorCode::bad_value, function, "max_tokens is {}, expected 1 or more", *options.max_tokens);
  rules.max_tokens = std::min(rules.max_tokens, *options.max_tokens);
  return rules;
}

}  // namespace

TaskRun::TaskRun(std::string_view function, std::string_view name, const Model& model, ModelTask task,
                 const TaskOptions& options)
    : function_(function),
      name_(name),
      model_(model),
      parts_(checked_parts(function, model, task)),
      options_(options),
      rules_(with(*parts_.texts, function, options)),
      tokenizer_((parts_.of_texts ? parts_.of_texts : parts_.tokenizer)->get()) {}

Encoding TaskRun::chat(const TaskText& text, const std::string& prompt) const {
  if (!text.second)
    fail(ErrorCode::bad_value, function_, "expected a pair: the chat template has a query and a document");
  std::vector<Message> said;
  if (!prompt.empty()) said.push_back({"system", prompt});
  said.push_back({"query", std::string(text.text)});
  said.push_back({"document", std::string(*text.second)});
  return tokenizer_.encode(tokenizer_.chat(said, false), false);
}

// What the model reads its answer behind stands at the template's end, and is written over what a text was cut to. As
// sentence-transformers finds it: the tokens in which what is said of other texts ends.
void TaskRun::keep_end_of_template(Encoding& cut, const std::string& prompt) const {
  const Encoding one = chat({"0", "0"}, prompt), other = chat({"1 2 3 4", "1 2 3 4"}, prompt);
  const auto same =
      std::mismatch(one.ids.rbegin(), one.ids.rend(), other.ids.rbegin(), other.ids.rend()).first - one.ids.rbegin();
  if (same == std::min(std::ssize(one.ids), std::ssize(other.ids))) return;
  const auto kept = std::min(same, std::ssize(cut.ids));
  std::copy(one.ids.end() - kept, one.ids.end(), cut.ids.end() - kept);
}

Encoding TaskRun::whole(const TaskText& text, const std::string& prompt) const {
  if (rules_.chats) return chat(text, prompt);
  const std::string asked = prompt + std::string(text.text);
  return text.second ? tokenizer_.encode_pair(asked, *text.second) : tokenizer_.encode(asked);
}

Encoding TaskRun::encode(std::size_t n, const TaskText& text, bool& cut, const std::string& prompt) const {
  try {
    Encoding all = embedded(whole(text, prompt), tokenizer_, model_.info());
    const std::int64_t count = std::ssize(all.ids);
    all = cut_encoding(std::move(all), rules_.max_tokens, rules_.cuts_begin);
    cut = std::ssize(all.ids) < count;
    if (all.ids.empty()) fail(ErrorCode::bad_value, function_, "has no tokens");
    if (cut && !options_.truncate)
      fail(ErrorCode::bad_value, function_, "has {} tokens, the model takes {}", count, rules_.max_tokens);
    if (cut && rules_.chats) keep_end_of_template(all, prompt);
    if (!rules_.types) std::fill(all.types.begin(), all.types.end(), 0);
    return all;
  } catch (const Error& error) {
    fail(error.code(), function_, "{}[{}]: {}", name_, n, error.detail());
  }
}

void apply(ScoreFunction function, Tensor& x) {
  const std::int64_t columns = x.size(1);
  float* values = x.data<float>();
  if (function == ScoreFunction::sigmoid)
    std::transform(values, values + x.count(), values,
                   [](float v) { return static_cast<float>(1 / (1 + std::exp(-static_cast<double>(v)))); });
  if (function != ScoreFunction::softmax) return;
  for (float* row = values; row != values + x.count(); row += columns) {
    const double most = static_cast<double>(*std::max_element(row, row + columns));
    double sum = 0;
    for (std::int64_t c = 0; c < columns; ++c) sum += std::exp(static_cast<double>(row[c]) - most);
    for (std::int64_t c = 0; c < columns; ++c)
      row[c] = static_cast<float>(std::exp(static_cast<double>(row[c]) - most) / sum);
  }
}

}  // namespace models

}  // namespace attend::inline v1
