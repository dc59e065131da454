// Texts that grow, one or several at once, each by its own likeliest or drawn tokens.
#include <utility>

#include "core/message.h"
#include "models/growing.h"

namespace attend::inline v0 {

namespace {

constexpr const char* generate_function = "Model";

using Ids = std::vector<std::int64_t>;

// Texts that grow at once; the others wait, so that memory does not grow with their number.
constexpr std::size_t most_at_once = 32;
// Of prompts that are read in one pass, unless one alone has more.
constexpr std::int64_t pass_tokens = 1024;

// What a call of several prompts does not take.
void check_for_several(const GenerateOptions& options) {
  if (options.recorder)
    fail(ErrorCode::bad_value, generate_function, "a recorder is of one prompt, and there are several");
  if (options.observe)
    fail(ErrorCode::bad_value, generate_function, "an observer is of one prompt, and there are several");
  if (options.on_token)
    fail(ErrorCode::bad_value, generate_function,
         "on_token is of one prompt, and there are several: on_token_of is told which");
  for (const Edit& edit : options.edits)
    if (edit.rows)
      fail(ErrorCode::bad_value, generate_function, "an edit of rows is of one prompt, and there are several");
}

// As the call of it alone would, whose message names no prompt.
void check_prompt(const std::string& name, std::span<const std::int64_t> ids, const ModelInfo& info) {
  models::check_ids(name, ids, info.encoder_decoder() ? info.encoder_vocabulary : info.vocabulary);
  if (std::ssize(ids) > info.longest)
    fail(ErrorCode::bad_value, generate_function, "{} has {} tokens, the model takes at most {}", name, ids.size(),
         info.longest);
}

// All prompts, each to its own end.
class Generation {
 public:
  Generation(const Model& model, std::span<const Ids> prompts, const GenerateOptions& options)
      : writer_(model, options), prompts_(prompts), made_(prompts.size()) {}

  std::vector<Ids> run() {
    for (take_in(); !texts_.empty(); take_in()) {
      const std::vector<models::Growing*> pass = next_pass();
      const Ids chosen = writer_.choose(pass, writer_.read(pass));
      for (std::size_t n = 0; n < pass.size(); ++n) writer_.write(*pass[n], chosen[n]);
      for (models::Growing& text : texts_)
        if (text.ended) made_[static_cast<std::size_t>(text.number)] = std::move(text.made);
      std::erase_if(texts_, [](const models::Growing& text) { return text.ended; });
    }
    return std::move(made_);
  }

 private:
  void take_in() {
    for (; taken_ < prompts_.size() && texts_.size() < most_at_once; ++taken_)
      texts_.push_back(writer_.begin(static_cast<std::int64_t>(taken_), prompts_[taken_]));
  }

  // Prompts are read first, so that all texts grow in one pass then.
  std::vector<models::Growing*> next_pass() {
    std::vector<models::Growing*> reading, growing;
    std::int64_t tokens = 0;
    for (models::Growing& text : texts_) {
      growing.push_back(&text);
      if (text.cache.length() > 0) continue;
      const std::int64_t count = std::ssize(text.prompt) + std::ssize(text.made);
      if (!reading.empty() && tokens + count > pass_tokens) continue;
      reading.push_back(&text);
      tokens += count;
    }
    return reading.empty() ? growing : reading;
  }

  const models::Writer writer_;
  std::span<const Ids> prompts_;
  std::vector<models::Growing> texts_;
  std::size_t taken_ = 0;  // of the prompts
  std::vector<Ids> made_;
};

}  // namespace

std::vector<std::int64_t> Model::generate(std::span<const std::int64_t> ids, const GenerateOptions& options) const {
  const std::vector<Ids> prompts{{ids.begin(), ids.end()}};
  Generation one(*this, prompts, options);
  return options.max_new_tokens == 0 ? Ids() : one.run()[0];
}

std::vector<std::vector<std::int64_t>> Model::generate(std::span<const std::vector<std::int64_t>> prompts,
                                                       const GenerateOptions& options) const {
  Generation all(*this, prompts, options);
  if (prompts.size() > 1) check_for_several(options);
  for (std::size_t n = 0; n < prompts.size(); ++n) check_prompt(fmt::format("prompts[{}]", n), prompts[n], info());
  return options.max_new_tokens == 0 ? std::vector<Ids>(prompts.size()) : all.run();
}

}  // namespace attend::inline v0
