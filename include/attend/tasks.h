// What a model with a task's head answers: the class of a text, how well passages answer a query, the labels of tokens,
// the word for a mask.
//
//   const attend::Model model = attend::Model::load("ms-marco-MiniLM-L6-v2");
//   for (const attend::Ranked& each : attend::rank(model, "Who wrote Faust?", passages).passages)
//     fmt::print("{:.3f} {}\n", each.score, passages[each.passage]);
//
// ModelInfo::task says which of them a model answers, and ModelInfo::labels its labels. Truth: Transformers' classes
// ...ForSequenceClassification, ...ForTokenClassification and ...ForMaskedLM, its pipelines, and CrossEncoder of
// sentence-transformers. Texts go through the model many at a time, on all cores; each has the bits that it has alone.
// Functions throw bad_value for a model of another task and for texts without tokens, bad_file where the folder's files
// say what is not known here, and what Model::forward() throws.
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

namespace attend::inline v0 {

// A text, or a pair of texts.
struct ATTEND_API TaskText {
  std::string_view text;
  std::optional<std::string_view> second = {};
};

// What makes scores of logits.
enum class ATTEND_API ScoreFunction : std::uint8_t { none, sigmoid, softmax };
// "none", "sigmoid", "softmax"
ATTEND_API std::string_view name_of(ScoreFunction function);
ATTEND_API std::span<const ScoreFunction> score_functions();

// How texts become tokens, and who is told how far they are.
struct ATTEND_API TaskOptions {
  // Tokens of a text or a pair, at most: none: as the folder says, and never more than the model takes. Of a pair the
  // longer text is cut first. truncate: false: longer ones are bad_value.
  std::optional<std::int64_t> max_tokens = {};
  bool truncate = true;
  std::function<void(double)> progress = {};  // told the share that is done, from 0 to 1; may throw
};

// ---- Classes ----

struct ATTEND_API ClassifyOptions : TaskOptions {
  // None: as Transformers' pipeline has it, by problem_type of config.json. Regression: none; several labels of a text,
  // or one label: sigmoid; else softmax.
  std::optional<ScoreFunction> function = {};
};
struct ATTEND_API Classification {
  Tensor logits, scores;  // [texts,labels], f32, in the order given
  ScoreFunction function = ScoreFunction::softmax;
  std::int64_t cut = 0;  // how many texts were longer
};
ATTEND_API Classification classify(const Model& model, std::span<const TaskText> texts,
                                   const ClassifyOptions& options = {});

struct ATTEND_API RankOptions : TaskOptions {
  // None: as CrossEncoder has it: the folder's activation_fn, else sigmoid. Of token vectors: ScoreFunction::none.
  std::optional<ScoreFunction> function = {};
  std::optional<std::int64_t> count = {};  // so many of the best; none: all
  // What stands before the query; none: the folder's default prompt, if it has one.
  std::optional<std::string> prompt = {};
};
struct ATTEND_API Ranked {
  std::int64_t passage = 0;
  double score = 0;
};
struct ATTEND_API Ranking {
  std::vector<Ranked> passages;  // by their scores, falling; of equal ones the first
  ScoreFunction function = ScoreFunction::sigmoid;
  std::int64_t cut = 0;  // how many pairs were longer
};
// By a head of one label, or by MaxSim where the model has a vector for each token (attend/late_interaction.h). Throws
// bad_value for a model of more labels than one, which classify() takes pairs for.
ATTEND_API Ranking rank(const Model& model, std::string_view query, std::span<const std::string_view> passages,
                        const RankOptions& options = {});
ATTEND_API Ranking rank(const Model& model, std::string_view query, std::span<const std::string> passages,
                        const RankOptions& options = {});

// ---- Labels of tokens ----

// What makes spans of tokens (the aggregation strategies of Transformers' pipeline): each token by itself; neighbours
// of one label, by B- and I- before it; or words, each labelled by its first token, by its token of the highest score,
// or by the mean of its tokens' scores, and then neighbours likewise.
enum class ATTEND_API Aggregation : std::uint8_t { none, simple, first, max, average };
// "none", "simple", ...
ATTEND_API std::string_view name_of(Aggregation aggregation);
ATTEND_API std::span<const Aggregation> aggregations();

struct ATTEND_API TagOptions : TaskOptions {
  Aggregation aggregation = Aggregation::simple;
  std::vector<std::string> without = {"O"};  // labels whose spans are left out
};
struct ATTEND_API Tag {
  std::string label;  // of `none` as the model has it; else without B- and I-
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

// ---- Masked words ----

struct ATTEND_API Filling {
  std::int64_t id = 0;
  std::string token;  // as text
  double probability = 0;
  std::string text;  // the whole, with it in the mask's place; other masks stay
};
// For each mask of the text, in its order, the `count` likeliest, falling. Throws bad_value for a text without a mask.
ATTEND_API std::vector<std::vector<Filling>> fill(const Model& model, std::string_view text, std::int64_t count = 5);

// ---- Of ids ----

// The logits that the model's head gives: of classify [sequences,labels], of tag [N,labels], of fill [N,vocabulary],
// f32. Of a decoder's folder with a head too; an encoder-decoder's decoder reads the same ids.
ATTEND_API Tensor task_logits(const Model& model, std::span<const std::int64_t> ids, const ModelCall& call = {});

}  // namespace attend::inline v0
