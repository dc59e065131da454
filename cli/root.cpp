// The tree of commands, and one line read by it.
#include <fmt/format.h>

#include "attend/version.h"
#include "cli/command.h"
#include "cli/suggest.h"

namespace attend::cli {
namespace {

// The command that the line named, or the root.
const CLI::App& chosen(const CLI::App& root) {
  return root.get_subcommands().empty() ? root : *root.get_subcommands().front();
}

// An argument that no option or positional took.
std::string unexpected(const CLI::App& root, const std::string& argument) {
  const CLI::App& app = chosen(root);
  std::vector<std::string> known;
  if (argument.starts_with("-")) {
    const std::string name = argument.substr(0, argument.find('='));
    for (const CLI::Option* option : app.get_options())
      for (const std::string& long_name : option->get_lnames()) known.push_back("--" + long_name);
    return fmt::format("no option '{}'{}", name, did_you_mean(name, known));
  }
  if (&app == &root) {
    for (const CLI::App* command : root.get_subcommands(nullptr)) known.push_back(command->get_name());
    return fmt::format("no command '{}'{}", argument, did_you_mean(argument, known));
  }
  return fmt::format("unexpected argument '{}'; words that belong together stand in quotes", argument);
}

std::string explain_mistake(const CLI::App& root, const CLI::ParseError& error) {
  const std::vector<std::string> extras = root.remaining(true);
  if (!extras.empty()) return unexpected(root, extras.front());
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

void build(CLI::App& root, std::vector<Command>& commands) {
  root.name("attend");
  root.formatter(std::make_shared<HelpPage>());
  root.footer(
      "attend explain\n"
      "attend explain \"the cat sat on the mat\" --focus cat -o cat.svg\n"
      "attend run q.npy k.npy v.npy --causal -o out.npy\n"
      "attend picture w.npy --scale sqrt -o w.svg\n"
      "attend model minilm \"the cat sat on the mat because it was tired\"");
  root.set_help_flag("-h,--help", "Show this help");
  root.set_version_flag("--version", "attend " ATTEND_VERSION_STRING, "Show the version");
  root.require_subcommand(0, 1);
  root.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  commands = {add_explain(root), add_run(root),   add_plan(root),       add_inspect(root), add_picture(root),
              add_show(root),    add_model(root), add_completion(root), add_help(root)};
  // An option that is given its default's empty text would look as if it was not given.
  const auto not_empty = [](const std::string& value) { return value.empty() ? "expected a value, got ''" : ""; };
  for (const Command& command : commands)
    for (CLI::Option* option : command.app->get_options()) {
      if (!option->get_positional()) option->check(not_empty);
      // Else --causal=false would turn it on.
      if (option->get_items_expected_max() == 0) option->disable_flag_override();
    }
}

}  // namespace

Status complain(Status status, const std::string& message, const CLI::App* app) {
  tell("attend: " + message);
  if (app != nullptr) tell(fmt::format("try: {}{} --help", app->get_parent() ? "attend " : "", app->get_name()));
  return status;
}

Status run_line(CLI::App& root, int argc, char** argv) {
  std::vector<Command> commands;
  build(root, commands);
  try {
    root.parse(argc, argv);
    if (root.get_subcommands().empty()) throw UsageError("no command given");
    for (const Command& command : commands)
      if (command.app->parsed()) command.run();
  } catch (const CLI::CallForHelp&) {
    print(chosen(root).help());
  } catch (const CLI::CallForVersion& version) {
    print(std::string(version.what()) + "\n");
  } catch (const CLI::ParseError& error) {
    return complain(Status::usage, explain_mistake(root, error), &chosen(root));
  } catch (const UsageError& error) {
    return complain(Status::usage, error.what(), &chosen(root));
  }
  close_output();
  return Status::fine;
}

}  // namespace attend::cli
