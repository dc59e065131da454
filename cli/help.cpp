#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
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

std::string names_of(const Option& option) {
  const std::string names = fmt::format("{}", fmt::join(option.spellings(), ", "));
  return option.takes_value() ? names + " " + option.type_name() : names;
}

std::string usage(const App& app) {
  std::string line = "Usage: " + app.full_name();
  if (!app.commands().empty()) line += " COMMAND";
  for (const Option* argument : app.arguments()) {
    const std::string name = argument->names() + (argument->takes_many() ? "..." : "");
    line += argument->is_required() ? " " + name : " [" + name + "]";
  }
  for (const Option* option : app.options())
    if (option->is_required()) line += " " + option->spellings().front() + " " + option->type_name();
  return line + " [options]\n";
}

// The headings of its options, in their order; that of --help comes last.
std::vector<std::string> groups_of(const App& app) {
  std::vector<std::string> groups;
  for (const Option* option : app.options())
    if (std::ranges::find(groups, option->group()) == groups.end()) groups.push_back(option->group());
  std::ranges::rotate(groups, groups.begin() + 1);
  return groups;
}

}  // namespace

std::string help_page(const App& app) {
  std::string page = "Examples:\n";
  std::istringstream examples(app.examples());
  for (std::string line; std::getline(examples, line);) page += "  " + line + "\n";
  page += "\n" + usage(app) + "\n" + wrap(app.description(), page_width, 0) + "\n";
  if (!app.arguments().empty()) page += "\nArguments:\n";
  for (const Option* argument : app.arguments()) page += entry(argument->names(), argument->description());
  if (!app.commands().empty()) page += "\nCommands:\n";
  for (const App& command : app.commands()) page += entry(command.name(), first_sentence(command.description()));
  for (const std::string& group : groups_of(app)) {
    page += fmt::format("\n{}:\n", group);
    for (const Option* option : app.options())
      if (option->group() == group) page += entry(names_of(*option), option->description());
  }
  return page;
}

Command add_help(App& root) {
  App* app = root.add_subcommand("help", "Show the help of a command.");
  app->examples("attend help\nattend help explain");
  auto name = std::make_shared<std::string>();
  app->add_option("COMMAND", *name, "The command; without one, the overview")->type_name("COMMAND");
  const auto run = [&root, name] {
    if (name->empty()) return print(help_page(root));
    std::vector<std::string> names;
    for (const App& command : root.commands()) {
      if (command.name() == *name) return print(help_page(command));
      names.push_back(command.name());
    }
    throw UsageError("no command '" + *name + "'" + did_you_mean(*name, names));
  };
  return {app, run};
}

}  // namespace attend::cli
