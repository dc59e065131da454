#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "io/json_file.h"
#include "models/find_model.h"
#include "models/generation_config.h"
#include "models/gguf/config.h"
#include "models/gguf/own_keys.h"
#include "models/gguf/read.h"
#include "models/model.h"
#include "models/model_types.h"
#include "models/other_types.h"
#include "models/published_config.h"
#include "models/tasks/logit_score.h"
#include "models/tasks/task_texts.h"

namespace attend::inline v1 {

using models::Loading;

namespace {

constexpr const char* model_file_function = "Model.load";

using models::Family;
using models::ModelType;

struct Opened {
  JsonFile config;
  models::Weights weights;
  std::optional<models::GgufFile> gguf = {};
};

Opened open(const std::filesystem::path& path) {
  if (!models::is_gguf_file(path))
    return {read_json(model_file_function, path / "config.json"), models::Weights::open(model_file_function, path)};
  models::Gguf file = models::read_gguf(model_file_function, path);
  return {{file.weights.place(), std::move(file.config)}, std::move(file.weights), std::move(file.file)};
}

// The family, and in `head` what it answers its task by, if it has one.
class Reader {
 public:
  Reader(Loading& loading, const Member& config) : loading_(loading), config_(config) {
    task_ = models::task_of(loading, config);
    if (task_) loading.has_task();
  }

  Family read(ModelFamily family) {
    switch (family) {
      case ModelFamily::bert:
        return build<models::Bert>();
      case ModelFamily::gpt2:
        return build<models::Gpt2>();
      case ModelFamily::llama:
      case ModelFamily::llama_encoder:
        return build<models::Llama>();
      case ModelFamily::gpt_neox:
        return build<models::GptNeox>();
      case ModelFamily::opt:
        return build<models::Opt>();
      case ModelFamily::modernbert:
        return build<models::ModernBert>();
      case ModelFamily::bart:
        return build<models::Bart>();
      case ModelFamily::t5:
        if (!models::is_t5_encoder(config_)) return build<models::T5>();
        [[fallthrough]];
      case ModelFamily::t5_encoder:
        return build<models::T5Encoder>();
      case ModelFamily::static_table:  // of which no config.json speaks as one of a type
        break;
    }
    fail(ErrorCode::bad_value, model_file_function, "there is no model family {}", static_cast<int>(family));
  }
  std::optional<models::TaskHead>& head() { return head_; }

 private:
  template <class Of>
  Family build() {
    return models::build<Of>(loading_, config_, [&](const Of& family) {
      if constexpr (requires { family.words(); })
        if (task_) head_.emplace(models::read_head(loading_, config_, *task_, family.words(), family.info()));
    });
  }

  Loading& loading_;
  const Member& config_;
  std::optional<ModelTask> task_;
  std::optional<models::TaskHead> head_;
};

const ModelType& type_of(const Member& config) {
  const Member member = config["model_type"];
  const std::string name = member.text();
  if (const ModelType* found = models::find_model_type(name)) return *found;
  fail_at(member.place(), "{} is not known here; {}docs/models.md lists the types that are known", quote(name),
          models::record_takes(name) ? "attend.transformers.record (Python) looks into it, computed by PyTorch; " : "");
}

// What stands before the names of the file's tensors where it has a task's head too.
const char* prefix_in(const models::Weights& weights, const ModelType& type) {
  const auto is_older = [&](const auto& each) { return each.first.starts_with(type.older_prefix); };
  return type.older_prefix && std::ranges::any_of(weights.all(), is_older) ? type.older_prefix : type.prefix;
}

// Where a folder has a generation_config.json, it says how a text is written, and config.json does not.
void read_generation(const std::filesystem::path& folder, const Member& config, ModelInfo& info) {
  const std::filesystem::path path = folder / "generation_config.json";
  if (!info.decoder()) return;
  if (!is_there(path)) return models::read_generation(config, true, info);
  models::read_generation(read_json(model_file_function, path).object(), false, info);
}

// Numbers of a last hidden state: the stream's, but of OPT-350m.
std::int64_t hidden_size(const Model::Parts& parts) {
  return std::visit(
      [&](const auto& of) {
        if constexpr (requires { of.hidden_size(); }) return of.hidden_size();
        return parts.info.embedding_size;
      },
      parts.family);
}

// That of the most bytes first.
std::vector<std::string> names_of(const std::map<std::string_view, std::int64_t>& formats) {
  std::vector<std::pair<std::int64_t, std::string_view>> sorted;
  sorted.reserve(formats.size());
  for (const auto& [name, bytes] : formats) sorted.emplace_back(-bytes, name);
  std::ranges::sort(sorted);
  std::vector<std::string> names;
  names.reserve(sorted.size());
  for (const auto& [bytes, name] : sorted) names.emplace_back(name);
  return names;
}

// As the class that config.json names is called, else as its tensors are.
std::string name_of(const Loading::IgnoredHead& head, const Member& config) {
  const std::string own = models::class_of_model(config);
  const std::size_t at = own.rfind("For");
  if (at == std::string::npos || own.ends_with("ForCausalLM") || own.ends_with("ForConditionalGeneration"))
    return head.begin.substr(0, head.begin.find('.'));
  return own.substr(at + 3);
}

void read_task(const Member& config, ModelTask task, ModelInfo& info) {
  info.task = task;
  const std::string name = models::class_of_model(config);
  info.head = name.substr(name.rfind("For") + 3);
  if (task != ModelTask::fill) info.labels = models::read_labels(config);
}

// Whether it was trained to answer for something else than text alone.
bool is_task(const ModelInfo& info) {
  return info.task && *info.task != ModelTask::fill;
}

void set_sentences(Model::Parts& parts, models::SentenceModules modules) {
  ModelInfo& info = parts.info;
  info.vector_size = modules.vector_size;
  info.max_seq_length = modules.texts.max_tokens;
  info.prompts = modules.texts.prompts;
  parts.sentences = std::move(modules);
}

void refuse_sentences(Model::Parts& parts, const Error& why) {
  parts.pooling = why;
  parts.info.embeds = false;
}

// Of a folder of token vectors embed() fails, and says what makes them.
void read_tokens(const std::filesystem::path& path, const Member& config, Model::Parts& parts) {
  ModelInfo& info = parts.info;
  info.vectors = VectorKind::token;
  refuse_sentences(parts,
                   Error(ErrorCode::bad_value, "Model.embed",
                         "the model has a vector for each token: embed_tokens() gives them, and rank() reads them"));
  try {
    models::TokenRules rules = models::read_token_rules(path, config, hidden_size(parts), info.longest);
    info.vector_size = rules.vector_size;
    info.max_seq_length = rules.texts.max_tokens;
    info.prompts = rules.texts.prompts;
    parts.tokens = std::move(rules);
  } catch (const Error& error) {
    parts.pooling = error;
  }
}

// The same of sparse ones.
void read_sparse(const std::filesystem::path& path, Model::Parts& parts) {
  ModelInfo& info = parts.info;
  info.vectors = VectorKind::sparse;
  refuse_sentences(
      parts, Error(ErrorCode::bad_value, "Model.embed", "the model gives weights to words: embed_sparse() makes them"));
  try {
    parts.sparse = models::read_sparse_pooling(path);
    if (!parts.texts) return;
    info.vector_size = info.vocabulary;
    info.max_seq_length = parts.texts->max_tokens;
    info.prompts = parts.texts->prompts;
  } catch (const Error& error) {
    parts.pooling = error;
  }
}

// How sentences become vectors, or why that is not known: embed() alone fails then. A task's head was trained to be
// what reads the hidden states: that they are vectors of their own, modules.json must say.
void read_sentences(const std::filesystem::path& path, const models::GgufFile* gguf, const Member& config, bool of_task,
                    Model::Parts& parts) {
  ModelInfo& info = parts.info;
  const std::int64_t size = hidden_size(parts);
  try {
    if (info.family == ModelFamily::bart)  // its decoder's states of the text, shifted; Marian's get random weights
      fail(ErrorCode::bad_file, "Model.embed",
           "what sentence-transformers uses as vectors for type {} is not known here; encoder_states() gives the "
           "encoder's states",
           info.type);
    if (of_task && !is_there(path / "modules.json"))
      fail(ErrorCode::bad_file, "Model.embed",
           "{} has a head for {} and no modules.json to say how its vectors are made", quote(path.string()), info.head);
    models::SentenceModules modules = gguf ? models::gguf_sentences(config, size, info.longest)
                                           : models::read_sentences(path, config, size, info.longest);
    if (gguf) models::read_own_sentences(*gguf, size, modules);
    set_sentences(parts, std::move(modules));
  } catch (const Error& error) {
    refuse_sentences(parts, error);
  }
}

// How a task's texts become ids, or why that is not known.
void read_texts(const std::filesystem::path& path, const Member& config, bool of_logits, Model::Parts& parts) {
  try {
    parts.texts = std::make_shared<const models::TaskTexts>(
        models::read_task_texts(path, config, of_logits, parts.head->task, parts.info.longest));
  } catch (const Error& error) {
    parts.texts_error = error;
  }
}

// A decoder that ranks by the logits of a yes and a no, where the folder says so: it stays a decoder besides.
bool read_logit_score(const std::filesystem::path& path, Model::Parts& parts) {
  const std::optional<models::LogitScore> score = models::read_logit_score(path, parts.info.vocabulary);
  if (!score) return false;
  parts.head = models::head_of(*score, models::output_of(parts, model_file_function));
  parts.info.task = ModelTask::classify, parts.info.head = "LogitScore", parts.info.labels = {"LABEL_0"};
  return true;
}

void read_vectors(const std::filesystem::path& path, const models::GgufFile* gguf, const Member& config, bool of_task,
                  Model::Parts& parts) {
  const VectorKind kind = gguf ? VectorKind::sentence : models::vector_kind(path, config);
  if (kind == VectorKind::token) return read_tokens(path, config, parts);
  if (kind == VectorKind::sparse) return read_sparse(path, parts);
  read_sentences(path, gguf, config, of_task, parts);
  // As SparseEncoder of sentence-transformers takes a model of which no such file speaks.
  const bool fills = parts.head && parts.head->task == ModelTask::fill;
  if (fills && !is_there(path / "modules.json")) parts.sparse.emplace();
}

// What the tensors say of a model, once they are loaded.
void count(const Loading& loading, ModelInfo& info) {
  if (info.input_size == 0) info.input_size = info.embedding_size;
  info.parameters = loading.parameters();
  info.activations = loading.activations();
  info.formats = names_of(loading.formats());
  info.weight_bytes = loading.weight_bytes();
}

std::shared_ptr<Model::Parts> load_static(const std::filesystem::path& path, const std::filesystem::path& inside,
                                          models::StaticFile& file, const ModelOptions& options) {
  Loading loading(file.weights, "", options.dtype, options.dtype.has_value(), options.activations);
  { const models::StaticTable trial(loading, file); }
  loading.check();
  models::StaticTable table(loading, file);
  ModelInfo info = table.info();
  count(loading, info);
  auto parts = std::make_shared<Model::Parts>(
      Model::Parts{.kept = loading.keep(), .family = std::move(table), .info = std::move(info)});
  try {
    set_sentences(*parts, models::read_static_sentences(path, inside, file.kind == models::StaticKind::model2vec,
                                                        parts->info.embedding_size));
  } catch (const Error& error) {
    refuse_sentences(*parts, error);
  }
  parts->tokenizer = std::make_unique<models::OwnTokenizer>(inside, false);
  return parts;
}

}  // namespace

Model Model::load(const std::filesystem::path& name, const ModelOptions& options) {
  if (options.dtype && options.dtype != DType::f32 && options.dtype != DType::bf16)
    fail(ErrorCode::bad_dtype, model_file_function, "dtype is {}, expected f32 or bf16", *options.dtype);
  const std::filesystem::path path = models::find(model_file_function, name);
  const std::filesystem::path inside = models::is_gguf_file(path) ? path : models::transformer_folder(path);
  if (!models::is_gguf_file(path))
    if (auto table = models::open_static(model_file_function, path, inside))
      return Model(load_static(path, inside, *table, options));
  Opened file = open(inside);
  const Member written = file.config.root();
  const nlohmann::json native = models::native_config(written);
  const Member said(written.place(), native);
  const ModelType& type = type_of(said);
  const nlohmann::json all = models::complete_config(said);
  const Member config(said.place(), all);
  const char* prefix = prefix_in(file.weights, type);
  Loading loading(std::move(file.weights), prefix, options.dtype ? options.dtype : models::said_dtype(config),
                  options.dtype.has_value(), options.activations);
  if (models::has_own_projection(said)) loading.ignore_beginning("linear.");
  Reader reader(loading, config);
  Family family = reader.read(type.family);
  ModelInfo info = std::visit([](const auto& of) { return of.info(); }, family);
  count(loading, info);
  const std::optional<Loading::IgnoredHead> head = loading.ignored_head();
  if (head) info.head = name_of(*head, said);
  if (reader.head()) read_task(said, reader.head()->task, info);
  if (!file.gguf) read_generation(inside, said, info);
  if (file.gguf && info.decoder()) models::read_own_generation(*file.gguf, info);
  auto parts = std::make_shared<Parts>(Parts{
      .kept = loading.keep(), .family = std::move(family), .info = std::move(info), .head = std::move(reader.head())});
  const bool of_logits = !file.gguf && !parts->head && read_logit_score(path, *parts);
  if (parts->head) read_texts(path, config, of_logits, *parts);
  read_vectors(path, file.gguf ? &*file.gguf : nullptr, said, (head && head->of_task) || is_task(parts->info), *parts);
  parts->tokenizer = std::make_unique<models::OwnTokenizer>(inside, false);
  const models::TextRules* of_vectors = parts->sentences ? &parts->sentences->texts
                                        : parts->tokens  ? &parts->tokens->texts
                                                         : nullptr;
  if (of_vectors && of_vectors->lower_case) parts->of_sentences = std::make_unique<models::OwnTokenizer>(inside, true);
  if (parts->texts && parts->texts->lower_case) parts->of_texts = std::make_unique<models::OwnTokenizer>(inside, true);
  return Model(std::move(parts));
}

Tokenizer Model::load_tokenizer(const std::filesystem::path& name) {
  const std::filesystem::path path = models::find("Model.load_tokenizer", name);
  constexpr const char* loading = "Model.load_tokenizer";
  tokenizer::TokenizerFile file = models::is_gguf_file(path)
                                      ? models::gguf_tokenizer(loading, path)
                                      : tokenizer::read_folder(loading, models::transformer_folder(path));
  return Tokenizer(std::make_shared<const Tokenizer::Parts>(Tokenizer::Parts{std::move(file)}));
}

}  // namespace attend::inline v1
