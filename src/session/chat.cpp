#include "attend/chat.h"

#include <utility>

#include "core/message.h"
#include "models/growing.h"

namespace attend::inline v1 {

namespace {

constexpr const char* chat_function = "Chat";

}  // namespace

Chat::Chat(Model model, std::optional<std::string> system) : model_(std::move(model)) {
  if (!model_.info().decoder() || model_.info().encoder_decoder())
    fail(ErrorCode::bad_value, chat_function, "expected a decoder, the model is of type {}", model_.info().type);
  cache_ = model_.cache();
  if (system) messages_.push_back({"system", *std::move(system)});
  first_ = messages_.size();
  std::vector<Message> greeted = messages_;
  greeted.push_back({"user", ""});
  (void)model_.tokenizer().chat(greeted);  // whether there is a template, and whether it takes what the system says
}

std::string Chat::say(std::string_view message, const GenerateOptions& options) {
  if (options.cache) fail(ErrorCode::bad_value, "Chat.say", "cache can't be given: the conversation has its own");
  const Tokenizer& tokenizer = model_.tokenizer();
  std::vector<Message> messages = messages_;
  messages.push_back({"user", std::string(message)});
  std::vector<std::vector<std::int64_t>> ids{
      models::embedded(tokenizer.encode(tokenizer.chat(messages), false), tokenizer, model_.info()).ids};
  if (std::ssize(ids[0]) > model_.info().longest)
    fail(ErrorCode::bad_value, "Chat.say",
         "the conversation has {} tokens with this message, and the model takes at most {}", ids[0].size(),
         model_.info().longest);
  GenerateOptions own = options;
  if (models::settle(options.settings, model_.info().generation).num_beams == 1) own.cache = &cache_;
  models::Written written = std::move(models::generate_all(model_, ids, own)[0]);
  std::string answer = models::continuation(model_, ids[0], written);
  messages.push_back({"assistant", answer});
  messages_ = std::move(messages);
  ids_ = std::move(ids[0]);
  answer_begin_ = std::ssize(ids_);
  ids_.insert(ids_.end(), written.ids.begin(), written.ids.end());
  return answer;
}

void Chat::clear() {
  messages_.resize(first_);
  ids_.clear();
  answer_begin_ = 0;
}

}  // namespace attend::inline v1
