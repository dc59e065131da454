#include "tokenizer/chat.h"

#include <algorithm>

#include "core/sha256.h"
#include "io/json_file.h"
#include "tokenizer/growth.h"
#include "tokenizer/unicode.h"

namespace attend::inline v1::tokenizer {

namespace {

constexpr const char* chat_function = "Tokenizer::chat";

// ---- What the templates share ----

[[noreturn]] void refuse(std::string_view what) {
  fail(ErrorCode::bad_value, chat_function, "{}", what);
}

const std::string& needed(const std::optional<std::string>& token, const char* name) {
  if (!token) fail(ErrorCode::bad_file, chat_function, "the template needs the {}, and the files name none", name);
  if (token->size() > longest_affix)
    fail(ErrorCode::bad_file, chat_function, "the {} has {} bytes, at most {} are read", name, token->size(),
         longest_affix);
  return *token;
}
const std::string& bos(const Conversation& x) {
  return needed(x.bos, "bos_token");
}
const std::string& eos(const Conversation& x) {
  return needed(x.eos, "eos_token");
}

bool begins_with_system(const Conversation& x) {
  return x.messages.front().role == "system";
}

void check_alternation(const Message& message, std::size_t at) {
  if ((message.role == "user") != (at % 2 == 0))
    refuse("Conversation roles must alternate user/assistant/user/assistant/...");
}

std::string without(std::string_view text, std::string_view front, std::string_view back) {
  text.remove_prefix(std::min(text.find_first_not_of(front), text.size()));
  if (!back.empty()) text = text.substr(0, text.find_last_not_of(back) + 1);
  return std::string(text);
}

// ---- ChatML ----

std::string turn(std::string_view role, std::string_view content) {
  return fmt::format("<|im_start|>{}\n{}<|im_end|>\n", role, content);
}

std::string chatml_from(const Conversation& x, std::string text) {
  for (const Message& message : x.messages) text += turn(message.role, message.content);
  return x.prompt ? text + "<|im_start|>assistant\n" : text;
}

std::string chatml_with(const Conversation& x, std::string_view system) {
  return chatml_from(x, begins_with_system(x) ? "" : turn("system", system));
}

std::string chatml(const Conversation& x) {
  return chatml_from(x, "");
}
std::string smollm2(const Conversation& x) {
  return chatml_with(x, "You are a helpful AI assistant named SmolLM, trained by Hugging Face");
}
std::string qwen2(const Conversation& x) {
  return chatml_with(x, "You are a helpful assistant.");
}
std::string qwen25(const Conversation& x) {
  return chatml_with(x, "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.");
}

// What the model thought stays in what it said since the last question alone.
std::string qwen3_answer(std::string_view said, bool since_question, bool last) {
  constexpr std::string_view open = "<think>", close = "</think>";
  std::string content(said), thought;
  if (const std::size_t end = said.rfind(close); end != std::string_view::npos) {
    content = without(said.substr(end + close.size()), "\n", "");
    thought = without(said.substr(0, said.find(close)), "", "\n");
    const std::size_t begin = thought.rfind(open);
    thought = without(begin == std::string::npos ? thought : thought.substr(begin + open.size()), "\n", "");
  }
  if (!since_question || (!last && thought.empty())) return content;
  return fmt::format("<think>\n{}\n</think>\n\n{}", without(thought, "\n", "\n"), without(content, "\n", ""));
}

std::string qwen3(const Conversation& x) {
  const auto asks = [](const Message& message) {
    const std::string_view content = message.content;
    return message.role == "user" && !(content.starts_with("<tool_response>") && content.ends_with("</tool_response>"));
  };
  std::size_t question = x.messages.size() - 1;
  for (std::size_t n = 0; n < x.messages.size(); ++n) {
    if (asks(x.messages[n])) question = n;
  }
  std::string text;
  for (std::size_t n = 0; n < x.messages.size(); ++n) {
    const auto& [role, content] = x.messages[n];
    const bool last = n + 1 == x.messages.size();
    text += turn(role, role == "assistant" ? qwen3_answer(content, n > question, last) : content);
  }
  return x.prompt ? text + "<|im_start|>assistant\n" : text;
}

// ---- Llama ----

std::string llama2(const Conversation& x) {
  const bool has_system = begins_with_system(x);
  std::string text;
  for (std::size_t n = 0; n + has_system < x.messages.size(); ++n) {
    const auto& [role, said] = x.messages[n + has_system];
    check_alternation(x.messages[n + has_system], n);
    std::string content = said;
    if (n == 0 && has_system) content = fmt::format("<<SYS>>\n{}\n<</SYS>>\n\n{}", x.messages[0].content, said);
    if (role == "user") text += fmt::format("{}[INST] {} [/INST]", bos(x), strip_space(content));
    if (role == "assistant") text += fmt::format(" {} {}", strip_space(content), eos(x));
  }
  return text;
}

std::string headed(std::string_view role, std::string_view content) {
  return fmt::format("<|start_header_id|>{}<|end_header_id|>\n\n{}<|eot_id|>", role, strip_space(content));
}
constexpr const char* llama3_prompt = "<|start_header_id|>assistant<|end_header_id|>\n\n";

std::string llama3_always(const Conversation& x) {
  std::string text = bos(x);
  for (const auto& [role, content] : x.messages) text += headed(role, content);
  return text + llama3_prompt;
}
std::string llama3(const Conversation& x) {
  std::string text = llama3_always(x);
  if (!x.prompt) text.erase(text.size() - std::string_view(llama3_prompt).size());
  return text;
}

// It names a day that does not change.
std::string llama33(const Conversation& x) {
  const bool has_system = begins_with_system(x);
  std::string text = fmt::format(
      "{}<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\n"
      "Today Date: 26 Jul 2024\n\n{}<|eot_id|>",
      bos(x), has_system ? strip_space(x.messages[0].content) : "");
  for (const auto& [role, content] : x.messages.subspan(has_system)) text += headed(role, content);
  return x.prompt ? text + llama3_prompt : text;
}

// ---- Mistral, Gemma ----

std::string mistral(const Conversation& x, std::string_view after_answer) {
  std::string text = bos(x);
  for (std::size_t n = 0; n < x.messages.size(); ++n) {
    const auto& [role, content] = x.messages[n];
    check_alternation(x.messages[n], n);
    if (role == "system") refuse("Only user and assistant roles are supported!");
    text += role == "user" ? fmt::format("[INST] {} [/INST]", content) : content + eos(x) + std::string(after_answer);
  }
  return text;
}
std::string mistral_v1(const Conversation& x) {
  return mistral(x, " ");
}
std::string mistral_v2(const Conversation& x) {
  return mistral(x, "");
}

std::string gemma(const Conversation& x) {
  if (begins_with_system(x)) refuse("System role not supported");
  std::string text = bos(x);
  for (std::size_t n = 0; n < x.messages.size(); ++n) {
    const auto& [role, content] = x.messages[n];
    check_alternation(x.messages[n], n);
    text +=
        fmt::format("<start_of_turn>{}\n{}<end_of_turn>\n", role == "assistant" ? "model" : role, strip_space(content));
  }
  return x.prompt ? text + "<start_of_turn>model\n" : text;
}

// ---- Phi-3 ----

// These two know no system message, and leave it out.
std::string phi3_medium(const Conversation& x) {
  std::string text;
  for (const auto& [role, content] : x.messages) {
    if (role == "user") text += fmt::format("<|user|>\n{}<|end|>\n<|assistant|>\n", content);
    if (role == "assistant") text += content + "<|end|>\n";
  }
  return text;
}
std::string phi3_mini(const Conversation& x) {
  return bos(x) + phi3_medium(x);
}

std::string phi35(const Conversation& x) {
  std::string text;
  for (const auto& [role, content] : x.messages) {
    if (role != "system" || !content.empty()) text += fmt::format("<|{}|>\n{}<|end|>\n", role, content);
  }
  return text + (x.prompt ? "<|assistant|>\n" : eos(x));
}

// ---- Pairs ----

// The first of that role; none: the template's own words.
std::string_view said_by(const Conversation& x, std::string_view role, std::string_view otherwise = "") {
  const auto found = std::ranges::find(x.messages, role, &Message::role);
  return found == x.messages.end() ? otherwise : std::string_view(found->content);
}

std::string qwen3_reranker(const Conversation& x) {
  return turn("system",
              "Judge whether the Document meets the requirements based on the Query and the Instruct provided. Note "
              "that the answer can only be \"yes\" or \"no\".") +
         turn("user", fmt::format("<Instruct>: {}\n<Query>: {}\n<Document>: {}",
                                  said_by(x, "system",
                                          "Given a web search query, retrieve relevant passages that answer the query"),
                                  said_by(x, "query"), said_by(x, "document"))) +
         "<|im_start|>assistant\n<think>\n\n</think>\n\n";
}

// ---- Which is which ----

struct Known {
  std::string_view sha256;  // of the template, without a line's end behind it
  std::string (*render)(const Conversation&);
};
// Those of one line are written with line ends, and with \\n in their place.
constexpr Known known[] = {
    {"153280e3ff55d19da1398bdb3914ee2a51b80429bfaedde11d7d216c39db80f3", chatml},
    {"fcf7a096fe99a48fd9ad2b250bf9237e96e8f48bffec1c7ea4d3f225176cd40e", chatml},
    {"872be49dbb638044ad01b60388f48d469ff2980e5f0dccdc22ec907db54d0788", smollm2},
    {"de9cde7d1b0ca0cc87459a6673e0d12fb89c070bdb24e4a30b6e4d187b226221", smollm2},
    {"793202280c0910ab26bc6eb57c8212c2417324c6d8c4efd0d10d59092ab3e3eb", qwen2},
    {"f0206845c9ebc3abb4735d44f286eb81ce99238ad2accc710c6fc60e6cb8ccc8", qwen2},
    {"55b2f4a26ac9ee719330a61a0c39d9e538b0e9322212f048326318cff4f8674a", qwen25},
    {"87a2728cb8dc9fe424d624542f6060ec05a1d285ebbec578bb078900e33396b5", qwen3},
    {"e8d5b5a546d3f19df16a5320c614fab05bdc4edd50e850f1afd947b503ea41cf", llama2},
    {"4f46ecd43418f216df8c26936c60e5d04bcc81db47db5d86fbe889f64212dd4c", llama3},
    {"ba03a121d097859c7b5b9cd03af99aafe95275210d2876f642ad9929a150f122", llama3},
    {"b48c47f6443892716176eb200bf4ef108f64e06ca26ed0fa8ebc0a4b3992fcb2", llama3_always},
    {"b75e17085cfc511ead6d4fab84b86ab3c168ec7a332568a91d0889cdcba94394", llama3_always},
    {"93c0e9aa3629bbd77e68dbc0f5621f6e6b23aa8d74b932595cdb8d64684526d7", llama33},
    {"7e995b379ec01747807246483647cd99030abf331653f1119e16d7ac041a3495", mistral_v1},
    {"26a59556925c987317ce5291811ba3b7f32ec4c647c400c6cc7e3a9993007ba7", mistral_v2},
    {"1e51d5c0fec2f83da1953fb850b7b532b7da02d0dc35f9201e671e0b9a35a123", gemma},
    {"ecd6ae513fe103f0eb62e8ab5bfa8d0fe45c1074fa398b089c93a7e70c15cfd6", gemma},
    {"268b6082ceb7176dc6ed80557a2f7837f9f0339592fbee677d405a553af15f88", phi3_mini},
    {"4552eefd92474b5259a00e369ebb5989535118101ca9ddeff68c11e879bbb9dd", phi3_mini},
    {"605841622bcb6572225608f09ec2afcdfb9fb50844ef52715a12689f7b9278b1", phi3_medium},
    {"6b2fedcaff5489ce48d01fbbd17c7a46d4bf78001a5d05ec91d6067bf102e56f", phi3_medium},
    {"107f446a0c69ad81516797efae2998f51b1c8e3ea6e74253dcaff6629306bfc7", phi35},
    {"78d976a442bcde2f0be15aafbb8e3050e1104f86732266f68403251b89982a90", phi35},
    {"dd6e0b6b63e185c0fc380322d94195ae0fd004f8623ab56d66ebde808f3914c2", qwen3_reranker},
};

Chat no_chat(const Place& place, std::string_view why) {
  return {.why_not = Error(ErrorCode::bad_file, chat_function, place.in(why).part)};
}

// A token, or an object with its text.
std::optional<std::string> read_token(const Member& from, const char* name) {
  if (!from.given(name)) return std::nullopt;
  const Member of = from[name];
  return of.value().is_string() ? of.text() : of["content"].text();
}

// A text, or a list of them with names, of which "default" counts.
std::optional<std::string> read_chat_template(const Member& from) {
  if (from.value().is_string()) return from.text();
  for (const Member& each : from.list()) {
    if (each["name"].text() == "default") return each["template"].text();
  }
  return std::nullopt;
}

nlohmann::json read_object(const std::filesystem::path& path) {
  if (!is_there(path)) return nlohmann::json::object();
  return read_json(chat_function, path).object().value();
}

}  // namespace

Chat recognize_chat(const Place& place, std::string_view chat_template) {
  if (chat_template.ends_with('\n')) chat_template.remove_suffix(1);  // Jinja takes no notice of it
  const auto found = std::ranges::find(known, sha256(chat_template), &Known::sha256);
  if (found == std::end(known))
    return no_chat(place, "the chat template is not known here (docs/models.md lists those that are)");
  return {.render = found->render, .of_pairs = found->render == qwen3_reranker};
}

Chat read_chat(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "tokenizer_config.json", own = folder / "chat_template.jinja";
  const Place place{chat_function, quote(path.string())};
  try {
    nlohmann::json json = read_object(path);
    if (!json.contains("added_tokens_decoder")) json.update(read_object(folder / "special_tokens_map.json"));
    const Member config(place, json);
    std::optional<std::string> text;
    if (is_there(own)) {
      const InputFile file(chat_function, own);
      text = file.read(0, file.size());
    } else if (config.given("chat_template")) {
      text = read_chat_template(config["chat_template"]);
    }
    if (!text) return no_chat(place, "there is no chat template");
    Chat chat = recognize_chat(place, *text);
    chat.bos = read_token(config, "bos_token"), chat.eos = read_token(config, "eos_token");
    chat.text = std::move(text);
    return chat;
  } catch (const Error& error) {
    return {.why_not = error};
  }
}

}  // namespace attend::inline v1::tokenizer
