#include "models/growing.h"

#include <algorithm>
#include <iterator>

#include "core/message.h"
#include "core/parallel.h"
#include "models/edits.h"
#include "models/logits.h"

namespace attend::inline v1::models {

namespace {

constexpr const char* growing_function = "Model";

using Ids = std::vector<std::int64_t>;

std::int64_t computed_again_after(const Model::Parts& parts) {
  return std::visit(
      [](const auto& of) -> std::int64_t {
        if constexpr (requires { of.computed_again_after(); }) return of.computed_again_after();
        return 0;
      },
      parts.family);
}

Tensor last_rows(const Tensor& hidden, const Ids& starts) {
  Tensor last({std::ssize(starts) - 1, hidden.size(1)});
  for (std::int64_t n = 0; n < last.size(0); ++n) {
    const std::int64_t row = starts[static_cast<std::size_t>(n) + 1] - 1;
    last.view().select(0, n).copy_from(hidden.view().select(0, row));
  }
  return last;
}

// What does not go with a cache that has read a part of the text.
void check_cached(const GenerateOptions& options, const ModelInfo& info) {
  if (info.encoder_decoder())
    fail(ErrorCode::bad_value, growing_function, "cache needs a decoder-only model, the model is of type {}",
         info.type);
  if (options.recorder)
    fail(ErrorCode::bad_value, growing_function, "a recorder needs the whole text, and cache has some of it");
  for (const Edit& edit : options.edits)
    if (edit.rows)
      fail(ErrorCode::bad_value, growing_function, "an edit with rows needs the whole text, and cache has some of it");
}

}  // namespace

std::vector<std::int64_t> first_decoder_ids(const ModelInfo& info) {
  if (!info.encoder_decoder()) return {};
  if (info.start >= 0 && info.start < info.vocabulary) return {info.start};
  fail(ErrorCode::bad_value, growing_function,
       "generate() needs a decoder_start_token_id from 0 to {}, and config.json says {}", info.vocabulary - 1,
       info.start < 0 ? "none" : std::to_string(info.start));
}

std::vector<std::int64_t> Growing::text() const {
  Ids all = start;
  if (all.empty()) all.assign(prompt.begin(), prompt.end());
  all.insert(all.end(), made.begin(), made.end());
  return all;
}

Writer::Writer(const Model& model, const GenerateOptions& options)
    : model_(model), info_(model.info()), options_(options), again_(computed_again_after(ModelAccess::parts(model))) {
  output_of(ModelAccess::parts(model), "Model.generate");
  if (options.max_new_tokens < 0)
    fail(ErrorCode::bad_value, growing_function, "max_new_tokens is {}, expected at least 0", options.max_new_tokens);
  check_settings(options.settings, info_.vocabulary);
  settings_ = settle(options.settings, info_.generation);
  if (options.cache) check_cached(options, info_);
  std::ranges::copy_if(options.edits, std::back_inserter(lasting_), [](const Edit& edit) {
    return !edit.rows && !is_of_encoder(edit.at) && !is_read_once(edit.at);
  });
  for (const Edit& edit : lasting_)
    if (edit.set != Edit::Set::zero && edit.values.rank() > 1 && edit.values.size(0) > 1)
      fail(ErrorCode::bad_value, growing_function,
           "an edit at {} without rows applies to every token, and has {} rows of values: expected one, or rows of the "
           "prompt",
           name_of(edit.at), edit.values.size(0));
}

Growing Writer::begin(std::int64_t number, std::span<const std::int64_t> prompt) const {
  Growing text{number, prompt, first_decoder_ids(info_), options_.cache ? *options_.cache : model_.cache(),
               Sampler(settings_, options_.seed + static_cast<std::uint64_t>(number))};
  const Ids& read = ModelAccess::ids(text.cache);
  const auto both = std::mismatch(read.begin(), read.end(), prompt.begin(), prompt.end());
  const std::int64_t most = std::max<std::int64_t>(0, std::ssize(prompt) - 1);  // one is read: the logits are of it
  text.cache.truncate(std::min<std::int64_t>(both.second - prompt.begin(), most));
  if (options_.on_text || !settings_.stop_strings.empty())
    text.words.emplace(model_.tokenizer(), text.start.empty() ? prompt : text.start, settings_.stop_strings);
  return text;
}

Tensor Writer::read(std::span<Growing* const> texts) const {
  const bool both = info_.encoder_decoder(), reads = texts.front()->reads();
  std::vector<ModelCache*> caches;
  Ids ids, starts{0}, decoder_ids, decoder_starts{0};
  for (Growing* text : texts) {
    const Ids own = text->text();
    Ids& to = both ? decoder_ids : ids;  // of the stack that writes
    if (both && text->cache.length() == 0) ids.insert(ids.end(), text->prompt.begin(), text->prompt.end());
    to.insert(to.end(), own.begin() + text->cache.length(), own.end());
    caches.push_back(&text->cache);
    starts.push_back(std::ssize(ids));
    decoder_starts.push_back(std::ssize(decoder_ids));
  }
  ModelCall call{.caches = caches,
                 .recorder = options_.recorder,
                 .edits = reads ? options_.edits : lasting_,
                 .knockouts = options_.knockouts,
                 .observe = options_.observe};
  if (!ids.empty()) call.starts = starts;
  if (both) call.decoder_ids = decoder_ids, call.decoder_starts = decoder_starts;
  return model_.logits(last_rows(model_.forward(ids, call), both ? decoder_starts : starts));
}

void Writer::process(std::span<Growing* const> texts, Tensor& logits) const {
  for_each_row(logits, [&](std::size_t n, std::span<float> row) {
    const Ids text = texts[n]->text();
    process_logits({settings_, text, std::ssize(texts[n]->made), options_.max_new_tokens, ends()}, row);
  });
}

bool Writer::is_end(std::int64_t token) const {
  return std::ranges::find(ends(), token) != ends().end();
}

std::vector<std::int64_t> Writer::choose(std::span<Growing* const> texts, const Tensor& logits) const {
  Ids chosen(texts.size());
  for_each_row(logits, [&](std::size_t n, std::span<const float> row) { chosen[n] = texts[n]->sampler.choose(row); });
  return chosen;
}

bool Writer::write(Growing& text, std::int64_t token) const {
  const bool written = !is_end(token);
  if (written) text.made.push_back(token);
  text.ended = !written || !tell(text, token) || std::ssize(text.made) >= options_.max_new_tokens ||
               text.cache.length() == info_.longest;
  if (text.ended && text.words && options_.on_text && !text.hushed) {
    const std::string rest = text.words->end();
    if (!rest.empty()) options_.on_text(rest);
  }
  if (!text.ended) keep_up(text);
  return written;
}

// Whether the text goes on, as those say who are told of the token, and as stop strings do.
bool Writer::tell(Growing& text, std::int64_t token) const {
  if (options_.on_token && !options_.on_token(token)) return false;
  if (options_.on_token_of && !options_.on_token_of(text.number, token)) return false;
  if (!text.words) return true;
  const std::string more = text.words->add(token);
  text.hushed = options_.on_text && !more.empty() && !options_.on_text(more);
  return !text.hushed && !text.words->stopped();
}

void Writer::keep_up(Growing& text) const {
  if (text.cache.length() != again_) return;
  if (options_.recorder)
    fail(ErrorCode::bad_value, growing_function,
         "a recorder can't follow a text beyond {} tokens, where the model computes all of it again", again_);
  text.cache.truncate(0);
}

}  // namespace attend::inline v1::models
