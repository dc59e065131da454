#include "models/sentences/text_rules.h"

#include <algorithm>
#include <cctype>
#include <limits>
#include <vector>

#include "models/sentences/keys.h"

namespace attend::inline v1::models {

namespace fs = std::filesystem;

namespace {

// What changes neither ids nor numbers, of arguments for Transformers' classes.
void check_arguments(const Member& config, const char* key, std::initializer_list<std::string_view> known) {
  if (config.given(key)) config[key].only(known);
}

// A length in tokens; none where it is so large that it means no limit.
std::optional<std::int64_t> read_length(const Member& from, const char* key) {
  if (!from.given(key)) return std::nullopt;
  const double length = from[key].number();
  if (!(length >= 1)) from[key].refuse("a number of tokens");
  if (length > 1e9) return std::nullopt;
  return static_cast<std::int64_t>(length);
}

void read_side(const Member& from, TextRules& to) {
  const std::string side = text_or(from, "truncation_side", to.cuts_begin ? "left" : "right");
  if (side != "left" && side != "right") from["truncation_side"].refuse("left or right");
  to.cuts_begin = side == "left";
}

// What its file calls it.
struct Transformer {
  const char *task, *gives, *output;
};
constexpr Transformer transformers[] = {{"feature-extraction", "token_embeddings", "last_hidden_state"},
                                        {"sequence-classification", "scores", "logits"},
                                        {"fill-mask", "token_embeddings", "logits"},
                                        {"text-generation", "causal_logits", "logits"}};

// The arguments of sentence-transformers' class Transformer.
void read_transformer(const Member& config, Gives gives, std::optional<std::int64_t>& length, TextRules& to) {
  const Transformer& is = transformers[static_cast<std::size_t>(gives)];
  config.only({"max_seq_length", "do_lower_case", "tokenizer_name_or_path", "model_args", "model_kwargs", "config_args",
               "config_kwargs", "tokenizer_args", "processor_kwargs", "processing_kwargs", "backend",
               "transformer_task", "modality_config", "module_output_name", "unpad_inputs", "query_length",
               "document_length", "query_expansion"});
  to.lower_case = truth_or(config, "do_lower_case", false);
  if (config.given("tokenizer_name_or_path")) refuse_value(config["tokenizer_name_or_path"], "null is");
  for (const char* key : {"model_args", "model_kwargs"})
    check_arguments(config, key, {"trust_remote_code", "attn_implementation", "dtype", "torch_dtype", "device_map"});
  for (const char* key : {"config_args", "config_kwargs"}) check_arguments(config, key, {"trust_remote_code"});
  check_arguments(config, "processing_kwargs", {});
  only_value(config, "transformer_task", is.task);
  only_value(config, "module_output_name", is.gives);
  // Of a decoder it must say whether texts go through the chat template.
  if (config.given("modality_config") || gives == Gives::next_words) {
    const Member modalities = config["modality_config"];
    only_value(modalities["text"], "method", "forward");
    only_value(modalities["text"], "method_output_name", is.output);
    to.chats = modalities.has("message");
    if (to.chats) only_value(modalities["message"], "format", "flat");
  }
  for (const char* key : {"processor_kwargs", "tokenizer_args"}) {
    check_arguments(config, key,
                    {"trust_remote_code", "use_fast", "padding_side", "truncation_side", "model_max_length"});
    if (!config.given(key)) continue;
    read_side(config[key], to);
    if (config[key].given("model_max_length")) {
      length = read_length(config[key], "model_max_length").value_or(std::numeric_limits<std::int64_t>::max());
      return;
    }
  }
  if (const auto given = read_length(config, "max_seq_length")) length = given;
}

// What Transformers' tokenizer cuts at, and where.
std::optional<std::int64_t> read_tokenizer(std::string_view function, const fs::path& folder, TextRules& to) {
  read_if_there(function, folder / "tokenizer.json", [&](const Member& file) {
    if (!file.given("truncation")) return;
    to.cuts_begin = text_or(file["truncation"], "direction", "Right") == "Left";
  });
  std::optional<std::int64_t> length;
  read_if_there(function, folder / "tokenizer_config.json", [&](const Member& config) {
    length = read_length(config, config.has("model_max_length") ? "model_max_length" : "max_len");
    read_side(config, to);
  });
  return length;
}

}  // namespace

void read_lengths(std::string_view function, const fs::path& folder, bool has_modules, Gives gives,
                  std::int64_t longest, TextRules& to) {
  std::optional<std::int64_t> length = read_tokenizer(function, folder, to);
  constexpr const char* names[] = {"bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet"};
  bool said = !has_modules;
  for (auto name = std::begin(names); name != std::end(names) && !said; ++name) {
    read_if_there(function, folder / fmt::format("sentence_{}_config.json", *name), [&](const Member& config) {
      said = !config.value().empty();
      read_transformer(config, gives, length, to);
    });
  }
  if (gives == Gives::next_words && !said)
    fail(ErrorCode::bad_file, function, "{} has no sentence_bert_config.json, which says how pairs become text",
         quote(folder.string()));
  to.max_tokens = std::min(length.value_or(longest), longest);
}

void read_prompts(const Member& config, std::string_view kind, TextRules& to) {
  only_value(config, "model_type", std::string(kind).c_str());
  if (config.given("prompts")) {
    const Member prompts = config["prompts"];
    if (!prompts.value().is_object()) prompts.refuse("an object");
    for (const auto& [name, value] : prompts.value().items())
      to.prompts[name] = value.is_null() ? "" : prompts[name.c_str()].text();
  }
  if (!config.given("default_prompt_name")) return;
  const auto found = to.prompts.find(config["default_prompt_name"].text());
  if (found == to.prompts.end()) config["default_prompt_name"].refuse("the name of one of the prompts");
  to.default_prompt = found->second;
}

std::string special_token(const Member& config, const char* key) {
  if (!config.given(key)) return "";
  const Member said = config[key];
  return said.value().is_object() ? said["content"].text() : said.text();
}

// A word alone is a name that was mistyped: as a text it would run into the sentence.
std::string prompt_text(std::string_view function, const TextRules& rules, const std::optional<std::string>& given) {
  if (!given) return rules.default_prompt;
  if (const auto found = rules.prompts.find(*given); found != rules.prompts.end()) return found->second;
  const auto in_name = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '-'; };
  if (given->empty() || !std::ranges::all_of(*given, in_name)) return *given;
  std::vector<std::string> names;
  names.reserve(rules.prompts.size());
  for (const auto& [name, text] : rules.prompts) names.push_back(quote(name));
  fail(ErrorCode::bad_value, function,
       "prompt {} is not one of the model's ({}); to put a text before each sentence, end it with a space or a mark",
       quote(*given), fmt::join(names, ", "));
}

}  // namespace attend::inline v1::models
