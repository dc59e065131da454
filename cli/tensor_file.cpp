#include "cli/tensor_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "cli/command.h"
#include "cli/suggest.h"

namespace attend::cli {

TensorPath parse_tensor_path(const std::string& argument) {
  std::error_code error;
  if (std::filesystem::exists(argument, error)) return {argument, std::nullopt};
  for (std::size_t at = argument.find(':'); at != std::string::npos; at = argument.find(':', at + 1)) {
    const std::string file = argument.substr(0, at);
    if (std::filesystem::exists(file, error)) return {file, argument.substr(at + 1)};
  }
  return {argument, std::nullopt};
}

std::string choose_tensor(const TensorPath& path, const TensorMap& tensors) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) names.push_back(name);
  return choose_tensor(path, names);
}

std::string choose_tensor(const TensorPath& path, const std::vector<std::string>& names) {
  if (path.name) {
    if (std::ranges::find(names, *path.name) != names.end()) return *path.name;
    throw UsageError(fmt::format("{} holds no tensor '{}'{}", path.file, *path.name, did_you_mean(*path.name, names)));
  }
  if (names.size() == 1) return names.front();
  if (names.empty()) throw UsageError(fmt::format("{} holds no tensors", path.file));
  const std::size_t shown = std::min<std::size_t>(names.size(), 8);
  throw UsageError(fmt::format("{} holds {} tensors ({}{}): name one, as in {}:{}", path.file, names.size(),
                               fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
                               shown < names.size() ? ", ..." : "", path.file, names.front()));
}

Tensor read_tensor(const std::string& argument) {
  const TensorPath path = parse_tensor_path(argument);
  TensorMap tensors = read_tensors(path.file);
  return std::move(tensors.at(choose_tensor(path, tensors)));
}

}  // namespace attend::cli
