// The tree of commands, and one line read by it: the one file that includes CLI11, which takes seconds to compile.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <map>

#include "attend/version.h"
#include "cli/command.h"
#include "cli/ranks.h"
#include "cli/suggest.h"

namespace attend::cli {
namespace {

// An argument that no option or argument took.
std::string unexpected(const App& root, const App& app, const std::string& argument) {
  std::vector<std::string> known;
  if (argument.starts_with("-")) {
    const std::string name = argument.substr(0, argument.find('='));
    for (const Option* option : app.options())
      for (const std::string& spelling : option->spellings())
        if (spelling.starts_with("--")) known.push_back(spelling);
    return fmt::format("no option '{}'{}", name, did_you_mean(name, known));
  }
  if (&app == &root) {
    for (const App& command : root.commands()) known.push_back(command.name());
    return fmt::format("no command '{}'{}", argument, did_you_mean(argument, known));
  }
  return fmt::format("unexpected argument '{}'; put a text of several words in quotes", argument);
}

std::string explain_mistake(const CLI::ParseError& error) {
  std::string message = error.what();
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr && message.ends_with(" missing"))
    return message.substr(0, message.find(':')) + " needs a value";
  if (const std::size_t at = message.find(" was given a disallowed flag override"); at != std::string::npos)
    return (message.starts_with('-') ? "" : "--") + message.substr(0, at) + " takes no value";
  if (dynamic_cast<const CLI::ExcludesError*>(&error) != nullptr) {
    const std::size_t at = message.find(" excludes ");
    return message.substr(0, at) + " and " + message.substr(at + 10) + " can't stand together";
  }
  return message;
}

// An option that is given its default's empty text would look as if it was not given.
std::string not_empty(const std::string& value) {
  return value.empty() ? "expected a value, got ''" : "";
}

CLI::Option* declare(CLI::App& parser, const Option& option) {
  const auto add = [&](auto value) -> CLI::Option* {
    if constexpr (std::is_same_v<decltype(value), std::monostate>)
      return parser.get_option(option.spellings().back());
    else if constexpr (std::is_same_v<decltype(value), bool*>)
      return parser.add_flag(option.names(), *value);
    else
      return parser.add_option(option.names(), *value);
  };
  CLI::Option* declared = std::visit(add, option.value())->required(option.is_required());
  for (const Option::Check& check : option.checks()) declared->check(check);
  if (!option.is_argument()) declared->check(not_empty);
  // Else --causal=false would turn it on.
  if (!option.takes_value()) declared->disable_flag_override();
  if (!option.is_argument() && option.takes_many()) declared->take_all()->allow_extra_args(false);
  return declared;
}

void declare(CLI::App& parser, const App& app) {
  std::map<const Option*, CLI::Option*> declared;
  for (const Option& option : app.all_options()) declared[&option] = declare(parser, option);
  for (const auto& [option, there] : declared)
    for (const Option* excluded : option->excluded()) there->excludes(declared.at(excluded));
}

// Ends the reading of the line, as --help and --version do.
class CallForDiagnosis : public CLI::Success {
 public:
  CallForDiagnosis() : Success("CallForDiagnosis", "", CLI::ExitCodes::Success) {}
};

std::vector<Command> build(App& root) {
  root.examples(
      "attend explain\n"
      "attend explain \"the cat sat on the mat\" --focus cat -o cat.svg\n"
      "attend run q.npy k.npy v.npy --causal -o out.npy\n"
      "attend picture w.npy --scale sqrt -o w.svg\n"
      "attend model minilm \"the cat sat on the mat because it was tired\"");
  root.add_last("--diagnose", "Show what a report of a fault should say: version, build, kernels, processor, threads");
  root.add_last("--version", "Show the version");
  return {add_explain(root), add_run(root),   add_plan(root),     add_inspect(root),    add_picture(root),
          add_show(root),    add_model(root), add_chat(root),     add_embed(root),      add_near(root),
          add_rank(root),    add_match(root), add_classify(root), add_tag(root),        add_quantize(root),
          add_steer(root),   add_lens(root),  add_class(root),    add_completion(root), add_help(root)};
}

void declare_root(CLI::App& parser, const App& root) {
  parser.name(root.name());
  parser.set_help_flag("-h,--help");  // its subcommands have it too
  parser.set_version_flag("--version", "attend " ATTEND_VERSION_STRING);
  parser.add_flag_callback("--diagnose", [] { throw CallForDiagnosis(); })->trigger_on_parse();
  parser.require_subcommand(0, 1);
  parser.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  declare(parser, root);
  for (const App& command : root.commands()) declare(*parser.add_subcommand(command.name()), command);
}

}  // namespace

Status complain(Status status, const std::string& message, const App* app) {
  tell("attend: " + message);
  if (app != nullptr) tell(fmt::format("try: {} --help", app->full_name()));
  return status;
}

Status run_line(int argc, char** argv) {
  App root("attend", "Transformer attention, exact and explained.");
  const std::vector<Command> commands = build(root);
  CLI::App parser;
  declare_root(parser, root);
  // The command that the line named, or the root.
  const auto chosen = [&] {
    const auto command =
        std::ranges::find_if(commands, [&](const Command& each) { return parser.got_subcommand(each.app->name()); });
    return command == commands.end() ? static_cast<const App*>(&root) : command->app;
  };
  try {
    parser.parse(argc, argv);
    if (chosen() == &root) throw UsageError("no command given");
    for (const Command& command : commands)
      if (command.app == chosen()) command.run();
  } catch (const CLI::CallForHelp&) {
    print(help_page(*chosen()));
  } catch (const CLI::CallForVersion& version) {
    print(std::string(version.what()) + "\n");
  } catch (const CallForDiagnosis&) {
    print(diagnosis());
  } catch (const CLI::ParseError& error) {
    const std::vector<std::string> extras = parser.remaining(true);
    return complain_of_line(extras.empty() ? explain_mistake(error) : unexpected(root, *chosen(), extras.front()),
                            chosen());
  } catch (const UsageError& error) {
    return complain(Status::usage, error.what(), chosen());
  }
  close_output();
  return Status::fine;
}

}  // namespace attend::cli
