// Models by name: where attend model --get and Hugging Face's tools leave what they fetched.
#include "models/find_model.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "io/json_file.h"

namespace attend::inline v1 {

namespace {

namespace fs = std::filesystem;

fs::path environment(const char* name) {
  const char* value = std::getenv(name);
  fs::path path = value == nullptr ? "" : value;
  if (path.string().starts_with("~/") && std::getenv("HOME"))
    return fs::path(std::getenv("HOME")) / path.string().substr(2);
  return path;
}

// The user's cache folder; empty where the environment does not say where it is.
fs::path cache() {
  if (fs::path folder = environment("XDG_CACHE_HOME"); folder.is_absolute()) return folder;
  const fs::path home = environment("HOME");
  return home.empty() ? home : home / ".cache";
}

fs::path attend_cache() {
  return cache().empty() ? fs::path() : cache() / "attend" / "models";
}

// As huggingface_hub has it.
fs::path hub_cache() {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"})
    if (fs::path folder = environment(name); !folder.empty()) return folder;
  if (fs::path home = environment("HF_HOME"); !home.empty()) return home / "hub";
  return cache().empty() ? fs::path() : cache() / "huggingface" / "hub";
}

// What is in a folder, in the order of names; nothing where it can't be read.
std::vector<fs::path> inside(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> found;
  for (fs::directory_iterator each(folder, error), end; !error && each != end; each.increment(error))
    found.push_back(each->path());
  std::ranges::sort(found);
  return found;
}

std::vector<fs::path> gguf_files(const fs::path& folder) {
  std::vector<fs::path> files = inside(folder);
  std::erase_if(files, [](const fs::path& file) { return file.extension() != ".gguf" || is_folder(file); });
  return files;
}

// A part of a name, as Hugging Face allows it: it leads nowhere else.
bool is_plain(std::string_view part) {
  const auto may = [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_' || c == '.'; };
  return !part.empty() && part.front() != '.' && std::ranges::all_of(part, may) &&
         part.find("--") == std::string_view::npos;
}

// "org/model" -> "models--org--model"
std::string hub_folder(std::string_view name) {
  std::string folder = "models--";
  for (const char c : name) folder += c == '/' ? "--" : std::string(1, c);
  return folder;
}

// And back; empty for a folder of another kind.
std::string hub_name(const std::string& folder) {
  if (!folder.starts_with("models--")) return "";
  const std::string name = folder.substr(8);
  const std::size_t at = name.find("--");
  return at == std::string::npos ? name : name.substr(0, at) + "/" + name.substr(at + 2);
}

// The files of the model's main revision, or of the only one that is there; empty: there are none.
fs::path snapshot(std::string_view function, const fs::path& folder) {
  if (const fs::path main = folder / "refs" / "main"; is_there(main)) {
    const InputFile file(function, main);
    std::string revision = file.read(0, std::min<std::uint64_t>(file.size(), 100));
    while (!revision.empty() && std::isspace(static_cast<unsigned char>(revision.back()))) revision.pop_back();
    if (is_plain(revision) && is_there(folder / "snapshots" / revision)) return folder / "snapshots" / revision;
  }
  const std::vector<fs::path> all = inside(folder / "snapshots");
  return all.size() == 1 ? all.front() : fs::path();
}

// A folder that has no configuration, and one GGUF file, stands for that.
fs::path model_in(std::string_view function, const fs::path& folder, const std::string& name) {
  if (is_there(folder / "config.json") || is_there(folder / "modules.json")) return folder;
  const std::vector<fs::path> files = gguf_files(folder);
  if (files.size() == 1) return files.front();
  if (files.empty()) return folder;
  std::vector<std::string> names;
  names.reserve(files.size());
  for (const fs::path& file : files) names.push_back(quote(name + "/" + file.filename().string()));
  fail(ErrorCode::bad_file, function, "{} holds several models: {}", quote(name), fmt::join(names, ", "));
}

// "org/model", "model", "org/model/file.gguf"; empty: no such model is there.
fs::path find_in_hub(std::string_view function, const std::string& name) {
  std::string model = name, file;
  if (name.ends_with(".gguf") && name.find('/') != std::string::npos) {
    file = name.substr(name.rfind('/') + 1);
    model = name.substr(0, name.rfind('/'));
  }
  const std::size_t slash = model.find('/');
  const bool plain =
      is_plain(model.substr(0, slash)) && (slash == std::string::npos || is_plain(model.substr(slash + 1)));
  if (!plain || hub_cache().empty()) return {};
  const fs::path found = snapshot(function, hub_cache() / hub_folder(model));
  if (found.empty()) return {};
  if (file.empty()) return model_in(function, found, name);
  return is_plain(file) && is_there(found / file) ? found / file : fs::path();
}

std::int64_t bytes_of(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return static_cast<std::int64_t>(fs::file_size(path, error));
  std::int64_t sum = 0;
  for (fs::recursive_directory_iterator each(path, error), end; !error && each != end; each.increment(error)) {
    std::error_code none;
    const auto size = fs::file_size(each->path(), none);
    if (!none) sum += static_cast<std::int64_t>(size);
  }
  return sum;
}

// Of a folder's configuration; "" where none is said.
std::string type_of(const fs::path& path) {
  if (path.extension() == ".gguf") return "gguf";
  try {
    return read_json("cached_models", path / "config.json").root()["model_type"].text();
  } catch (const Error&) {
    return "";
  }
}

// A folder of either cache: itself, or each of its GGUF files.
void add(std::vector<CachedModel>& models, const std::string& name, const fs::path& folder) {
  const auto add_one = [&](const std::string& each, const fs::path& path) {
    models.push_back({each, path, type_of(path), bytes_of(path)});
  };
  if (is_there(folder / "config.json") || is_there(folder / "modules.json")) return add_one(name, folder);
  const std::vector<fs::path> files = gguf_files(folder);
  for (const fs::path& file : files) add_one(files.size() == 1 ? name : name + "/" + file.filename().string(), file);
}

}  // namespace

std::filesystem::path models::find(std::string_view function, const std::filesystem::path& path) {
  const std::string name = path.string();
  std::error_code error;
  if (fs::is_directory(path, error)) return model_in(function, path, name);
  if (is_there(path)) {
    if (path.extension() == ".gguf") return path;
    const std::string folder = path.has_parent_path() ? path.parent_path().string() : ".";
    fail(ErrorCode::bad_file, function,
         "{} is a file: expected a .gguf file, or the folder that a model's files are in, as {}", quote(name),
         quote(folder));
  }
  if (const fs::path own = attend_cache() / name; is_plain(name) && !attend_cache().empty() && is_there(own))
    return model_in(function, own, name);
  if (fs::path found = find_in_hub(function, name); !found.empty()) return found;
  fail(ErrorCode::bad_file, function,
       "no file or folder {}, and no model with that name in attend's cache or Hugging Face's ({}); nothing is "
       "downloaded",
       quote(name), hub_cache().string());
}

std::filesystem::path find_model(const std::filesystem::path& path) {
  return models::find("find_model", path);
}

std::vector<CachedModel> cached_models() {
  std::vector<CachedModel> models;
  if (!attend_cache().empty())
    for (const fs::path& folder : inside(attend_cache())) add(models, folder.filename().string(), folder);
  if (hub_cache().empty()) return models;
  for (const fs::path& folder : inside(hub_cache())) {
    const std::string name = hub_name(folder.filename().string());
    if (name.empty()) continue;
    if (const fs::path found = snapshot("cached_models", folder); !found.empty()) add(models, name, found);
  }
  return models;
}

}  // namespace attend::inline v1
