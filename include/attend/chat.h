// A conversation with a model, which reads what is new of it alone.
//
//   attend::Chat chat(attend::Model::load("smollm2-instruct"), "You answer in one sentence.");
//   fmt::print("{}\n", chat.say("What is the capital of France?"));
//   fmt::print("{}\n", chat.say("And how many people live there?", {.max_new_tokens = 40}));
#pragma once

#ifdef ATTEND_WITHOUT_MODELS
#error "attend was built with ATTEND_MODELS=OFF: it has no chat.h"
#endif

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attend/api.h"
#include "attend/models.h"
#include "attend/tokenizer.h"

namespace attend::inline v0 {

class ATTEND_API Chat {
 public:
  // system: what the model is told before anyone speaks. Throws bad_value for a model that is no decoder alone, and
  // bad_file for one that has no tokenizer, or no chat template that is known (Tokenizer::chat()).
  explicit Chat(Model model, std::optional<std::string> system = {});

  // What the model answers, up to options.max_new_tokens tokens; options.cache must be null. The text of the whole
  // conversation is read as the template has it: what the cache holds of its beginning is not computed again, and the
  // answer is what Model::generate() gives for all of it. Where this throws, the conversation is as it was. Throws
  // bad_value as Model::generate() does, for a conversation that is longer than the model takes too.
  std::string say(std::string_view message, const GenerateOptions& options = {});
  // The conversation begins again, after what the system said.
  void clear();

  const Model& model() const { return model_; }
  const std::vector<Message>& messages() const { return messages_; }
  // The conversation as the model read it and went on: with the last answer, as it was written. Its first
  // answer_begin() ids are what was read before that answer.
  const std::vector<std::int64_t>& ids() const { return ids_; }
  std::int64_t answer_begin() const { return answer_begin_; }
  const ModelCache& cache() const { return cache_; }

 private:
  Model model_;
  std::vector<Message> messages_;
  std::size_t first_ = 0;  // messages that clear() keeps
  std::vector<std::int64_t> ids_;
  std::int64_t answer_begin_ = 0;
  ModelCache cache_;
};

}  // namespace attend::inline v0
