#include "models/model_types.h"

#include "core/message.h"
#include "io/file.h"

namespace attend::inline v1 {

namespace {

using models::ModelType;

// What each family is.
struct FamilyRow {
  ModelFamily family;
  std::string_view name;
  bool encodes, decodes;
};
constexpr FamilyRow families[] = {
    {.family = ModelFamily::bert, .name = "bert", .encodes = true, .decodes = false},
    {.family = ModelFamily::gpt2, .name = "gpt2", .encodes = false, .decodes = true},
    {.family = ModelFamily::llama, .name = "llama", .encodes = false, .decodes = true},
    {.family = ModelFamily::gpt_neox, .name = "gpt_neox", .encodes = false, .decodes = true},
    {.family = ModelFamily::opt, .name = "opt", .encodes = false, .decodes = true},
    {.family = ModelFamily::modernbert, .name = "modernbert", .encodes = true, .decodes = false},
    {.family = ModelFamily::bart, .name = "bart", .encodes = true, .decodes = true},
    {.family = ModelFamily::t5, .name = "t5", .encodes = true, .decodes = true},
    {.family = ModelFamily::t5_encoder, .name = "t5_encoder", .encodes = true, .decodes = false},
    {.family = ModelFamily::llama_encoder, .name = "llama_encoder", .encodes = true, .decodes = false},
    {.family = ModelFamily::static_table, .name = "static_table", .encodes = true, .decodes = false},
};

// tests/pytorch/test_transformers_registry.py holds the classes against Transformers. jina_bert is what
// published_config.h makes of Jina's BERTs, which have no class there.
constexpr ModelType types[] = {
    {"bert", ModelFamily::bert, "BertModel", "bert.", "bert"},
    {"roberta", ModelFamily::bert, "RobertaModel", "roberta."},
    {"xlm-roberta", ModelFamily::bert, "XLMRobertaModel", "roberta.", "bert"},
    {"camembert", ModelFamily::bert, "CamembertModel", "roberta."},
    {"distilbert", ModelFamily::bert, "DistilBertModel", "distilbert.", "bert"},
    {"mpnet", ModelFamily::bert, "MPNetModel", "mpnet."},
    {"albert", ModelFamily::bert, "AlbertModel", "albert."},
    {"electra", ModelFamily::bert, "ElectraModel", "electra."},
    {"nomic_bert", ModelFamily::bert, "NomicBertModel", "nomic_bert.", {}, "bert."},
    {"gte", ModelFamily::bert, "GteModel", "gte.", {}, "new."},
    {"jina_bert", ModelFamily::bert, "JinaBertModel", "bert."},
    {"modernbert", ModelFamily::modernbert, "ModernBertModel", "model.", "modern-bert"},
    {"gpt2", ModelFamily::gpt2, "GPT2LMHeadModel", "transformer.", "gpt2"},
    {"llama", ModelFamily::llama, "LlamaForCausalLM", "model.", "llama"},
    {"mistral", ModelFamily::llama, "MistralForCausalLM", "model.", "llama"},
    {"qwen2", ModelFamily::llama, "Qwen2ForCausalLM", "model.", "qwen2"},
    {"qwen3", ModelFamily::llama, "Qwen3ForCausalLM", "model.", "qwen3"},
    {"smollm3", ModelFamily::llama, "SmolLM3ForCausalLM", "model.", "smollm3"},
    {"phi3", ModelFamily::llama, "Phi3ForCausalLM", "model.", "phi3"},
    {"olmo2", ModelFamily::llama, "Olmo2ForCausalLM", "model."},
    {"gemma2", ModelFamily::llama, "Gemma2ForCausalLM", "model.", "gemma2"},
    {"gemma3_text", ModelFamily::llama, "Gemma3ForCausalLM", "model.", "gemma3"},
    {"gpt_neox", ModelFamily::gpt_neox, "GPTNeoXForCausalLM", "gpt_neox."},
    {"opt", ModelFamily::opt, "OPTForCausalLM", "model."},
    {"bart", ModelFamily::bart, "BartForConditionalGeneration", "model."},
    {"marian", ModelFamily::bart, "MarianMTModel", "model."},
    {"t5", ModelFamily::t5, "T5ForConditionalGeneration", "transformer."},
};

const FamilyRow& row_of(ModelFamily family) {
  const auto found = std::ranges::find(families, family, &FamilyRow::family);
  if (found != std::end(families)) return *found;
  fail(ErrorCode::bad_value, "name_of", "there is no model family {}", static_cast<int>(family));
}

}  // namespace

std::string_view name_of(ModelFamily family) {
  return row_of(family).name;
}

std::string_view name_of(VectorKind kind) {
  constexpr std::string_view names[] = {"sentence", "token", "sparse"};
  if (const auto n = static_cast<std::size_t>(kind); n < std::size(names)) return names[n];
  fail(ErrorCode::bad_value, "name_of", "there is no kind of vectors {}", static_cast<int>(kind));
}

std::string_view name_of(ModelTask task) {
  constexpr std::string_view names[] = {"classify", "tag", "fill"};
  if (const auto n = static_cast<std::size_t>(task); n < std::size(names)) return names[n];
  fail(ErrorCode::bad_value, "name_of", "there is no model task {}", static_cast<int>(task));
}

bool ModelInfo::decoder() const {
  return row_of(family).decodes;
}

bool ModelInfo::encoder_decoder() const {
  return row_of(family).encodes && row_of(family).decodes;
}

std::span<const ModelType> models::model_types() {
  return types;
}

const ModelType* models::find_model_type(std::string_view name) {
  const auto* const found = std::ranges::find(types, name, &ModelType::name);
  return found == std::end(types) ? nullptr : found;
}

void models::fail_no_row(std::string_view type) {
  fail(ErrorCode::bad_value, "Model", "there is no row for models of type {}", quote(type));
}

const ModelType& models::model_type(std::string_view name) {
  return row_of_type(types, name);
}

}  // namespace attend::inline v1
