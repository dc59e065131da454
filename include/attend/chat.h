// A conversation with a model, which reads only what is new.
//
//     attend::Chat chat(attend::Model::load("smollm2-instruct"), "You answer in one sentence.");
//     fmt::print("{}\n", chat.say("What is the capital of France?"));
//     fmt::print("{}\n", chat.say("And how many people live there?", {.max_new_tokens = 40}));
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

namespace attend::inline v1 {

class ATTEND_API Chat {
 public:
  // system: instructions before the conversation. Throws bad_value for a model that is not a plain decoder; bad_file
  // without a tokenizer or a known chat template (Tokenizer::chat()).
  explicit Chat(Model model, std::optional<std::string> system = {});

  // The model's answer, up to options.max_new_tokens tokens; options.cache must be null. It is what Model::generate()
  // gives for the whole conversation in the template; what the cache already holds of it is not computed again. Throws
  // bad_value as Model::generate(), and for a conversation that is too long; the conversation is then unchanged.
  std::string say(std::string_view message, const GenerateOptions& options = {});
  // Starts again after the system message.
  void clear();

  const Model& model() const { return model_; }
  const std::vector<Message>& messages() const { return messages_; }
  // The conversation as ids, with the last answer as it was written. The first answer_begin() ids were read before that
  // answer.
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

}  // namespace attend::inline v1
