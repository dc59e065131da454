// The command line as data: commands, their options, and where each value goes. root.cpp reads a line by it; help and
// completion are made from it.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace attend::cli {

// An option, or an argument, which has a place instead of a dash.
class Option {
 public:
  // Where the value goes. bool: a flag, which has none. A vector: an option that may be given several times, an
  // argument that takes all that follow. Nothing: --help and --version, which end the reading.
  using Value = std::variant<std::monostate, bool*, int*, std::int64_t*, std::uint64_t*, std::string*,
                             std::optional<std::int64_t>*, std::optional<std::uint64_t>*, std::optional<std::string>*,
                             std::vector<std::string>*>;
  // What is wrong with a value; "" where nothing is.
  using Check = std::function<std::string(const std::string&)>;

  Option(std::string names, Value value, std::string description)
      : names_(std::move(names)), value_(value), description_(std::move(description)) {}

  Option* type_name(std::string type) { return type_ = std::move(type), this; }
  // The heading of the help that it stands under.
  Option* group(std::string heading) { return group_ = std::move(heading), this; }
  Option* required() { return required_ = true, this; }
  Option* check(Check check) { return checks_.push_back(std::move(check)), this; }
  Option* excludes(const Option* other) { return excluded_.push_back(other), this; }

  // As declared: "-o,--output", "TEXT".
  const std::string& names() const { return names_; }
  // "-o", "--output"; none of an argument.
  std::vector<std::string> spellings() const;
  bool is_argument() const { return !names_.starts_with('-'); }
  bool takes_value() const { return value_.index() > 1; }
  bool takes_many() const { return std::holds_alternative<std::vector<std::string>*>(value_); }
  const Value& value() const { return value_; }
  const std::string& type_name() const { return type_; }
  const std::string& group() const { return group_; }
  const std::string& description() const { return description_; }
  bool is_required() const { return required_; }
  const std::vector<Check>& checks() const { return checks_; }
  const std::vector<const Option*>& excluded() const { return excluded_; }

 private:
  std::string names_;
  Value value_;
  std::string description_, type_ = "TEXT", group_ = "Options";
  bool required_ = false;
  std::vector<Check> checks_;
  std::vector<const Option*> excluded_;
};

// A command and its options; the root's has the subcommands.
class App {
 public:
  App(std::string name, std::string description, const App* parent = nullptr);
  App(const App&) = delete;
  App& operator=(const App&) = delete;

  App* add_subcommand(std::string name, std::string description);
  // Options that are added from here on stand under that heading.
  void begin_group(std::string heading) { group_ = std::move(heading); }
  template <class T>
  Option* add_option(std::string names, T& value, std::string description) {
    return options_.emplace_back(std::move(names), &value, std::move(description)).group(group_);
  }
  Option* add_flag(std::string names, bool& value, std::string description) {
    return add_option(std::move(names), value, std::move(description));
  }
  // One that ends the reading, as --help does.
  void add_last(std::string names, std::string description);
  // Lines of the help's examples.
  void examples(std::string lines) { examples_ = std::move(lines); }

  const std::string& name() const { return name_; }
  // With its parent's: "attend explain".
  std::string full_name() const { return parent_ == nullptr ? name_ : parent_->name_ + " " + name_; }
  const std::string& description() const { return description_; }
  const std::string& examples() const { return examples_; }
  const std::list<Option>& all_options() const { return options_; }
  // Those with dashes, and those without.
  std::vector<const Option*> options() const;
  std::vector<const Option*> arguments() const;
  const std::list<App>& commands() const { return commands_; }

 private:
  std::vector<const Option*> chosen(bool arguments) const;

  std::string name_, description_, examples_, group_ = "Options";
  const App* parent_;
  std::list<Option> options_;  // which point to each other
  std::list<App> commands_;
};

}  // namespace attend::cli
