#include "models/pooling.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "io/json_member.h"

namespace attend::models {

namespace {

namespace fs = std::filesystem;

constexpr const char* here = "the mean over all tokens, scaled to length 1, is what embed() gives";

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// The file's JSON, and check(it).
template <class Check>
void read(const fs::path& path, Check check) {
  const InputFile file("Model.embed", path);
  const nlohmann::json json = parse_json(file.place(), file.read(0, file.size()));
  check(Member(file.place(), json));
}

// modules.json: what follows the model, and where the poolings among it are described. Where it names Normalize,
// lengths are 1 there as well.
std::vector<std::string> pooling_folders(const Member& modules) {
  std::vector<std::string> folders;
  for (const Member& module : modules.list()) {
    const std::string type = module["type"].text(), name = type.substr(type.rfind('.') + 1);
    if (name != "Transformer" && name != "Pooling" && name != "Normalize")
      fail_at(module["type"].place(), "{} is not known here; {}", quote(type), here);
    if (name != "Pooling") continue;
    const std::string folder = module["path"].text();
    // What is read lies in the folder: whoever wrote the file does not choose among this machine's.
    if (folder == ".." || folder.find('/') != std::string::npos) module["path"].refuse("a folder's name");
    folders.push_back(folder);
  }
  if (folders.empty()) fail_at(modules.place(), "no module is a Pooling; {}", here);
  return folders;
}

// "mean" among several modes is a part of what comes; without a mode it is the mean.
void check_modes(const Member& config) {
  if (!config.value().is_object()) config.refuse("an object");
  const bool named = config.has("pooling_mode");
  for (const auto& [key, value] : config.value().items()) {
    const bool is_mean = named
                             ? key != "pooling_mode" || value == "mean" || value == nlohmann::json::array({"mean"})
                             : !key.starts_with("pooling_mode_") || key == "pooling_mode_mean_tokens" || value == false;
    if (!is_mean || (key == "include_prompt" && value != true))
      fail_at(config.place().in(key), "{} is not known here; {}", quote(value.dump()), here);
  }
}

}  // namespace

void check_pooling(const fs::path& folder) {
  std::vector<std::string> poolings;
  if (is_there(folder / "modules.json")) {
    read(folder / "modules.json", [&](const Member& modules) { poolings = pooling_folders(modules); });
  } else if (is_there(folder / "1_Pooling" / "config.json")) {
    poolings = {"1_Pooling"};
  }
  for (const std::string& each : poolings) read(folder / each / "config.json", check_modes);
}

}  // namespace attend::models
