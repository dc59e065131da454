#include "cli/line.h"

#include <algorithm>

namespace attend::cli {

std::vector<std::string> Option::spellings() const {
  std::vector<std::string> spellings;
  for (std::size_t start = 0; !is_argument() && start < names_.size(); start += spellings.back().size() + 1)
    spellings.push_back(names_.substr(start, names_.find(',', start) - start));
  return spellings;
}

App::App(std::string name, std::string description, const App* parent)
    : name_(std::move(name)), description_(std::move(description)), parent_(parent) {
  add_last("-h,--help", "Show this help");
}

App* App::add_subcommand(std::string name, std::string description) {
  return &commands_.emplace_back(std::move(name), std::move(description), this);
}

void App::add_last(std::string names, std::string description) {
  options_.emplace_back(std::move(names), std::monostate(), std::move(description));
}

std::vector<const Option*> App::chosen(bool arguments) const {
  std::vector<const Option*> chosen;
  chosen.reserve(options_.size());
  for (const Option& option : options_)
    if (option.is_argument() == arguments) chosen.push_back(&option);
  return chosen;
}

std::vector<const Option*> App::options() const {
  return chosen(false);
}

std::vector<const Option*> App::arguments() const {
  return chosen(true);
}

}  // namespace attend::cli
