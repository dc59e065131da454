// Texts where ids belong: the model's own tokenizer stands between.
#include <algorithm>

#include "io/json_file.h"
#include "models/model.h"

namespace attend {

namespace {

using nlohmann::json;

bool is_lowercase(const json& normalizer) {
  return normalizer.is_object() && normalizer.value("type", json()) == "Lowercase";
}

// The tokenizer.json with a Lowercase before what normalises there, unless one is there.
Tokenizer lower_case(const std::filesystem::path& path) {
  JsonFile file = read_json("Model.embed", path);
  (void)file.object();
  json& root = file.value;
  json& normalizer = root["normalizer"];
  json steps = json::array();
  if (normalizer.is_object() && normalizer.value("type", json()) == "Sequence" && normalizer.contains("normalizers")) {
    steps = normalizer["normalizers"];
  } else if (!normalizer.is_null()) {
    steps.push_back(normalizer);
  }
  if (steps.is_array() && std::ranges::none_of(steps, is_lowercase)) {
    steps.insert(steps.begin(), json{{"type", "Lowercase"}});
    normalizer = json{{"type", "Sequence"}, {"normalizers", steps}};
  }
  return Tokenizer::parse(root.dump());
}

}  // namespace

const Tokenizer& models::OwnTokenizer::get() const {
  const std::lock_guard lock(mutex_);
  if (!read_) read_ = lower_case_ ? lower_case(path_ / "tokenizer.json") : Model::load_tokenizer(path_);
  return *read_;
}

const Tokenizer& Model::tokenizer() const {
  return parts_->tokenizer->get();
}

Tensor Model::forward(std::string_view text, const ModelCall& call) const {
  return forward(tokenizer().encode(text).ids, call);
}

std::string Model::generate(std::string_view text, const GenerateOptions& options) const {
  std::vector<std::int64_t> ids = tokenizer().encode(text).ids;
  const std::vector<std::int64_t> made = generate(ids, options);
  if (info().encoder_decoder()) return tokenizer().decode(made);
  const std::size_t before = tokenizer().decode(ids).size();
  ids.insert(ids.end(), made.begin(), made.end());
  const std::string all = tokenizer().decode(ids);
  return all.substr(std::min(before, all.size()));
}

}  // namespace attend
