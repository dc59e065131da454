// Model to GGUF file: a folder through the descriptions of its architecture and its tokenizer, another GGUF file value
// by value.
#include "io/json_file.h"
#include "models/find_model.h"
#include "models/generation_config.h"
#include "models/gguf/config.h"
#include "models/gguf/describe.h"
#include "models/gguf/own_keys.h"
#include "models/gguf/tensor_types.h"
#include "models/loading.h"
#include "models/model.h"
#include "models/model_types.h"
#include "models/published_config.h"

namespace attend::inline v1 {

namespace {

using namespace models;
namespace fs = std::filesystem;

constexpr const char* quantize_function = "quantize";
constexpr const char* file_type = "general.file_type";

Quantized write(const fs::path& path, const GgufValues& values, const std::vector<GgufSource>& tensors) {
  Quantized out{.tensors = std::ssize(tensors)};
  for (const GgufSource& each : tensors) {
    out.parameters += each.numbers.count();
    if (quantized(each.type)) ++out.quantized;
  }
  out.bytes = static_cast<std::int64_t>(write_gguf(quantize_function, path, values, tensors));
  return out;
}

// ---- A GGUF file ----

DType dtype_of(const Place& place, const GgufTensor& tensor) {
  switch (tensor.type) {
    case GgufType::f32:
      return DType::f32;
    case GgufType::f16:
      return DType::f16;
    case GgufType::bf16:
      return DType::bf16;
    default:
      fail_at(place.in("tensor " + quote(tensor.name)),
              "is {} already: what it lost would be lost again; give the folder, or a file in F32, F16 or BF16",
              name_of(tensor.type));
  }
}

Quantized quantize_gguf(const fs::path& path, const fs::path& out, const GgufMixture& mixture) {
  const GgufFile file(quantize_function, path);
  const std::string name = file.text("general.architecture");
  const nlohmann::json config = gguf_config(file, gguf_architecture(file));  // refuses what is not known
  GgufValues values;
  values.add_text("general.architecture", name);
  for (const std::string_view key : file.keys())
    if (key != "general.architecture" && key != file_type && key != "general.alignment")
      values.add_bytes(key, file.bytes(key));
  values.add_whole(file_type, mixture.number);
  std::vector<GgufSource> tensors;
  for (const GgufTensor& each : file.tensors())
    tensors.push_back({.name = each.name,
                       .numbers = View(file.map()->data() + each.begin, dtype_of(file.place(), each), each.shape)});
  const auto heads = config["num_attention_heads"].get<std::int64_t>();
  choose_types(mixture,
               {.architecture = name,
                .layers = config["num_hidden_layers"].get<std::int64_t>(),
                .heads = heads,
                .kv_heads = config.value("num_key_value_heads", heads)},
               tensors);
  return write(out, values, tensors);
}

// ---- A folder ----

template <class Family>
ModelInfo check(Loading& loading, const Member& config) {
  const Family trial(loading, config);
  loading.check();
  if (const auto& head = loading.ignored_head(); head && head->of_task)
    fail_at(config.place(), "a model with a task's head ({}*) can't be said in GGUF", head->begin);
  return trial.info();
}

// Of one of the families that are written as GGUF.
ModelInfo check_folder(ModelFamily family, Loading& loading, const Member& config) {
  if (family == ModelFamily::bert) return check<Bert>(loading, config);
  if (family == ModelFamily::modernbert) return check<ModernBert>(loading, config);
  return family == ModelFamily::gpt2 ? check<Gpt2>(loading, config) : check<Llama>(loading, config);
}

// generation_config.json; null: there is none.
nlohmann::json generation_of(const fs::path& folder) {
  const fs::path path = folder / "generation_config.json";
  return is_there(path) ? read_json(quantize_function, path).object().value() : nlohmann::json();
}

// GGUF has a key for some poolings. A decoder's that is read without it is left unsaid: it is not there for vectors.
void describe_sentences(const SentenceModules& modules, const Member& config, const ModelInfo& info,
                        GgufDescription& to) {
  SentenceModules plain = plain_sentences(config, info.embedding_size, info.longest);
  const std::optional<std::int64_t> type = gguf_pooling_type(modules.pooling.modes);
  if (type && (!info.decoder() || plain.pooling.modes != modules.pooling.modes)) {
    to.values.add_whole(to.prefix + "pooling_type", *type);
    plain.pooling.modes = modules.pooling.modes;
  }
  models::describe_sentences(modules, plain, to.values);
}

Quantized quantize_folder(const fs::path& path, const fs::path& out, const GgufMixture& mixture) {
  const fs::path folder = transformer_folder(path);
  const JsonFile file = read_json(quantize_function, folder / "config.json");
  const nlohmann::json native = native_config(file.object());
  const Member said(file.place, native);
  const GgufArchitecture& architecture = gguf_architecture_of(said["model_type"]);
  const nlohmann::json complete = complete_config(said);
  const Member config(file.place, complete);
  const ModelType& model = model_type(architecture.type);
  Loading loading(Weights::open(quantize_function, folder), model.prefix, DType::f32);
  ModelInfo info = check_folder(model.family, loading, config);
  if (info.family != model.family)
    fail_at(config.place(), "a GGUF file of type {} is of a {}, and this model is of family {}", model.name,
            name_of(model.family), name_of(info.family));
  const nlohmann::json generation = generation_of(folder);
  const bool is_config = generation.is_null();
  if (info.decoder()) read_generation(is_config ? file.root() : Member(file.place, generation), is_config, info);
  const SentenceModules sentences = read_sentences(path, file.root(), info.embedding_size, info.longest);
  const Loading::Kept kept = loading.keep();

  GgufDescription description;
  description.prefix = std::string(model.gguf) + ".";
  description.values.add_text("general.architecture", model.gguf);
  description.values.add_text("general.type", "model");
  description.values.add_whole("general.quantization_version", 2);
  description.values.add_whole(file_type, mixture.number);
  architecture.describe(config, info, description);
  describe_folder(file.value, generation, description.values);
  describe_sentences(sentences, file.root(), info, description);
  const bool tied = !info.decoder() || config["tie_word_embeddings"].truth();
  describe_weights(architecture, kept.weights, info, tied, description);
  choose_types(mixture,
               {.architecture = model.gguf, .layers = info.layers, .heads = info.heads, .kv_heads = info.kv_heads},
               description.tensors);
  describe_tokenizer(quantize_function, folder, info, sentences.texts.lower_case, description.values);
  return write(out, description.values, description.tensors);
}

}  // namespace

std::optional<QuantizedType> file_type_named(std::string_view name) {
  const GgufMixture* found = mixture_named(name);
  return found ? std::optional(found->quantized) : std::nullopt;
}

Quantized quantize(const fs::path& model, const fs::path& out, QuantizedType type) {
  const GgufMixture* mixture = mixture_of(type);
  if (!mixture)
    fail(ErrorCode::bad_value, quantize_function, "type is {}, expected Q8_0, Q6_K, Q5_K, Q4_K or Q4_0", name_of(type));
  const fs::path path = find(quantize_function, model);
  return is_gguf_file(path) ? quantize_gguf(path, out, *mixture) : quantize_folder(path, out, *mixture);
}

}  // namespace attend::inline v1
