#include "models/own_tokenizer.h"

#include <algorithm>

#include "attend/models.h"
#include "io/json_file.h"
#include "models/gguf/read.h"

namespace attend::inline v1 {

namespace {

using nlohmann::json;

bool is_of_type(const json& normalizer, std::string_view type) {
  const auto found = normalizer.find("type");
  return found != normalizer.end() && found->is_string() && found->get_ref<const std::string&>() == type;
}

// A folder's, or the one that is in a GGUF file.
JsonFile tokenizer_json(const std::filesystem::path& path) {
  constexpr const char* function = "Model.embed";
  if (is_folder(path)) return read_json(function, path / "tokenizer.json");
  const Place place{function, quote(path.string())};
  return {place, parse_json(place, models::gguf_tokenizer_json(function, path))};
}

// The tokenizer.json with a Lowercase before what normalises there, unless one is there.
Tokenizer lower_case(const std::filesystem::path& path) {
  JsonFile file = tokenizer_json(path);
  (void)file.object();
  json& root = file.value;
  json& normalizer = root["normalizer"];
  json steps = json::array();
  if (is_of_type(normalizer, "Sequence") && normalizer.contains("normalizers")) {
    steps = normalizer["normalizers"];
  } else if (!normalizer.is_null()) {
    steps.push_back(normalizer);
  }
  if (steps.is_array() && std::ranges::none_of(steps, [](const json& each) { return is_of_type(each, "Lowercase"); })) {
    steps.insert(steps.begin(), json{{"type", "Lowercase"}});
    normalizer = json{{"type", "Sequence"}, {"normalizers", steps}};
  }
  return Tokenizer::parse(root.dump());
}

}  // namespace

const Tokenizer& models::OwnTokenizer::get() const {
  const std::lock_guard lock(mutex_);
  if (!read_) read_ = lower_case_ ? lower_case(path_) : Model::load_tokenizer(path_);
  return *read_;
}

}  // namespace attend::inline v1
