#include "models/growing.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "core/message.h"
#include "core/parallel.h"
#include "models/edits.h"

namespace attend::inline v0::models {

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

}  // namespace

std::vector<std::int64_t> first_decoder_ids(const ModelInfo& info) {
  if (!info.encoder_decoder()) return {};
  if (info.start >= 0 && info.start < info.vocabulary) return {info.start};
  fail(ErrorCode::bad_value, growing_function,
       "generate() needs a decoder_start_token_id from 0 to {}, and config.json says {}", info.vocabulary - 1,
       info.start < 0 ? "none" : std::to_string(info.start));
}

Writer::Writer(const Model& model, const GenerateOptions& options)
    : model_(model), info_(model.info()), options_(options), again_(computed_again_after(ModelAccess::parts(model))) {
  output_of(ModelAccess::parts(model), "Model.generate");
  check_sampling(options);
  std::ranges::copy_if(options.edits, std::back_inserter(lasting_), [](const Edit& edit) {
    return !edit.rows && !is_of_encoder(edit.at) && !is_read_once(edit.at);
  });
  for (const Edit& edit : lasting_)
    if (edit.set != Edit::Set::zero && edit.values.rank() > 1 && edit.values.size(0) > 1)
      fail(ErrorCode::bad_value, growing_function,
           "an edit at {} without rows is of every token, and has {} rows of values: expected one, or rows of the "
           "prompt",
           name_of(edit.at), edit.values.size(0));
}

Growing Writer::begin(std::int64_t number, std::span<const std::int64_t> prompt) const {
  return {number, prompt, first_decoder_ids(info_), model_.cache(),
          Sampler(options_, options_.seed + static_cast<std::uint64_t>(number))};
}

Tensor Writer::read(std::span<Growing* const> texts) const {
  const bool both = info_.encoder_decoder(), reads = texts.front()->cache.length() == 0;
  std::vector<ModelCache*> caches;
  Ids ids, starts{0}, decoder_ids, decoder_starts{0};
  for (Growing* text : texts) {
    caches.push_back(&text->cache);
    Ids& own = both ? decoder_ids : ids;  // of the stack that writes
    if (!reads) {
      own.push_back(text->made.back());
    } else {
      ids.insert(ids.end(), text->prompt.begin(), text->prompt.end());
      own.insert(own.end(), text->start.begin(), text->start.end());
      own.insert(own.end(), text->made.begin(), text->made.end());
    }
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
  Tensor logits = model_.logits(last_rows(model_.forward(ids, call), both ? decoder_starts : starts));
  const std::int64_t vocabulary = logits.size(1);
  for (const std::int64_t id : info_.never)
    for (std::int64_t n = 0; n < logits.size(0) && id < vocabulary; ++n)
      logits.data<float>()[n * vocabulary + id] = -std::numeric_limits<float>::infinity();
  return logits;
}

std::vector<std::int64_t> Writer::choose(std::span<Growing* const> texts, const Tensor& logits) const {
  const auto vocabulary = static_cast<std::size_t>(logits.size(1));
  Ids chosen(texts.size());
  parallel_for(std::ssize(texts), 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto n = static_cast<std::size_t>(begin); n < static_cast<std::size_t>(end); ++n)
      chosen[n] = texts[n]->sampler.choose({logits.data<float>() + n * vocabulary, vocabulary});
  });
  for (std::size_t n = 0; n < chosen.size(); ++n) chosen[n] = forced(*texts[n]).value_or(chosen[n]);
  return chosen;
}

// What comes next whatever the logits say: the last token that is asked for, or after a text of one token.
std::optional<std::int64_t> Writer::forced(const Growing& text) const {
  if (info_.last && std::ssize(text.made) + 1 == options_.max_new_tokens) return info_.last;
  return text.length() == 1 ? info_.first : std::nullopt;
}

bool Writer::write(Growing& text, std::int64_t token) const {
  const Ids& end = options_.end ? *options_.end : info_.end;
  text.ended = true;
  if (std::ranges::find(end, token) != end.end()) return false;
  text.made.push_back(token);
  if (options_.on_token && !options_.on_token(token)) return true;
  if (options_.on_token_of && !options_.on_token_of(text.number, token)) return true;
  if (std::ssize(text.made) >= options_.max_new_tokens || text.cache.length() == info_.longest) return true;
  if (text.cache.length() == again_) read_again(text);
  text.ended = false;
  return true;
}

void Writer::read_again(Growing& text) const {
  if (options_.recorder)
    fail(ErrorCode::bad_value, growing_function,
         "a recorder can't follow a text beyond {} tokens: all is computed again there", again_);
  text.cache.truncate(0);
}

}  // namespace attend::inline v0::models
