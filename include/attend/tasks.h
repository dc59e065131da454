// Answers of a model with a task's head: a text's class, passages ranked for a query, labels of tokens, words for a
// mask.
//
//     const attend::Model model = attend::Model::load("ms-marco-MiniLM-L6-v2");
//     for (const attend::Ranked& each : attend::rank(model, "Who wrote Faust?", passages).passages)
//       fmt::print("{:.3f} {}\n", each.score, passages[each.passage]);
//
// ModelInfo::task says what a model answers, ModelInfo::labels has its labels. Results follow Transformers' classes
// ...ForSequenceClassification, ...ForTokenClassification and ...ForMaskedLM, its pipelines, and sentence-transformers'
// CrossEncoder. Many texts run at a time on all cores, each with the bits it has alone. Functions throw bad_value for a
// model of another task and texts without tokens, bad_file for settings that attend does not know, and what
// Model::forward() throws.
#pragma once

#ifdef ATTEND_WITHOUT_MODELS
#error "attend was built with ATTEND_MODELS=OFF: it has no tasks.h"
#endif

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attend/api.h"
#include "attend/models.h"
#include "attend/tensor.h"
#include "attend/tokenizer.h"

namespace attend::inline v1 {

// A text, or a pair.
struct ATTEND_API TaskText {
  std::string_view text;
  std::optional<std::string_view> second = {};
};

// How logits become scores.
enum class ATTEND_API ScoreFunction : std::uint8_t { none, sigmoid, softmax };
// "none", "sigmoid", "softmax"
ATTEND_API std::string_view name_of(ScoreFunction function);
ATTEND_API std::span<const ScoreFunction> score_functions();

// How texts become tokens, and progress.
struct ATTEND_API TaskOptions {
  // Most tokens of a text or pair; none: as the folder says. Never more than the model takes. In a pair the longer text
  // is cut first. truncate: false: longer ones are bad_value.
  std::optional<std::int64_t> max_tokens = {};
  bool truncate = true;
  std::function<void(double)> progress = {};  // called with the share done, 0 to 1; may throw
};

struct ATTEND_API ClassifyOptions : TaskOptions {
  // Default: from config.json's problem_type, as Transformers' pipeline. Regression: none; several labels for a text,
  // or one label: sigmoid; else softmax.
  std::optional<ScoreFunction> function = {};
};
struct ATTEND_API Classification {
  Tensor logits, scores;  // [texts,labels], f32, in the order given
  ScoreFunction function = ScoreFunction::softmax;
  std::int64_t cut = 0;  // how many texts were too long
};
ATTEND_API Classification classify(const Model& model, std::span<const TaskText> texts,
                                   const ClassifyOptions& options = {});

struct ATTEND_API RankOptions : TaskOptions {
  // Default: as CrossEncoder: the folder's activation_fn, else sigmoid. For token vectors: ScoreFunction::none.
  std::optional<ScoreFunction> function = {};
  std::optional<std::int64_t> count = {};  // only this many of the best; none: all
  // Text before the query; none: the folder's default prompt, if any.
  std::optional<std::string> prompt = {};
};
struct ATTEND_API Ranked {
  std::int64_t passage = 0;
  double score = 0;
};
struct ATTEND_API Ranking {
  std::vector<Ranked> passages;  // by score, descending (ties: the first)
  ScoreFunction function = ScoreFunction::sigmoid;
  std::int64_t cut = 0;  // how many pairs were too long
};
// Ranks by a head with one label, or by MaxSim if the model has token vectors (attend/late_interaction.h). Throws
// bad_value for a model with several labels: use classify() with pairs.
ATTEND_API Ranking rank(const Model& model, std::string_view query, std::span<const std::string_view> passages,
                        const RankOptions& options = {});
ATTEND_API Ranking rank(const Model& model, std::string_view query, std::span<const std::string> passages,
                        const RankOptions& options = {});

// How tokens become spans, as in Transformers' pipeline. none: each token. simple: neighbours with one label, using B-
// and I-. first, max, average: whole words, labelled by the first token, the token with the highest score, or the mean
// score; then as simple.
enum class ATTEND_API Aggregation : std::uint8_t { none, simple, first, max, average };
// "none", "simple", ...
ATTEND_API std::string_view name_of(Aggregation aggregation);
ATTEND_API std::span<const Aggregation> aggregations();

struct ATTEND_API TagOptions : TaskOptions {
  Aggregation aggregation = Aggregation::simple;
  std::vector<std::string> without = {"O"};  // labels to leave out
};
struct ATTEND_API Tag {
  std::string label;  // with Aggregation::none the model's; else without B- and I-
  double score = 0;
  Range span = {};  // bytes of the text
};
struct ATTEND_API Tagged {
  Encoding tokens;
  Tensor scores;  // [tokens,labels], softmax of each token's logits
  std::vector<Tag> tags = {};
  bool cut = false;
};
ATTEND_API std::vector<Tagged> tag(const Model& model, std::span<const std::string_view> texts,
                                   const TagOptions& options = {});
ATTEND_API std::vector<Tagged> tag(const Model& model, std::span<const std::string> texts,
                                   const TagOptions& options = {});

struct ATTEND_API Filling {
  std::int64_t id = 0;
  std::string token;  // as text
  double probability = 0;
  std::string text;  // the whole text with it for the mask; other masks stay
};
// For each mask, in order, the `count` likeliest tokens, descending. Throws bad_value for a text without a mask.
ATTEND_API std::vector<std::vector<Filling>> fill(const Model& model, std::string_view text, std::int64_t count = 5);

// The head's logits, f32: classify [sequences,labels], tag [N,labels], fill [N,vocabulary]. Also for a decoder with a
// head; an encoder-decoder's decoder reads the same ids.
ATTEND_API Tensor task_logits(const Model& model, std::span<const std::int64_t> ids, const ModelCall& call = {});

}  // namespace attend::inline v1
