// Texts and pairs to classes, and passages by how well they answer a query.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "attend/late_interaction.h"
#include "core/message.h"
#include "models/tasks/task_texts.h"

namespace attend::inline v1 {

namespace {

using models::TaskRun;

void check_finite(std::string_view function, const Tensor& logits) {
  const float* values = logits.data<float>();
  if (std::any_of(values, values + logits.count(), [](float value) { return !std::isfinite(value); }))
    fail(ErrorCode::bad_value, function, "the logits have NaN or infinity: check the head's weights for them");
}

// The logits [texts,labels] of so many texts, of which text(n) is one.
template <class Text>
Tensor logits_of(std::string_view function, const TaskRun& run, std::int64_t count, std::int64_t labels,
                 const std::string& prompt, const TaskOptions& options, std::int64_t& cut, Text text) {
  Tensor logits({count, labels});
  const models::TaskHead& head = run.head();
  cut = run.run({
      .count = static_cast<std::size_t>(count),
      .bytes =
          [&](std::size_t n) {
            const TaskText of = text(n);
            return of.text.size() + of.second.value_or("").size();
          },
      .tokens =
          [&](std::size_t n) {
            models::TextTokens tokens;
            Encoding all = run.encode(n, text(n), tokens.cut, prompt);
            tokens.ids = std::move(all.ids), tokens.types = std::move(all.types);
            return tokens;
          },
      .use =
          [&](const models::TextPass& pass) {
            const Tensor own = head.logits(head.rows(pass.hidden, pass.ids, pass.starts));
            for (std::size_t n = 0; n < pass.texts.size(); ++n)
              std::copy_n(own.data<float>() + static_cast<std::int64_t>(n) * labels, labels,
                          logits.data<float>() + static_cast<std::int64_t>(pass.texts[n]) * labels);
          },
      .first = head.reads == models::TaskHead::Reads::first,
      .progress = options.progress,
  });
  check_finite(function, logits);
  return logits;
}

ScoreFunction function_of(const models::TaskHead& head) {
  if (head.regression) return ScoreFunction::none;
  return head.chooses() ? ScoreFunction::softmax : ScoreFunction::sigmoid;
}

}  // namespace

Classification classify(const Model& model, std::span<const TaskText> texts, const ClassifyOptions& options) {
  constexpr const char* function = "classify";
  const TaskRun run(function, "texts", model, ModelTask::classify, options);
  const std::int64_t labels = std::ssize(model.info().labels);
  Classification made;
  made.function = options.function.value_or(function_of(run.head()));
  // Transformers' pipeline knows no prompts, and of chat templates CrossEncoder alone has texts.
  const std::string prompt = run.rules().chats ? run.rules().default_prompt : "";
  made.logits = logits_of(function, run, std::ssize(texts), labels, prompt, options, made.cut,
                          [&](std::size_t n) { return texts[n]; });
  made.scores = made.logits.clone();
  models::apply(made.function, made.scores);
  return made;
}

namespace {

constexpr const char* ranking = "rank";

// The best first, so many of them as asked for.
void sort_passages(const RankOptions& options, Ranking& made) {
  std::ranges::stable_sort(made.passages, std::greater(), &Ranked::score);
  if (options.count) made.passages.resize(std::min(made.passages.size(), static_cast<std::size_t>(*options.count)));
}

// By MaxSim of their token vectors: a few passages' at a time, which a text's numbers are many of.
Ranking rank_by_tokens(const Model& model, std::string_view query, std::span<const std::string_view> passages,
                       const RankOptions& options) {
  constexpr std::size_t together = 1024;
  if (options.function.value_or(ScoreFunction::none) != ScoreFunction::none)
    fail(ErrorCode::bad_value, ranking, "function is {}, expected none: the score is a sum of products",
         name_of(*options.function));
  TokenVectorOptions of_query{.role = TextRole::query, .prompt = options.prompt, .progress = {}};
  TokenVectorOptions of_passages{.max_tokens = options.max_tokens, .progress = {}};
  of_query.truncate = of_passages.truncate = options.truncate;
  const TokenVectors asked = embed_tokens(model, query, of_query);
  Ranking made{.passages = {}, .function = ScoreFunction::none};
  for (std::size_t first = 0; first < passages.size(); first += together) {
    const std::size_t count = std::min(together, passages.size() - first);
    if (options.progress)
      of_passages.progress = [&](double share) {
        options.progress((double(first) + share * double(count)) / double(passages.size()));
      };
    for (const TokenVectors& each : embed_tokens(model, passages.subspan(first, count), of_passages)) {
      const double none = -std::numeric_limits<double>::infinity();  // of a passage that punctuation alone is
      const double score = each.ids.empty() ? none : max_sim(asked.vectors, each.vectors).score;
      made.passages.push_back({std::ssize(made.passages), score});
      made.cut += each.cut ? 1 : 0;
    }
  }
  sort_passages(options, made);
  return made;
}

}  // namespace

Ranking rank(const Model& model, std::string_view query, std::span<const std::string_view> passages,
             const RankOptions& options) {
  constexpr const char* function = ranking;
  if (options.count && *options.count < 1)
    fail(ErrorCode::bad_value, function, "count is {}, expected 1 or more", *options.count);
  if (model.info().vectors == VectorKind::token) return rank_by_tokens(model, query, passages, options);
  const TaskRun run(function, "passages", model, ModelTask::classify, options);
  const std::vector<std::string>& labels = model.info().labels;
  if (labels.size() != 1)
    fail(ErrorCode::bad_value, function,
         "expected a model with one label, and this one has {} ({}): classify() takes pairs", labels.size(),
         fmt::join(std::span(labels).first(std::min<std::size_t>(labels.size(), 4)), ", "));
  Ranking made;
  made.function = options.function.value_or(run.rules().rank_function.value_or(ScoreFunction::sigmoid));
  const std::string prompt = options.prompt.value_or(run.rules().default_prompt);
  Tensor scores = logits_of(function, run, std::ssize(passages), 1, prompt, options, made.cut, [&](std::size_t n) {
    return TaskText{query, passages[n]};
  });
  models::apply(made.function, scores);
  made.passages.reserve(passages.size());
  for (std::int64_t n = 0; n < std::ssize(passages); ++n)
    made.passages.push_back({n, static_cast<double>(scores.data<float>()[n])});
  sort_passages(options, made);
  return made;
}

Ranking rank(const Model& model, std::string_view query, std::span<const std::string> passages,
             const RankOptions& options) {
  return rank(model, query, std::vector<std::string_view>(passages.begin(), passages.end()), options);
}

Tensor task_logits(const Model& model, std::span<const std::int64_t> ids, const ModelCall& call) {
  const Model::Parts& parts = ModelAccess::parts(model);
  if (!parts.head)
    fail(ErrorCode::bad_value, "task_logits", "expected a model with a task's head, and this one of type {} has none",
         parts.info.type);
  const Tensor hidden = ModelAccess::text_states(model, ids, call);
  const std::vector<std::int64_t> starts = models::checked_starts("starts", call.starts, std::ssize(ids));
  Tensor logits = parts.head->logits(parts.head->rows(hidden, ids, starts));
  check_finite("task_logits", logits);
  return logits;
}

}  // namespace attend::inline v1
