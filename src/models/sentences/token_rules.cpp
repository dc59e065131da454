#include "models/sentences/token_rules.h"

#include <algorithm>
#include <utility>

#include "models/config.h"
#include "models/sentences/keys.h"
#include "models/sentences/module_files.h"

namespace attend::inline v1::models {

namespace {

namespace fs = std::filesystem;

constexpr const char* token_rules_function = "embed_tokens";
constexpr const char* own_config = "config_sentence_transformers.json";

// As string.punctuation of Python has them, which ColBERT leaves out of documents.
std::vector<std::string> punctuation() {
  std::vector<std::string> marks;
  for (const char mark : std::string_view("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")) marks.emplace_back(1, mark);
  return marks;
}

// ---- How a query is filled up ----

QueryExpansion read_expansion(const Member& said) {
  said.only({"strategy", "attend", "token", "length"});
  QueryExpansion made;
  const std::string strategy = said["strategy"].text();
  if (strategy != "fixed" && strategy != "min") refuse_value(said["strategy"], "fixed and min are");
  made.cuts = strategy == "fixed";
  made.attends = truth_or(said, "attend", false);
  made.length = said["length"].whole(1, 1 << 20);
  if (said.given("token")) made.token = said["token"].text();
  return made;
}

// The Transformer's own file, or what PyLate has in config_sentence_transformers.json under the same names.
void read_query(const Member& config, TokenRules& to, std::int64_t longest) {
  if (config.given("document_length")) to.texts.max_tokens = std::min(longest, config["document_length"].whole(1));
  if (config.given("query_length")) to.query_tokens = std::min(longest, config["query_length"].whole(1));
  if (config.has("query_expansion")) to.expansion.reset();
  if (config.given("query_expansion")) to.expansion = read_expansion(config["query_expansion"]);
}

// PyLate's keys, before there was query_expansion: where one of them is there, queries are filled up unless it says no.
void read_pylate(const Member& config, TokenRules& to, std::int64_t longest) {
  const auto has = [&](const char* key) { return config.has(key); };
  const auto names = {
      "query_length",          "document_length", "query_expansion", "do_query_expansion", "attend_to_expansion_tokens",
      "attend_to_mask_tokens", "query_prefix",    "document_prefix", "skiplist_words"};
  if (std::ranges::none_of(names, has)) return;
  read_query(config, to, longest);
  if (config.has("query_expansion")) return;
  if (!truth_or(config, "do_query_expansion", true)) return;
  const char* attends = has("attend_to_expansion_tokens") ? "attend_to_expansion_tokens" : "attend_to_mask_tokens";
  to.expansion.emplace();
  to.expansion->attends = truth_or(config, attends, false);
  if (config.given("query_length")) to.expansion->length = config["query_length"].whole(1, 1 << 20);
}

// A marker stands before the prompt of its role.
void add_marker(const std::string& marker, const char* role, TokenRules& to) {
  std::string& prompt = to.texts.prompts[role];
  if (!prompt.starts_with(marker)) prompt = marker + prompt;
  if (!marker.empty()) to.markers.push_back(marker);
}

// ---- Which tokens have a vector ----

void read_skipped(const Member& config, TokenRules& to) {
  config.only({"skiplist_words", "skiplist_tasks", "keep_only_token_ids"});
  if (config.given("keep_only_token_ids") && !config["keep_only_token_ids"].value().empty())
    refuse_value(config["keep_only_token_ids"], "null is");
  to.skipped = config.given("skiplist_words") ? config["skiplist_words"].texts() : std::vector<std::string>();
  if (!config.given("skiplist_tasks")) return;
  const std::vector<std::string> tasks = config["skiplist_tasks"].texts();
  const auto has = [&](const char* name) { return std::ranges::find(tasks, name) != tasks.end(); };
  to.skips_in_queries = has("query");
  to.skips_in_documents = has("document");
}

// ---- The modules ----

bool normalizes(const TokenRules& rules) {
  return !rules.after.empty() && std::holds_alternative<NormalizeModule>(rules.after.back());
}

void read_modules(const fs::path& folder, const Member& list, TokenRules& to) {
  const std::vector<ModuleEntry> modules = followed_entries(list);
  bool has_mask = false;
  for (std::size_t n = 0; n < modules.size(); ++n) {
    const std::string name = modules[n].name();
    const fs::path inside = folder / modules[n].path();
    if (n == 0) {
      if (name != "Transformer") modules[n].refuse("a Transformer comes first");
    } else if (name == "Dense" && !normalizes(to)) {
      to.after.emplace_back(read_dense(inside, of_tokens, to.vector_size));
    } else if (name == "MultiVectorMask" && !has_mask) {
      has_mask = true;
      read_if_there(token_rules_function, inside / "config.json",
                    [&](const Member& config) { read_skipped(config, to); });
    } else if (name == "Normalize" && !normalizes(to)) {
      to.after.emplace_back(NormalizeModule());
      read_if_there(token_rules_function, inside / "config.json",
                    [](const Member& config) { check_rows(config, of_tokens, of_sentences); });
    } else if (name != "Dropout") {
      modules[n].refuse("Dense, then Normalize, and a MultiVectorMask are, each of token_embeddings");
    }
  }
}

// Whether PyLate's first versions wrote it, which left out punctuation and scaled without modules that say so.
bool read_own_config(const Member& config, std::int64_t longest, TokenRules& to) {
  const std::string type = text_or(config, "model_type", "MultiVectorEncoder");
  if (type != "ColBERT" && type != "MultiVectorEncoder")
    refuse_value(config["model_type"], "ColBERT and MultiVectorEncoder are");
  read_prompts(config, type, to.texts);
  // Other names are of single vectors, and count for nothing.
  if (text_or(config, "similarity_fn_name", "maxsim") == "meanmaxsim")
    refuse_value(config["similarity_fn_name"], "\"maxsim\" is");
  for (const auto& [key, role] : {std::pair("query_prefix", "query"), std::pair("document_prefix", "document")})
    if (config.has(key)) add_marker(text_or(config, key, ""), role, to);
  read_pylate(config, to, longest);
  if (type == "MultiVectorEncoder") return false;
  to.skipped = config.given("skiplist_words") ? config["skiplist_words"].texts() : punctuation();
  return true;
}

// ---- ColBERT's own program ----

void read_metadata(const fs::path& folder, std::int64_t longest, TokenRules& to) {
  const nlohmann::json none = nlohmann::json::object();
  const auto read = [&](const Member& metadata) {
    only_value(metadata, "similarity", "cosine");
    add_marker(text_or(metadata, "query_token_id", "[unused0]") + " ", "query", to);
    add_marker(text_or(metadata, "doc_token_id", "[unused1]") + " ", "document", to);
    if (metadata.given("doc_maxlen")) to.texts.max_tokens = std::min(longest, metadata["doc_maxlen"].whole(1));
    to.expansion.emplace();
    to.expansion->attends = truth_or(metadata, "attend_to_mask_tokens", false);
    if (metadata.given("query_maxlen")) to.expansion->length = metadata["query_maxlen"].whole(1, 1 << 20);
    if (truth_or(metadata, "mask_punctuation", true)) to.skipped = punctuation();
  };
  if (!read_if_there(token_rules_function, folder / "artifact.metadata", read))
    read(Member({token_rules_function, quote((folder / "artifact.metadata").string())}, none));
  to.after.emplace_back(read_projection(folder, to.vector_size));
  to.after.emplace_back(NormalizeModule());
}

void read_tokens(const fs::path& folder, TokenRules& to) {
  read_if_there(token_rules_function, folder / "tokenizer_config.json", [&](const Member& config) {
    to.mask = special_token(config, "mask_token"), to.end = special_token(config, "eos_token");
    if (to.expansion) only_value(config, "padding_side", "right");
  });
}

}  // namespace

const std::string& TokenRules::prompt(TextRole role) const {
  const auto found = texts.prompts.find(std::string(name_of(role)));
  return found == texts.prompts.end() ? texts.default_prompt : found->second;
}

bool has_own_projection(const Member& config) {
  return class_of_model(config) == "HF_ColBERT";
}

VectorKind vector_kind(const fs::path& folder, const Member& config) {
  if (has_own_projection(config)) return VectorKind::token;
  std::string type;
  try {
    read_if_there(token_rules_function, folder / own_config,
                  [&](const Member& own) { type = text_or(own, "model_type", ""); });
  } catch (const Error&) {
    return VectorKind::sentence;  // what reads the whole file says what is wrong
  }
  if (type == "ColBERT" || type == "MultiVectorEncoder") return VectorKind::token;
  return type == "SparseEncoder" ? VectorKind::sparse : VectorKind::sentence;
}

TokenRules read_token_rules(const fs::path& folder, const Member& config, std::int64_t E, std::int64_t longest) {
  const fs::path inside = transformer_folder(folder), list = folder / "modules.json";
  TokenRules made;
  made.vector_size = E;
  made.texts.prompts = {{"query", ""}, {"document", ""}};
  read_lengths(token_rules_function, inside, is_there(list), Gives::hidden_states, longest, made.texts);
  made.query_tokens = made.texts.max_tokens;
  if (has_own_projection(config) && !is_there(list)) {
    read_metadata(folder, longest, made);
  } else {
    if (!is_there(list)) fail_at({token_rules_function, quote(list.string())}, "is missing");
    bool of_pylate = false;
    read_if_there(token_rules_function, folder / own_config,
                  [&](const Member& own) { of_pylate = read_own_config(own, longest, made); });
    // The Transformer's own file counts more than what PyLate wrote.
    read_if_there(token_rules_function, inside / "sentence_bert_config.json",
                  [&](const Member& own) { read_query(own, made, longest); });
    const JsonFile modules = read_json(token_rules_function, list);
    read_modules(folder, modules.root(), made);
    if (of_pylate && !normalizes(made)) made.after.emplace_back(NormalizeModule());
  }
  read_tokens(inside, made);
  if (made.expansion) {
    const std::int64_t length = made.expansion->length;
    made.query_tokens = made.expansion->cuts ? length : std::max(made.query_tokens, length);
  }
  return made;
}

}  // namespace attend::inline v1::models
