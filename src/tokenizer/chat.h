// Messages as the text that a model was trained on: its chat template, where it is one of those that are known here.
#pragma once

#include <span>

#include "attend/tokenizer.h"
#include "core/message.h"

namespace attend::inline v1::tokenizer {

// What a template has to work with.
struct Conversation {
  std::span<const Message> messages;
  bool prompt;  // with the beginning of an answer
  const std::optional<std::string>&bos, &eos;
};

struct Chat {
  // No function: there is no template, or it is not known, and `why_not` says it.
  std::string (*render)(const Conversation&) = nullptr;
  bool of_pairs = false;  // its messages are a query and a document, and what the system says of them
  std::optional<Error> why_not = {};
  std::optional<std::string> bos = {}, eos = {};
  std::optional<std::string> text = {};  // of the template, known or not
};

// By the template's own text, in the language of Jinja.
Chat recognize_chat(const Place& place, std::string_view chat_template);
// Of a folder: chat_template.jinja, or what tokenizer_config.json says. What is wrong there is said by chat() alone.
Chat read_chat(const std::filesystem::path& folder);

}  // namespace attend::inline v1::tokenizer
