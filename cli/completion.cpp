// Shell completion, made from the tree of subcommands and options.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "attend/explain.h"
#include "cli/command.h"

namespace attend::cli {
namespace {

// What may stand where an option's value, or a positional, is expected.
struct Values {
  bool any = false;  // a value is expected at all
  bool files = false;
  std::vector<std::string> words;
};

Values values_of(const Option& option, const App& root) {
  Values values;
  values.any = option.takes_value();
  const std::string& type = option.type_name();
  values.files = type == "FILE";
  if (type == "PRESET")
    for (const Preset& preset : presets()) values.words.emplace_back(preset.name);
  else if (type == "COMMAND")
    for (const App& command : root.commands()) values.words.push_back(command.name());
  else
    values.words = words_of_type(type);
  return values;
}

// In single quotes, for any of the three shells (fish, too, knows '\'' between quoted parts).
std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

// --- bash

std::string bash_action(const Values& values) {
  if (values.files) return "_attend_files";
  if (values.words.empty()) return "return";
  return fmt::format("_attend_words '{}'", fmt::join(values.words, " "));
}

std::string bash_cases(const App& app, const App& root, const std::string& command) {
  std::string text;
  std::vector<std::string> all;
  for (const Option* option : app.options()) {
    const std::vector<std::string> names = option->spellings();
    all.insert(all.end(), names.begin(), names.end());
    const Values values = values_of(*option, root);
    if (!values.any) continue;
    std::vector<std::string> patterns;
    patterns.reserve(names.size());
    for (const std::string& name : names) patterns.push_back(fmt::format("{}:{}:*", command, name));
    text += fmt::format("    {}) {} ;;\n", fmt::join(patterns, " | "), bash_action(values));
  }
  text += fmt::format("    {}:*:-*) _attend_words '{}' ;;\n", command, fmt::join(all, " "));
  const auto arguments = app.arguments();
  if (!arguments.empty())
    text += fmt::format("    {}:*) {} ;;\n", command, bash_action(values_of(*arguments.front(), root)));
  return text;
}

std::string bash(const App& root) {
  std::string cases;
  std::vector<std::string> commands;
  for (const App& app : root.commands()) {
    commands.push_back(app.name());
    cases += bash_cases(app, root, app.name());
  }
  cases += bash_cases(root, root, "");
  cases += fmt::format("    :*) _attend_words '{}' ;;\n", fmt::join(commands, " "));
  return fmt::format(R"(# bash completion for attend, made by: attend completion bash
_attend_words() {{
  COMPREPLY=($(compgen -W "$1" -- "$current"))
}}

_attend_files() {{
  local IFS=$'\n'
  compopt -o filenames 2>/dev/null
  COMPREPLY=($(compgen -f -- "$current"))
}}

_attend() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}} command=
  COMPREPLY=()
  # bash takes --option=value apart at the sign.
  if [ "$current" = = ]; then
    current=
  elif [ "$previous" = = ]; then
    previous=${{COMP_WORDS[COMP_CWORD - 2]}}
  fi
  if [ "$COMP_CWORD" -gt 1 ] && [[ ${{COMP_WORDS[1]}} != -* ]]; then
    command=${{COMP_WORDS[1]}}
  fi
  case "$command:$previous:$current" in
{}  esac
}}
complete -F _attend attend
)",
                     cases);
}

// --- zsh

// Inside a _arguments specification, brackets and colons end a field.
std::string zsh_escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') result += '\\';
    result += c;
  }
  return result;
}

std::string zsh_action(const Option& option, const App& root) {
  const Values values = values_of(option, root);
  if (!values.any) return "";
  const std::string name = zsh_escaped(option.type_name());
  if (values.files) return fmt::format(":{}:_files", name);
  if (values.words.empty()) return fmt::format(":{}: ", name);
  return fmt::format(":{}:({})", name, fmt::join(values.words, " "));
}

std::string zsh_arguments(const App& app, const App& root, const std::string& indent) {
  std::string text;
  for (const Option* option : app.options()) {
    const bool repeated = option->takes_many();
    for (const std::string& name : option->spellings()) {
      const std::string value_sign = !values_of(*option, root).any ? "" : name.starts_with("--") ? "=" : "+";
      text += " \\\n" + indent +
              quoted(fmt::format("{}{}{}[{}]{}", repeated ? "*" : "", name, value_sign,
                                 zsh_escaped(first_sentence(option->description())), zsh_action(*option, root)));
    }
  }
  for (const Option* option : app.arguments()) {
    const bool repeated = option->takes_many();
    text += " \\\n" + indent + quoted((repeated ? "*" : option->is_required() ? "" : ":") + zsh_action(*option, root));
  }
  return text;
}

std::string zsh(const App& root) {
  std::string commands, cases;
  for (const App& app : root.commands()) {
    commands +=
        "        " + quoted(zsh_escaped(app.name()) + ":" + zsh_escaped(first_sentence(app.description()))) + "\n";
    cases += fmt::format("        {})\n          _arguments -s{}\n          ;;\n", app.name(),
                         zsh_arguments(app, root, "            "));
  }
  return fmt::format(R"(#compdef attend
# zsh completion for attend, made by: attend completion zsh
_attend() {{
  local curcontext="$curcontext" state line
  local -a commands
  _arguments -C{} \
    '1:command:->command' \
    '*::argument:->argument'
  case $state in
    command)
      commands=(
{}      )
      _describe -t commands command commands
      ;;
    argument)
      case $words[1] in
{}      esac
      ;;
  esac
}}
if [ "$funcstack[1]" = _attend ]; then
  _attend "$@"
else
  compdef _attend attend
fi
)",
                     zsh_arguments(root, root, "    "), commands, cases);
}

// --- fish

std::string fish_values(const Values& values) {
  if (values.files) return " -r -F";
  if (!values.words.empty()) return fmt::format(" -x -a '{}'", fmt::join(values.words, " "));
  return values.any ? " -x" : "";
}

std::string fish_lines(const App& app, const App& root, const std::string& condition) {
  std::string text;
  const std::string start = fmt::format("complete -c attend -n '{}'", condition);
  for (const Option* option : app.options()) {
    text += start;
    for (const std::string& name : option->spellings())
      text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
    text += fish_values(values_of(*option, root)) + " -d " + quoted(first_sentence(option->description())) + "\n";
  }
  const auto arguments = app.arguments();
  if (arguments.empty()) return text;
  const Values values = values_of(*arguments.front(), root);
  if (values.files) text += start + " -F\n";
  if (!values.words.empty()) text += fmt::format("{} -a '{}'\n", start, fmt::join(values.words, " "));
  return text;
}

std::string fish(const App& root) {
  std::string text = "# fish completion for attend, made by: attend completion fish\ncomplete -c attend -f\n";
  text += fish_lines(root, root, "__fish_use_subcommand");
  for (const App& app : root.commands()) {
    text += fmt::format("complete -c attend -n __fish_use_subcommand -a {} -d {}\n", app.name(),
                        quoted(first_sentence(app.description())));
    text += fish_lines(app, root, "__fish_seen_subcommand_from " + app.name());
  }
  return text;
}

}  // namespace

Command add_completion(App& root) {
  App* app = root.add_subcommand("completion", "Print a script that completes attend's arguments in a shell.");
  app->examples(
      "source <(attend completion bash)\n"
      "attend completion zsh > ~/.zfunc/_attend\n"
      "attend completion fish > ~/.config/fish/completions/attend.fish");
  auto shell = std::make_shared<std::string>();
  choose_one(app->add_option("SHELL", *shell, "bash, zsh or fish"), "bash|zsh|fish")->required();
  const auto run = [&root, shell] { print(*shell == "bash" ? bash(root) : *shell == "zsh" ? zsh(root) : fish(root)); };
  return {app, run};
}

}  // namespace attend::cli
