#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "cli/command.h"
#include "cli/suggest.h"

namespace attend::cli {
namespace {

constexpr std::size_t page_width = 80;
constexpr std::size_t name_width = 24;

// The words of `text` in lines of at most `width`, the later ones indented.
std::string wrap(const std::string& text, std::size_t width, std::size_t indent) {
  std::istringstream words(text);
  std::string result, word;
  std::size_t column = 0;
  while (words >> word) {
    if (column > 0 && column + 1 + word.size() > width) {
      result += "\n" + std::string(indent, ' ');
      column = 0;
    }
    result += (column > 0 ? " " : "") + word;
    column += (column > 0 ? 1 : 0) + word.size();
  }
  return result;
}

std::string entry(const std::string& name, const std::string& description) {
  std::string line = "  " + name;
  if (line.size() + 2 > name_width)
    line += "\n" + std::string(name_width, ' ');
  else
    line.resize(name_width, ' ');
  return line + wrap(description, page_width - name_width, name_width) + "\n";
}

std::string names_of(const CLI::Option& option) {
  std::string names;
  for (const std::string& name : option.get_snames()) names += (names.empty() ? "-" : ", -") + name;
  for (const std::string& name : option.get_lnames()) names += (names.empty() ? "--" : ", --") + name;
  if (option.get_items_expected_max() > 0) names += " " + option.get_type_name();
  return names;
}

std::string usage(const CLI::App& app, const std::string& name) {
  std::string line = "Usage: " + name;
  if (!app.get_subcommands(nullptr).empty()) line += " COMMAND";
  for (const CLI::Option* option : app.get_options()) {
    const std::string dots = option->get_items_expected_max() > 1 ? "..." : "";
    if (option->get_positional())
      line += option->get_required() ? " " + option->get_name() + dots : " [" + option->get_name() + dots + "]";
  }
  for (const CLI::Option* option : app.get_options())
    if (option->get_required() && !option->get_positional())
      line += " -" + option->get_snames().front() + " " + option->get_type_name();
  return line + " [options]\n";
}

}  // namespace

std::string HelpPage::make_help(const CLI::App* app, std::string, CLI::AppFormatMode) const {
  // CLI11 gives the root's own name, and for a subcommand the names of its parents only.
  const bool is_root = app->get_parent() == nullptr;
  const std::string full_name = is_root ? app->get_name() : app->get_parent()->get_name() + " " + app->get_name();

  std::string page = "Examples:\n";
  std::istringstream examples(app->get_footer());
  for (std::string line; std::getline(examples, line);) page += "  " + line + "\n";
  page += "\n" + usage(*app, full_name) + "\n" + wrap(app->get_description(), page_width, 0) + "\n";

  std::string arguments;
  for (const CLI::Option* option : app->get_options())
    if (option->get_positional()) arguments += entry(option->get_name(), option->get_description());
  if (!arguments.empty()) page += "\nArguments:\n" + arguments;

  const auto subcommands = app->get_subcommands(nullptr);
  if (!subcommands.empty()) page += "\nCommands:\n";
  for (const CLI::App* command : subcommands)
    page += entry(command->get_name(), first_sentence(command->get_description()));

  // CLI11's own group, which has --help, comes last.
  std::vector<std::string> groups = app->get_groups();
  std::stable_partition(groups.begin(), groups.end(), [](const std::string& group) { return group != "Options"; });
  for (const std::string& group : groups) {
    std::string options;
    for (const CLI::Option* option : app->get_options())
      if (!option->get_positional() && option->get_group() == group)
        options += entry(names_of(*option), option->get_description());
    if (!options.empty()) page += fmt::format("\n{}:\n{}", group, options);
  }
  return page;
}

Command add_help(CLI::App& root) {
  CLI::App* app = root.add_subcommand("help", "Show the help of a command.");
  app->footer("attend help\nattend help explain");
  auto name = std::make_shared<std::string>();
  app->add_option("COMMAND", *name, "The command; without one, the overview")->type_name("COMMAND");
  const auto run = [&root, name] {
    // App::help() gives the help of the subcommand that was parsed: this one.
    if (name->empty()) return print(HelpPage().make_help(&root, "", CLI::AppFormatMode::Normal));
    std::vector<std::string> names;
    for (const CLI::App* command : root.get_subcommands(nullptr)) {
      if (command->get_name() == *name) return print(command->help());
      names.push_back(command->get_name());
    }
    throw UsageError("no command '" + *name + "'" + did_you_mean(*name, names));
  };
  return {app, run};
}

}  // namespace attend::cli
