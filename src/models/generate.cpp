// Texts that grow, one or several at once, each by its own likeliest or drawn tokens.
#include <utility>

#include "core/message.h"
#include "models/growing.h"

namespace attend::inline v1 {

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
    fail(ErrorCode::bad_value, generate_function, "a recorder takes one prompt, and there are several");
  if (options.observe)
    fail(ErrorCode::bad_value, generate_function, "an observer takes one prompt, and there are several");
  if (options.on_token)
    fail(ErrorCode::bad_value, generate_function,
         "on_token takes one prompt, and there are several: use on_token_of, which is told the prompt's number");
  if (options.on_text) fail(ErrorCode::bad_value, generate_function, "on_text takes one prompt, and there are several");
  if (options.cache) fail(ErrorCode::bad_value, generate_function, "a cache takes one prompt, and there are several");
  if (options.settings.num_return_sequences.value_or(1) > 1)
    fail(ErrorCode::bad_value, generate_function, "num_return_sequences takes one prompt, and there are several");
  for (const Edit& edit : options.edits)
    if (edit.rows)
      fail(ErrorCode::bad_value, generate_function, "an edit with rows takes one prompt, and there are several");
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
  Generation(const models::Writer& writer, const GenerateOptions& options, std::span<const Ids> prompts)
      : writer_(writer), options_(options), prompts_(prompts), made_(prompts.size()) {}

  std::vector<models::Written> run() {
    for (take_in(); !texts_.empty(); take_in()) {
      const std::vector<models::Growing*> pass = next_pass();
      Tensor logits = writer_.read(pass);
      writer_.process(pass, logits);
      const Ids chosen = writer_.choose(pass, logits);
      for (std::size_t n = 0; n < pass.size(); ++n) writer_.write(*pass[n], chosen[n]);
      for (models::Growing& text : texts_)
        if (text.ended) finish(text);
      std::erase_if(texts_, [](const models::Growing& text) { return text.ended; });
    }
    return std::move(made_);
  }

 private:
  void finish(models::Growing& text) {
    made_[static_cast<std::size_t>(text.number)] = {std::move(text.made), text.words ? text.words->cut() : 0};
    if (options_.cache) *options_.cache = std::move(text.cache);
  }

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
      if (!text.reads()) continue;
      const std::int64_t count = std::ssize(text.prompt) + std::ssize(text.made) - text.cache.length();
      if (!reading.empty() && tokens + count > pass_tokens) continue;
      reading.push_back(&text);
      tokens += count;
    }
    return reading.empty() ? growing : reading;
  }

  const models::Writer& writer_;
  const GenerateOptions& options_;
  std::span<const Ids> prompts_;
  std::vector<models::Growing> texts_;
  std::size_t taken_ = 0;  // of the prompts
  std::vector<models::Written> made_;
};

std::vector<Ids> ids_of(std::vector<models::Written> all) {
  std::vector<Ids> ids;
  ids.reserve(all.size());
  for (models::Written& each : all) ids.push_back(std::move(each.ids));
  return ids;
}

// The num_return_sequences best texts after the prompt. Who listens is told when the best one is known.
std::vector<models::Written> beams_after(const Model& model, const models::Writer& writer, const Ids& prompt,
                                         const GenerateOptions& options) {
  if (options.recorder || options.observe || options.cache)
    fail(ErrorCode::bad_value, generate_function, "{} takes one text, and there are {} beams",
         options.recorder  ? "a recorder"
         : options.observe ? "an observer"
                           : "a cache",
         writer.settings().num_beams);
  std::vector<models::Written> found = models::search_beams(writer, prompt);
  const models::Written& best = found.front();
  bool goes_on = true;
  for (std::size_t n = 0; n < best.ids.size() && goes_on && options.on_token; ++n)
    goes_on = options.on_token(best.ids[n]);
  if (goes_on && options.on_text) options.on_text(models::continuation(model, prompt, best));
  return found;
}

std::vector<models::Written> best_of_beams(const Model& model, const models::Writer& writer,
                                           std::span<const Ids> prompts, const GenerateOptions& options) {
  std::vector<models::Written> all;
  for (std::size_t n = 0; n < prompts.size(); ++n) {
    all.push_back(std::move(beams_after(model, writer, prompts[n], options).front()));
    for (const std::int64_t id : all.back().ids)
      if (options.on_token_of && !options.on_token_of(static_cast<std::int64_t>(n), id)) break;
  }
  return all;
}

}  // namespace

std::vector<models::Written> models::generate_all(const Model& model, std::span<const Ids> prompts,
                                                  const GenerateOptions& options) {
  const Writer writer(model, options);
  if (prompts.size() > 1) {
    check_for_several(options);
    for (std::size_t n = 0; n < prompts.size(); ++n)
      check_prompt(fmt::format("prompts[{}]", n), prompts[n], model.info());
  }
  if (options.max_new_tokens == 0) return std::vector<Written>(prompts.size());
  if (writer.settings().num_beams > 1) return best_of_beams(model, writer, prompts, options);
  return Generation(writer, options, prompts).run();
}

std::vector<models::Written> models::generate_sequences(const Model& model, const Ids& prompt,
                                                        const GenerateOptions& options) {
  const Writer writer(model, options);
  if (options.max_new_tokens > 0 && writer.settings().num_beams > 1) return beams_after(model, writer, prompt, options);
  const std::vector<Ids> prompts(static_cast<std::size_t>(writer.settings().num_return_sequences), prompt);
  GenerateOptions each = options;
  each.settings.num_return_sequences = 1;
  return generate_all(model, prompts, each);
}

std::vector<GeneratedSequence> Model::generate_sequences(std::span<const std::int64_t> ids,
                                                         const GenerateOptions& options) const {
  std::vector<GeneratedSequence> sequences;
  for (models::Written& each : models::generate_sequences(*this, {ids.begin(), ids.end()}, options))
    sequences.push_back({.ids = std::move(each.ids), .score = each.score});
  return sequences;
}

std::vector<std::int64_t> Model::generate(std::span<const std::int64_t> ids, const GenerateOptions& options) const {
  const std::vector<Ids> prompts{{ids.begin(), ids.end()}};
  return std::move(models::generate_all(*this, prompts, options)[0].ids);
}

std::vector<std::vector<std::int64_t>> Model::generate(std::span<const std::vector<std::int64_t>> prompts,
                                                       const GenerateOptions& options) const {
  return ids_of(models::generate_all(*this, prompts, options));
}

}  // namespace attend::inline v1
