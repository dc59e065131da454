// How a text becomes ids, as the tokenizer's files and those of sentence-transformers say.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "io/json_member.h"

namespace attend::inline v1::models {

struct TextRules {
  std::int64_t max_tokens = 0;  // what the tokenizer adds included; more are cut
  bool cuts_begin = false;      // instead of the end
  bool lower_case = false;      // before the tokenizer's own normalisers
  bool chats = false;           // sentence-transformers renders them with the chat template
  std::map<std::string, std::string> prompts = {};
  std::string default_prompt = {};  // the text
};

// What the Transformer of a modules.json gives.
enum class Gives : std::uint8_t { hidden_states, class_scores, word_scores, next_words };
// Of the folder that has the tokenizer's files. has_modules: a modules.json names it, whose Transformer has a file
// beside them. longest: tokens that the model takes.
void read_lengths(std::string_view function, const std::filesystem::path& folder, bool has_modules, Gives gives,
                  std::int64_t longest, TextRules& to);
// Of config_sentence_transformers.json, of a model of that kind: "SentenceTransformer", "CrossEncoder", ...
void read_prompts(const Member& config, std::string_view kind, TextRules& to);
// A token that tokenizer_config.json names by a key, "mask_token", as text or with its settings; "": it does not.
std::string special_token(const Member& config, const char* key);
// What stands before each text: that prompt of the folder's, or that text; none: its default prompt. Throws bad_value.
std::string prompt_text(std::string_view function, const TextRules& rules, const std::optional<std::string>& given);

}  // namespace attend::inline v1::models
