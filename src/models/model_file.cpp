#include <filesystem>
#include <utility>

#include "models/gguf.h"
#include "models/model.h"

namespace attend {

using models::Loading;

namespace {

constexpr const char* function = "Model.load";

using Family = std::variant<models::Bert, models::Gpt2, models::Llama>;

nlohmann::json read_json(const std::filesystem::path& path) {
  const InputFile file(function, path);
  return parse_json(file.place(), file.read(0, file.size()));
}

bool is_gguf(const std::filesystem::path& path) {
  return path.extension() == ".gguf" && !std::filesystem::is_directory(path);
}

Family read_family(Loading& loading, const Member& config) {
  const Member type = config["model_type"];
  const std::string name = type.text();
  models::require(config, "quantization_config", nullptr);
  if (name == "bert" || name == "roberta" || name == "xlm-roberta" || name == "camembert" || name == "distilbert")
    return models::build<models::Bert>(loading, config);
  if (name == "gpt2") return models::build<models::Gpt2>(loading, config);
  if (name == "llama" || name == "mistral" || name == "qwen2" || name == "qwen3")
    return models::build<models::Llama>(loading, config);
  fail_at(type.place(),
          "{} is not known here; bert, roberta, xlm-roberta, camembert, distilbert, gpt2, llama, mistral, qwen2 and "
          "qwen3 are",
          quote(name));
}

std::string prefix_of(const Member& config) {
  const std::string name = config["model_type"].text();
  if (name == "gpt2") return models::Gpt2::prefix(config);
  return name == "llama" || name == "mistral" || name.starts_with("qwen") ? models::Llama::prefix(config)
                                                                          : models::Bert::prefix(config);
}

// A folder's generation_config.json may name more ids that end a text than its config.json.
void add_end_ids(const std::filesystem::path& folder, ModelInfo& info) {
  const std::filesystem::path path = folder / "generation_config.json";
  if (!info.decoder() || !std::filesystem::exists(path)) return;
  const nlohmann::json json = read_json(path);
  const std::vector<std::int64_t> ids = models::end_ids(Member({function, path.string()}, json));
  if (!ids.empty()) info.end = ids;
}

}  // namespace

Model Model::load(const std::filesystem::path& path, const ModelOptions& options) {
  if (options.dtype && options.dtype != DType::f32 && options.dtype != DType::bf16)
    fail(ErrorCode::bad_dtype, function, "dtype is {}, expected f32 or bf16", *options.dtype);
  const bool gguf = is_gguf(path);
  const std::filesystem::path config_path = gguf ? path : path / "config.json";
  models::Gguf file = gguf ? models::read_gguf(function, path)
                           : models::Gguf{read_json(config_path), models::Weights::open(function, path)};
  const Member config({function, config_path.string()}, file.config);
  Loading loading(std::move(file.weights), prefix_of(config), options.dtype);
  Family family = read_family(loading, config);
  ModelInfo info = std::visit([](const auto& of) { return of.info(); }, family);
  info.parameters = loading.parameters();
  if (!gguf) add_end_ids(path, info);
  return Model(std::make_shared<const Parts>(Parts{loading.keep(), std::move(family), std::move(info)}));
}

Tokenizer Model::load_tokenizer(const std::filesystem::path& path) {
  if (!is_gguf(path)) return Tokenizer::load(path / "tokenizer.json");
  return Tokenizer::parse(models::gguf_tokenizer("Model.load_tokenizer", path));
}

}  // namespace attend
