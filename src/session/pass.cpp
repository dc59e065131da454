// One pass over a text, and all that is asked of it.
#include <algorithm>
#include <array>

#include "analysis/asked.h"
#include "analysis/watchers.h"
#include "attend/session.h"
#include "core/message.h"

namespace attend::inline v1 {

namespace {

constexpr const char* pass_function = "run";

// Keeps the values of all layers' keys.
class ValueWatcher : public models::Watcher {
 public:
  ValueWatcher(const ModelInfo& info, std::map<std::string, Tensor>& values)
      : stack_(info.encoder_decoder() ? "decoder." : ""), values_(values) {}
  void at(ModelPlace, std::int64_t, const MutableView&) override {}
  void attends(const models::AttentionStep& step, const View&, const View& v) override {
    values_.insert_or_assign(fmt::format("{}{}.{}", stack_, step.layer, step.cross ? "cross" : "self"),
                             v.to(DType::f32));
  }

 private:
  const char* stack_;
  std::map<std::string, Tensor>& values_;
};

View row_of(const std::vector<std::int64_t>& ids) {
  return View(ids.data(), DType::i64, {1, std::ssize(ids)});
}

std::vector<std::string> texts_of(const Tokenizer& tokenizer, const std::vector<std::int64_t>& ids) {
  std::vector<std::string> texts;
  texts.reserve(ids.size());
  for (std::optional<std::string>& text : tokenizer.texts(ids)) texts.push_back(std::move(text).value_or(""));
  return texts;
}

void check(const ModelInfo& info, const ModelText& text, const PassOptions& options) {
  if (options.vector && info.decoder())
    fail(ErrorCode::bad_value, pass_function, "vector needs an encoder, the model is of type {}", info.type);
  // What its encoder makes is nothing that the output layer reads.
  if (options.next > 0 && info.encoder_decoder() && text.decoder_ids.empty())
    fail(ErrorCode::bad_value, pass_function, "next needs decoder_ids, the decoder's text");
  if (options.next < 0) fail(ErrorCode::bad_value, pass_function, "next is {}, expected at least 0", options.next);
  if (options.why && !(options.edits.empty() && options.knockouts.empty()))
    fail(ErrorCode::bad_value, pass_function, "why explains the model itself: with edits there is no sum of parts");
}

// What is asked for while the pass runs, and the pass's watcher for all of it.
class Askings {
 public:
  Askings(const Model& model, const ModelText& text, const PassOptions& options, Pass& pass) : pass_(pass) {
    const analysis::Text own{text.ids, text.decoder_ids};
    if (options.why) {
      AttributeOptions why = *options.why;
      why.cache = nullptr, why.decoder_ids = text.decoder_ids;
      watchers_.push_back(&attributing_.emplace(model, own, why).watcher());
    }
    if (options.lens) watchers_.push_back(&lensing_.emplace(model, own, *options.lens).watcher());
    if (options.values) watchers_.push_back(&values_.emplace(model.info(), pass.values));
    all_.emplace(watchers_);
  }

  models::Watcher* watcher() {
    return watchers_.empty() ? nullptr : watchers_.size() == 1 ? watchers_.front() : &*all_;
  }
  ModelCache* cache() { return attributing_ ? attributing_->cache() : nullptr; }
  void finish() {
    if (attributing_) pass_.why = attributing_->finish(pass_.hidden);
    if (lensing_) pass_.lens = lensing_->finish(pass_.hidden);
  }

 private:
  Pass& pass_;
  std::optional<analysis::Attributing> attributing_;
  std::optional<analysis::Lensing> lensing_;
  std::optional<ValueWatcher> values_;
  std::vector<models::Watcher*> watchers_;
  std::optional<analysis::All> all_;
};

}  // namespace

std::int64_t recording_bytes(const ModelInfo& info, std::int64_t tokens, const RecordOptions& options) {
  const std::int64_t blocks = std::min(tokens, options.map.rows), of_map = blocks * blocks * (tokens > blocks ? 8 : 4);
  const std::int64_t of_head = tokens * (12 * options.top + 24) + of_map;
  const std::int64_t of_qk = options.keep_qk ? tokens * (info.heads + info.kv_heads) * info.head_size * 4 : 0;
  return info.layers * (info.heads * of_head + of_qk) + 64 * tokens * info.embedding_size;
}

Recording finish_recording(Recorder& recorder, const Model& model, ModelText text, bool named) {
  Recording recording = recorder.finish();
  const bool both = !text.decoder_ids.empty();
  std::vector<std::int64_t>& last = both ? text.decoder_ids : text.ids;
  if (!recording.layers().empty()) last.resize(static_cast<std::size_t>(recording.layers().back().queries));
  recording.set_ids(row_of(text.ids), both ? std::optional(row_of(text.decoder_ids)) : std::nullopt);
  if (named) {
    recording.tokens.push_back(texts_of(model.tokenizer(), text.ids));
    if (both) recording.decoder_tokens.push_back(texts_of(model.tokenizer(), text.decoder_ids));
  }
  return recording;
}

Pass run(const Model& model, const ModelText& text, const PassOptions& options) {
  const ModelInfo& info = model.info();
  check(info, text, options);
  Pass pass;
  Askings asked(model, text, options, pass);
  ModelCache* const cache = asked.cache();
  ModelCall call{.types = text.types,
                 .decoder_ids = text.decoder_ids,
                 .recorder = options.recorder,
                 .edits = options.edits,
                 .knockouts = options.knockouts,
                 .observe = {}};
  Keeper keeper(info, options.keep);
  if (!options.keep.empty())
    call.observe = [&](ModelPlace place, std::int64_t layer, const View& values) { keeper.at(place, layer, values); };
  if (cache) call.caches = std::span(&cache, 1);
  pass.hidden = ModelAccess::forward(model, text.ids, call, asked.watcher());
  asked.finish();
  pass.kept = keeper.finish();
  if (options.next > 0) {
    pass.logits = model.logits(pass.hidden.view().select(0, pass.hidden.size(0) - 1));
    pass.next = likeliest(model, pass.logits, options.next);
  }
  if (options.vector) {
    const std::int64_t starts[] = {0, std::ssize(text.ids)};
    pass.vector = models::sentence_modules(ModelAccess::parts(model)).vectors(pass.hidden, starts, 0, {});
  }
  if (options.recorder) pass.recording = finish_recording(*options.recorder, model, text);
  return pass;
}

}  // namespace attend::inline v1
