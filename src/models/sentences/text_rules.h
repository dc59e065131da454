// How a text becomes ids, as the tokenizer's files and those of sentence-transformers say.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "io/json_member.h"

namespace attend::inline v0::models {

struct TextRules {
  std::int64_t max_tokens = 0;  // what the tokenizer adds included; more are cut
  bool cuts_begin = false;      // instead of the end
  bool lower_case = false;      // before the tokenizer's own normalisers
  bool chats = false;           // sentence-transformers renders them with the chat template
  std::map<std::string, std::string> prompts = {};
  std::string default_prompt = {};  // the text
};

// Of the folder that has the tokenizer's files. has_modules: a modules.json names it, whose Transformer has a file
// beside them. for_task: that gives a task's scores, and no hidden states. longest: tokens that the model takes.
void read_lengths(std::string_view function, const std::filesystem::path& folder, bool has_modules, bool for_task,
                  std::int64_t longest, TextRules& to);
// Of config_sentence_transformers.json, of a model of that kind: "SentenceTransformer", "CrossEncoder".
void read_prompts(const Member& config, const char* kind, TextRules& to);

}  // namespace attend::inline v0::models
