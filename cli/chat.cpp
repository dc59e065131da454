// chat: a conversation with a model.
#include "attend/chat.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <csignal>
#include <iostream>
#include <memory>

#include "attend/error.h"
#include "attend/session.h"
#include "attend/threads.h"
#include "cli/analyses.h"
#include "cli/command.h"
#include "cli/model.h"
#include "cli/terminal.h"
#include "cli/writing.h"

namespace attend::cli {
namespace {

struct ChatArguments {
  std::string model, system;
  std::int64_t most = 0;
  LoadArguments load;
  WritingArguments writing;
};

volatile std::sig_atomic_t interrupted = 0;

// Ctrl-C ends an answer, and the chat where nothing is being answered: a read that waits ends with it.
class CatchInterrupt {
 public:
  CatchInterrupt() {
    struct sigaction action = {};
    action.sa_handler = [](int) { interrupted = 1; };
    sigaction(SIGINT, &action, &before_);
  }
  ~CatchInterrupt() { sigaction(SIGINT, &before_, nullptr); }
  CatchInterrupt(const CatchInterrupt&) = delete;
  CatchInterrupt& operator=(const CatchInterrupt&) = delete;

 private:
  struct sigaction before_ = {};
};

constexpr const char* chat_help =
    "/why [TOKEN]   why the answer's last word came, or its last \"TOKEN\"\n"
    "/save FILE     keep a recording of the conversation: attend show FILE\n"
    "/clear         begin again\n"
    "/help          show this\n"
    "/quit          end; so does the end of input\n"
    "Ctrl-C         end an answer\n";

class Conversation {
 public:
  Conversation(const Model& model, const ChatArguments& x)
      : chat_(model, x.system.empty() ? std::nullopt : std::optional(x.system)),
        options_(generate_options(x.writing, model.tokenizer())),
        name_(x.model),
        talks_(isatty(STDIN_FILENO) == 1) {
    options_.max_new_tokens = x.most > 0 ? x.most : model.info().longest;
    options_.on_token = [this](std::int64_t) { return answering_ = true; };
    options_.on_text = [](std::string_view more) {
      show_at_once(more);
      return interrupted == 0;
    };
  }

  void run() {
    if (talks_) show_at_once("Say something, or type /help to see the commands.\n");
    for (std::string line; next(line);) {
      if (line.empty()) continue;
      try {
        if (line.front() != '/')
          answer(line);
        else if (!command(line))
          return;
      } catch (const Error& error) {
        refuse(error.what());
      } catch (const Failure& error) {
        refuse(error.what());
      }
    }
    if (talks_) show_at_once("\n");
  }

 private:
  // Someone who talks goes on after a mistake; a script that is wrong fails.
  void refuse(const std::string& what) const {
    if (!talks_) throw Failure(what);
    tell("attend: " + what);
  }

  bool next(std::string& line) {
    if (talks_) show_at_once("\n> ");
    interrupted = 0;
    return static_cast<bool>(std::getline(std::cin, line));
  }

  // What was answered before it is stopped is said; while the message is read, nothing is.
  void answer(const std::string& message) {
    answering_ = false;
    const InterruptCheck stop([this] { return interrupted != 0 && !answering_; });
    try {
      chat_.say(message, options_);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::interrupted) throw;
    }
    show_at_once("\n");
  }

  // "/save x.attend"; false ends the conversation.
  bool command(const std::string& line) {
    const std::size_t space = std::min(line.find(' '), line.size());
    const std::string name = line.substr(0, space), rest = line.substr(std::min(space + 1, line.size()));
    if (name == "/quit" || name == "/exit") return false;
    if (name == "/help")
      show_at_once(chat_help);
    else if (name == "/clear")
      chat_.clear();
    else if (name == "/why")
      why(rest);
    else if (name == "/save")
      save(rest);
    else
      throw Failure(fmt::format("no command '{}': /help lists the commands", name));
    return true;
  }

  // Of the answer's tokens the last one that is this text, or without one the last that has a letter or a digit.
  std::size_t place_of(const std::string& token) const {
    const std::vector<std::int64_t>& ids = chat_.ids();
    for (std::size_t n = ids.size(); n-- > static_cast<std::size_t>(chat_.answer_begin());) {
      const std::string text = chat_.model().tokenizer().text(ids[n]).value_or("");
      const auto in_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || (c & 0x80) != 0; };
      if (token.empty() ? std::ranges::any_of(text, in_word) : text == token || text == " " + token) return n;
    }
    throw Failure(token.empty() ? "/why: there is no answer yet that has a word"
                                : fmt::format("/why: the last answer has no token \"{}\"", token));
  }

  void why(const std::string& token) const {
    const std::size_t place = place_of(token);
    const Model& model = chat_.model();
    const std::vector<std::int64_t> before(chat_.ids().begin(),
                                           chat_.ids().begin() + static_cast<std::ptrdiff_t>(place));
    const Pass pass = attend::run(model, {.ids = before}, {.why = AttributeOptions{.token = chat_.ids()[place]}});
    Computed x{.info = model.info(), .text = "", .tokenizer = model.tokenizer(), .encoding = {}};
    for (const std::optional<std::string>& text : x.tokenizer.texts(before))
      x.recording.tokens.resize(1), x.recording.tokens[0].push_back(text.value_or(""));
    show_at_once(attribution_words(x, *pass.why, x.tokenizer.text(chat_.ids()[place]).value_or("")));
  }

  void save(const std::string& file) const {
    if (!file.ends_with(".attend")) throw Failure("/save: expected the name of a file that ends in .attend");
    if (chat_.ids().empty()) throw Failure("/save: nothing has been said yet");
    Recorder recorder;
    Pass pass = attend::run(chat_.model(), {.ids = chat_.ids()}, {.recorder = &recorder});
    pass.recording->model = name_;
    writing([&] { pass.recording->save(file); });
    tell("attend: wrote " + file);
  }

  Chat chat_;
  GenerateOptions options_;
  std::string name_;
  bool talks_, answering_ = false;
};

void run(const ChatArguments& x) {
  const Model model = Model::load(find_model(x.model), model_options(x.load));
  check_tokenizer(model, x.model);
  announce_generation(model.info(), x.model);
  Conversation conversation(model, x);
  const CatchInterrupt caught;
  conversation.run();
}

}  // namespace

Command add_chat(App& root) {
  App* app = root.add_subcommand(
      "chat",
      "Talk with a model. Each line is a message, and the answer appears as it is written. /why shows why the answer's "
      "last word came. This is for a person at a terminal and for scripts; it is not a server.");
  app->examples(
      "attend chat Qwen2.5-0.5B-Instruct\n"
      "attend chat Qwen2.5-0.5B-Instruct --system \"You answer in one sentence.\"\n"
      "echo \"What is the capital of France?\" | attend chat Qwen2.5-0.5B-Instruct");
  auto x = std::make_shared<ChatArguments>();
  app->add_option("MODEL", x->model, "A folder, a .gguf file, or a name from attend model --list")
      ->type_name("FILE")
      ->required();
  app->add_option("--system", x->system, "What the model is told before the conversation begins")->type_name("TEXT");
  whole_number(
      app->add_option("--max-new-tokens", x->most, "End an answer after N tokens (default: when the model ends it)"), 1,
      1 << 20);
  add_load(*app, x->load);
  add_writing(*app, x->writing);
  return {app, [x] { run(*x); }};
}

}  // namespace attend::cli
