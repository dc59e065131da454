#include <algorithm>
#include <iterator>
#include <string_view>

#include "core/message.h"
#include "models/config.h"
#include "models/sentences/keys.h"
#include "models/tasks/head.h"

namespace attend::inline v1::models {

namespace {

using Reads = TaskHead::Reads;

constexpr const char* of_type = nullptr;  // an activation that config.json says

// What the tensors of a type's head are called, and what stands between them. tests/pytorch/test_task_heads.py holds it
// against Transformers' classes.
struct HeadRow {
  std::string_view types;  // between spaces
  ModelTask task;
  Reads reads;
  const char* output;                // of an output layer by the embeddings: its own weight, where it has one
  bool bias = true;                  // of the output
  const char* dense = nullptr;       // null: there is none
  bool inside = false;               // the dense layer is one of the model's own, the pooler
  const char* activation = of_type;  // a name of Transformers' ACT2FN
  const char* norm = nullptr;
  const char* other_norm = nullptr;   // as Transformers' modules are called, where that is another name
  const char* output_bias = nullptr;  // of an output by the embeddings, where that has a name of its own
};

constexpr std::string_view llamas = " llama mistral qwen2 qwen3 smollm3 phi3 olmo2 gemma2 gemma3_text ";
constexpr HeadRow rows[] = {
    {.types = " bert nomic_bert gte new ",
     .task = ModelTask::classify,
     .reads = Reads::first,
     .output = "classifier",
     .dense = "pooler.dense",
     .inside = true,
     .activation = "tanh"},
    {.types = " bert ",
     .task = ModelTask::fill,
     .reads = Reads::each,
     .output = "cls.predictions.decoder",
     .dense = "cls.predictions.transform.dense",
     .norm = "cls.predictions.transform.LayerNorm",
     .output_bias = "cls.predictions.bias"},
    {.types = " nomic_bert ",
     .task = ModelTask::fill,
     .reads = Reads::each,
     .output = "cls.predictions.decoder",
     .dense = "cls.predictions.transform.dense",
     .norm = "cls.predictions.transform.layer_norm",
     .output_bias = "cls.predictions.bias"},
    {.types = " electra ",
     .task = ModelTask::classify,
     .reads = Reads::first,
     .output = "classifier.out_proj",
     .dense = "classifier.dense",
     .activation = "gelu"},
    {.types = " electra ",
     .task = ModelTask::fill,
     .reads = Reads::each,
     .output = "generator_lm_head",
     .dense = "generator_predictions.dense",
     .activation = "gelu",
     .norm = "generator_predictions.LayerNorm"},
    {.types = " roberta xlm-roberta camembert mpnet ",
     .task = ModelTask::classify,
     .reads = Reads::first,
     .output = "classifier.out_proj",
     .dense = "classifier.dense",
     .activation = "tanh"},
    {.types = " roberta xlm-roberta camembert mpnet ",
     .task = ModelTask::fill,
     .reads = Reads::each,
     .output = "lm_head.decoder",
     .dense = "lm_head.dense",
     .activation = "gelu",
     .norm = "lm_head.layer_norm",
     .output_bias = "lm_head.bias"},
    {.types = " gte new ",
     .task = ModelTask::fill,
     .reads = Reads::each,
     .output = "lm_head.decoder",
     .dense = "lm_head.dense",
     .activation = "gelu",
     .norm = "lm_head.norm",
     .other_norm = "lm_head.layer_norm"},
    {.types = " distilbert ",
     .task = ModelTask::classify,
     .reads = Reads::first,
     .output = "classifier",
     .dense = "pre_classifier",
     .activation = "relu"},
    {.types = " distilbert ",
     .task = ModelTask::fill,
     .reads = Reads::each,
     .output = "vocab_projector",
     .dense = "vocab_transform",
     .norm = "vocab_layer_norm"},
    {.types = " albert ",
     .task = ModelTask::classify,
     .reads = Reads::first,
     .output = "classifier",
     .dense = "pooler",
     .inside = true,
     .activation = "tanh"},
    {.types = " albert ",
     .task = ModelTask::fill,
     .reads = Reads::each,
     .output = "predictions.decoder",
     .dense = "predictions.dense",
     .norm = "predictions.LayerNorm",
     .output_bias = "predictions.bias"},
    {.types = " modernbert ",
     .task = ModelTask::classify,
     .reads = Reads::mean,
     .output = "classifier",
     .dense = "head.dense",
     .norm = "head.norm"},
    {.types = " modernbert ",
     .task = ModelTask::tag,
     .reads = Reads::each,
     .output = "classifier",
     .dense = "head.dense",
     .norm = "head.norm"},
    {.types = " modernbert ",
     .task = ModelTask::fill,
     .reads = Reads::each,
     .output = "decoder",
     .dense = "head.dense",
     .norm = "head.norm"},
    {.types = " bert roberta xlm-roberta camembert mpnet distilbert albert electra nomic_bert gte new gpt2 gpt_neox ",
     .task = ModelTask::tag,
     .reads = Reads::each,
     .output = "classifier"},
    {.types = llamas, .task = ModelTask::classify, .reads = Reads::last, .output = "score", .bias = false},
    {.types = " gpt2 gpt_neox opt ",
     .task = ModelTask::classify,
     .reads = Reads::last,
     .output = "score",
     .bias = false},
    {.types = " bart t5 ",
     .task = ModelTask::classify,
     .reads = Reads::end,
     .output = "classification_head.out_proj",
     .dense = "classification_head.dense",
     .activation = "tanh"},
    {.types = llamas, .task = ModelTask::tag, .reads = Reads::each, .output = "score"},
};

const HeadRow* row_of(std::string_view type, ModelTask task) {
  const std::string word = fmt::format(" {} ", type);
  const auto* const found = std::ranges::find_if(
      rows, [&](const HeadRow& row) { return row.task == task && row.types.find(word) != std::string_view::npos; });
  return found == std::end(rows) ? nullptr : found;
}

Activation activation_of(const HeadRow& row, const Member& config) {
  if (row.activation) return read_activation({config.place(), nlohmann::json(row.activation)});
  for (const char* key : {"classifier_activation", "hidden_act", "activation"})
    if (config.given(key)) return read_activation(config[key]);
  return Activation::gelu;
}

double norm_eps(const Member& config) {
  for (const char* key : {"layer_norm_eps", "norm_eps"})
    if (config.given(key)) return number_from_0(config[key]);
  return 1e-12;
}

// ModernBERT's alone may lack biases, and says how it reads the rows.
TaskHead::Dense read_dense(Loading& loading, const HeadRow& row, const Member& config, std::int64_t in,
                           std::int64_t out) {
  const bool modern = config["model_type"].text() == "modernbert";
  TaskHead::Dense dense{loading.linear(row.dense, in, out, !modern || truth_or(config, "classifier_bias", false)),
                        activation_of(row, config)};
  const bool is_other = row.other_norm && loading.has_outside(std::string(row.other_norm) + ".weight");
  if (row.norm)
    dense.norm = loading.layer_norm(is_other ? row.other_norm : row.norm, out, norm_eps(config),
                                    !modern || truth_or(config, "norm_bias", false));
  return dense;
}

Reads read_pooling(const HeadRow& row, const Member& config) {
  if (row.reads != Reads::mean) return row.reads;
  if (!config.given("classifier_pooling")) return Reads::first;
  const Member said = config["classifier_pooling"];
  if (said.text() == "cls") return Reads::first;
  if (said.text() != "mean") fail_at(said.place(), "{} is not known here; cls and mean are", quote(said.text()));
  return Reads::mean;
}

void read_ends(const Member& config, TaskHead& head) {
  head.ends = end_ids(config);
  if (head.ends.empty()) fail_at(config.place(), "has no eos_token_id, which is the token that the head reads");
  head.start = id_of(config["decoder_start_token_id"]);
}

void read_problem(const Member& config, std::size_t labels, TaskHead& head) {
  if (!config.given("problem_type")) return;
  const Member said = config["problem_type"];
  const std::string type = said.text();
  head.several = type == "multi_label_classification";
  head.regression = type == "regression";
  if (!head.several && !head.regression && type != "single_label_classification")
    fail_at(said.place(),
            "{} is not known here; single_label_classification, multi_label_classification and regression are",
            quote(type));
  if (head.several && labels == 1) head.several = false;
}

}  // namespace

std::optional<ModelTask> task_of(const Loading& loading, const Member& config) {
  const std::string name = class_of_model(config), type = config["model_type"].text();
  const auto is = [&](std::string_view task) { return name.ends_with(fmt::format("For{}", task)); };
  const std::optional<ModelTask> task = is("SequenceClassification")          ? std::optional(ModelTask::classify)
                                        : is("TokenClassification")           ? std::optional(ModelTask::tag)
                                        : is("MaskedLM") || is("PreTraining") ? std::optional(ModelTask::fill)
                                                                              : std::nullopt;
  const HeadRow* row = task ? row_of(type, *task) : nullptr;
  if (!row) return std::nullopt;
  // A class whose head the file lacks says nothing: people keep the name and save the model alone.
  const bool there = loading.has_outside(std::string(row->output) + ".weight") ||
                     (row->dense && !row->inside && loading.has_outside(std::string(row->dense) + ".weight"));
  return there ? task : std::nullopt;
}

TaskHead read_head(Loading& loading, const Member& config, ModelTask task, const Matrix& words, const ModelInfo& info) {
  const HeadRow& row = *row_of(config["model_type"].text(), task);
  const std::int64_t E = task == ModelTask::classify && info.type == "opt" ? info.input_size : info.embedding_size;
  const std::int64_t wide = task == ModelTask::fill && info.input_size > 0 ? info.input_size : E;
  std::optional<TaskHead::Dense> dense;
  if (row.dense && row.inside) dense = read_dense(loading, row, config, E, wide);
  return loading.outside([&] {
    if (row.dense && !row.inside) dense = read_dense(loading, row, config, E, wide);
    const auto output = [&]() -> Linear {
      if (task != ModelTask::fill) return loading.linear(row.output, E, std::ssize(read_labels(config)), row.bias);
      const bool bias = info.type != "modernbert" || truth_or(config, "decoder_bias", true);
      return loading.words_output(row.output, words, wide, info.vocabulary, bias, row.output_bias,
                                  truth_or(config, "tie_word_embeddings", true));
    };
    TaskHead head{.task = task, .reads = read_pooling(row, config), .dense = std::move(dense), .output = output()};
    if (head.reads == Reads::last && config.given("pad_token_id")) head.padding = config["pad_token_id"].whole(-1);
    if (head.reads == Reads::end) read_ends(config, head);
    if (task == ModelTask::classify) read_problem(config, read_labels(config).size(), head);
    return head;
  });
}

std::vector<std::string> read_labels(const Member& config) {
  if (!config.given("id2label")) {
    std::vector<std::string> labels;
    const std::int64_t count = config.given("num_labels") ? config["num_labels"].whole(1, 1 << 20) : 2;
    for (std::int64_t n = 0; n < count; ++n) labels.push_back(fmt::format("LABEL_{}", n));
    return labels;
  }
  const Member said = config["id2label"];
  if (!said.value().is_object()) said.refuse("an object of labels by their numbers");
  std::vector<std::string> labels;
  for (std::size_t n = 0; n < said.value().size(); ++n) {
    const std::string key = std::to_string(n);
    if (!said.has(key.c_str()))
      fail_at(said.place(), "has {} labels and none for {}, expected 0 to {}", said.value().size(), key,
              said.value().size() - 1);
    labels.push_back(said[key.c_str()].text());
  }
  if (labels.empty()) said.refuse("a label or more");
  return labels;
}

}  // namespace attend::inline v1::models
