#include <limits>
#include <utility>

#include "attend/session.h"
#include "core/message.h"
#include "models/growing.h"

namespace attend::inline v1 {

struct Growth::State {
  State(const Model& of, ModelText given, const GenerateOptions& how)
      : model(of),
        text(std::move(given)),
        options(how),
        edits(how.edits.begin(), how.edits.end()),
        knockouts(how.knockouts.begin(), how.knockouts.end()) {
    options.edits = edits, options.knockouts = knockouts;
    if (!text.decoder_ids.empty() && !model.info().encoder_decoder())
      fail(ErrorCode::bad_value, "Growth", "decoder_ids need an encoder-decoder, the model is of type {}",
           model.info().type);
    if (options.recorder)
      fail(ErrorCode::bad_value, "Growth", "only generate() takes a recorder, as it knows where the text ends");
  }

  Model model;
  ModelText text;
  GenerateOptions options;
  std::vector<Edit> edits;
  std::vector<Knockout> knockouts;
  std::vector<std::int64_t> prompt = text.ids;  // which the text grows beyond
  models::Writer writer{model, options};
  models::Growing growing = writer.begin(0, prompt);
  Tensor logits = {};

  std::vector<models::Growing*> pass() { return {&growing}; }
  std::vector<std::int64_t>& own() { return text.decoder_ids.empty() ? text.ids : text.decoder_ids; }
  void read() {
    logits = writer.read(pass());
    writer.process(pass(), logits);
  }
};

Growth::Growth(const Model& model, ModelText text, const GenerateOptions& options)
    : state_(new State(model, std::move(text), options)) {
  ModelText& own = state_->text;
  if (own.decoder_ids.empty())
    own.decoder_ids = state_->growing.start;
  else
    state_->growing.start = own.decoder_ids;
  state_->read();
}
Growth::Growth(Growth&&) noexcept = default;
Growth& Growth::operator=(Growth&&) noexcept = default;
Growth::~Growth() = default;

Growth::Step Growth::step(std::optional<std::int64_t> token) {
  State& x = *state_;
  if (x.growing.ended) fail(ErrorCode::bad_value, "Growth.step", "the text has ended");
  const std::int64_t vocabulary = x.model.info().vocabulary;
  if (token && (*token < 0 || *token >= vocabulary))
    fail(ErrorCode::bad_value, "Growth.step", "token is {}, expected 0 to {}", *token, vocabulary - 1);
  Step step{.id = token ? *token : x.writer.choose(x.pass(), x.logits)[0]};
  const std::optional<models::WrittenText> words = x.growing.words;
  step.written = x.writer.write(x.growing, step.id), step.ended = x.growing.ended;
  if (step.written) x.own().push_back(step.id);
  if (step.ended) return step;
  try {
    x.read();
  } catch (...) {  // the text is what it was
    x.growing.made.pop_back(), x.own().pop_back();
    x.growing.words = words;
    throw;
  }
  return step;
}

const Tensor& Growth::logits() const {
  return state_->logits;
}
const ModelText& Growth::text() const {
  return state_->text;
}
std::span<const std::int64_t> Growth::written() const {
  return state_->growing.made;
}
const ModelCache& Growth::cache() const {
  return state_->growing.cache;
}

}  // namespace attend::inline v1
