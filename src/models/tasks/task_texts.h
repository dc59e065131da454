// How texts become ids for a task's head, and what else a reranker's folder says.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "attend/tasks.h"
#include "models/model.h"
#include "models/sentences/text_rules.h"
#include "models/text_passes.h"

namespace attend::inline v1::models {

struct TaskTexts : TextRules {
  std::optional<ScoreFunction> rank_function = {};  // none: the folder does not say
  bool types = false;                               // of a pair, the second text's tokens have a type of their own
  std::string mask = {};                            // the token that masks a word; empty: the folder does not say
};
// config: the model's own. of_logits: its head is a LogitScore. longest: tokens that it takes. Throws bad_file, naming
// file and key, for what is not known here.
TaskTexts read_task_texts(const std::filesystem::path& folder, const Member& config, bool of_logits, ModelTask task,
                          std::int64_t longest);

// A model at work on a task's texts.
class TaskRun {
 public:
  // name: what a message calls a text: "texts", "passages". Throws bad_value for a model of another task.
  TaskRun(std::string_view function, std::string_view name, const Model& model, ModelTask task,
          const TaskOptions& options);

  const TaskHead& head() const { return *parts_.head; }
  const TaskTexts& rules() const { return rules_; }
  const Tokenizer& tokenizer() const { return tokenizer_; }
  // The tokens of text n, cut to what the model takes, with the types that it is given; cut: whether they were. prompt:
  // stands before it, or where the folder has a chat template is what the system says.
  Encoding encode(std::size_t n, const TaskText& text, bool& cut, const std::string& prompt = {}) const;
  std::int64_t run(const TextPasses& passes) const { return run_passes(model_, passes); }

 private:
  Encoding whole(const TaskText& text, const std::string& prompt) const;
  Encoding chat(const TaskText& text, const std::string& prompt) const;
  void keep_end_of_template(Encoding& cut, const std::string& prompt) const;

  std::string_view function_, name_;
  const Model& model_;
  const Model::Parts& parts_;
  const TaskOptions& options_;
  TaskTexts rules_;
  const Tokenizer& tokenizer_;
};

// x [rows,columns] f32: each row by itself.
void apply(ScoreFunction function, Tensor& x);

}  // namespace attend::inline v1::models
