// attend.Chat.
#include "attend/chat.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <string>

#include "call.h"
#include "generation.h"
#include "model.h"
#include "pickle.h"
#include "text.h"

namespace attend::python {

namespace {

// `busy`: a call computes with it, on another thread where it is seen.
struct SharedChat {
  Chat chat;
  bool busy = false;
};

class TakenChat {
 public:
  TakenChat(const char* function, SharedChat& chat) : chat_(chat) {
    if (chat.busy) throw Error(ErrorCode::bad_value, function, "another call computes with this conversation");
    chat.busy = true;
  }
  ~TakenChat() { chat_.busy = false; }
  TakenChat(const TakenChat&) = delete;
  TakenChat& operator=(const TakenChat&) = delete;
  Chat& operator*() const { return chat_.chat; }

 private:
  SharedChat& chat_;
};

void make_chat(SharedChat* self, nb::handle model, const std::optional<std::string>& system) {
  const Loaded& loaded = read_instance<Loaded>("Chat", "model", "a Model", model);
  (void)loaded.tokenizer("Chat");
  new (self) SharedChat{call("Chat", [&] { return Chat(loaded.model, system); })};
}

std::string chat_say(SharedChat& self, const std::string& message, std::int64_t max_new_tokens, std::uint64_t seed,
                     nb::handle end, nb::handle on_token, nb::handle on_text, nb::handle edits,
                     const nb::kwargs& settings) {
  constexpr const char* function = "Chat.say";
  const TakenChat chat(function, self);
  const Edits changed(function, edits);
  GenerateOptions options = {.max_new_tokens = max_new_tokens,
                             .settings = read_settings(function, settings),
                             .seed = seed,
                             .on_token = token_teller(function, on_token),
                             .on_text = text_teller(function, on_text),
                             .edits = changed.get(),
                             .knockouts = changed.knockouts()};
  if (!end.is_none()) options.end = list_of(read_integers(function, "end", end));
  return call(function, [&] { return (*chat).say(message, options); });
}

nb::list chat_messages(SharedChat& self) {
  const TakenChat chat("Chat.messages", self);
  nb::list all;
  for (const Message& each : (*chat).messages()) {
    nb::dict message;
    message["role"] = each.role, message["content"] = each.content;
    all.append(message);
  }
  return all;
}

constexpr const char* chat_doc =
    R"(A conversation with a model. Each turn, the model reads only what is new.

model: a decoder whose folder or file has a chat template. system: what it is told before the conversation begins. messages is the
list of {"role", "content"} so far. ids are the tokens that the model read and wrote, with the last answer as it was written.

>>> import attend
>>> chat = attend.Chat(attend.Model.load("tiny-chat"), system="Be short.")
>>> answer = chat.say("the cat", max_new_tokens=4)
>>> [each["role"] for each in chat.messages]
['system', 'user', 'assistant'])";

constexpr const char* say_doc =
    R"(The model's answer to a message. Arguments are those of Model.generate(), except cache: the conversation has its own.

The whole conversation is put into the chat template; the cache holds what was read before. If this raises, the conversation is as it
was. Raises ValueError where the conversation is longer than the model takes.)";

}  // namespace

void bind_chat(nb::module_& m) {
  nb::class_<SharedChat> chat(m, "Chat", chat_doc);
  refuses_pickle(chat, "it holds a model: pickle the model and the messages");
  const auto copy = [](SharedChat& self) { return SharedChat{*TakenChat("Chat", self)}; };
  chat.def("__init__", &make_chat, nb::arg("model"), nb::arg("system") = nb::none(),
           nb::sig("def __init__(self, model: Model, system: str | None = None) -> None"))
      .def("__copy__", copy)
      .def(
          "__deepcopy__", [copy](SharedChat& self, nb::handle) { return copy(self); }, nb::arg("memo"))
      .def("say", &chat_say, nb::arg("message"), nb::arg("max_new_tokens") = 512, nb::kw_only(), nb::arg("seed") = 0,
           nb::arg("end") = nb::none(), nb::arg("on_token") = nb::none(), nb::arg("on_text") = nb::none(),
           nb::arg("edits") = nb::none(), nb::arg("settings"),
           nb::sig(("def say(self, message: str, max_new_tokens: int = 512, *, seed: int = 0, end: Ids | None = None, "
                    "on_token: Callable[[int], object] | None = None, on_text: Callable[[str], object] | None = None" +
                    std::string(given_edits) + settings_signature() + ") -> str")
                       .c_str()),
           say_doc)
      .def(
          "clear", [](SharedChat& self) { (*TakenChat("Chat.clear", self)).clear(); },
          "Begin the conversation again, after what the system said.")
      .def_prop_ro("messages", &chat_messages, nb::sig("def messages(self) -> list[dict[str, str]]"),
                   "what was said so far: {'role': 'system', 'user' or 'assistant', 'content': text}")
      .def_prop_ro(
          "ids", [](SharedChat& self) { return id_array((*TakenChat("Chat.ids", self)).ids()); },
          nb::sig("def ids(self) -> numpy.ndarray"), "[N] int64")
      .def("__repr__", [](SharedChat& self) {
        return "Chat(" + std::to_string((*TakenChat("Chat", self)).messages().size()) + " messages)";
      });
}

}  // namespace attend::python
