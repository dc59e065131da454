// Texts that grow, one or several at once, each by its own likeliest or drawn tokens.
#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "core/message.h"
#include "core/parallel.h"
#include "models/edits.h"
#include "models/model.h"
#include "models/sampling.h"

namespace attend {

namespace {

constexpr const char* function = "Model";

using Ids = std::vector<std::int64_t>;

// Texts that grow at once; the others wait, so that memory does not grow with their number.
constexpr std::size_t most_at_once = 32;
// Of prompts that are read in one pass, unless one alone has more.
constexpr std::int64_t pass_tokens = 1024;

// What the text of an encoder-decoder's decoder begins with.
std::int64_t checked_start(const ModelInfo& info) {
  if (info.start >= 0 && info.start < info.vocabulary) return info.start;
  fail(ErrorCode::bad_value, function,
       "generate() needs a decoder_start_token_id from 0 to {}, and config.json says {}", info.vocabulary - 1,
       info.start < 0 ? "none" : std::to_string(info.start));
}

// After how many tokens a text that grows is computed again from its beginning; 0: never.
std::int64_t computed_again_after(const Model::Parts& parts) {
  return std::visit(
      [](const auto& of) -> std::int64_t {
        if constexpr (requires { of.computed_again_after(); }) return of.computed_again_after();
        return 0;
      },
      parts.family);
}

// What a call of several prompts does not take.
void check_for_several(const GenerateOptions& options) {
  if (options.recorder) fail(ErrorCode::bad_value, function, "a recorder is of one prompt, and there are several");
  if (options.on_token)
    fail(ErrorCode::bad_value, function, "on_token is of one prompt, and there are several: on_token_of is told which");
  for (const Edit& edit : options.edits)
    if (edit.rows || edit.set == Edit::Set::values)
      fail(ErrorCode::bad_value, function,
           "an edit of rows, or that sets values, is of one prompt, and there are several");
}

// As the call of it alone would, whose message names no prompt.
void check_prompt(const std::string& name, std::span<const std::int64_t> ids, const ModelInfo& info) {
  models::check_ids(name, ids, info.encoder_decoder() ? info.encoder_vocabulary : info.vocabulary);
  if (std::ssize(ids) > info.longest)
    fail(ErrorCode::bad_value, function, "{} has {} tokens, the model takes at most {}", name, ids.size(),
         info.longest);
}

// A text, and what is known of it so far.
struct Growing {
  std::size_t number = 0;  // of its prompt
  std::span<const std::int64_t> prompt;
  ModelCache cache;  // empty: the next pass reads all of the text
  models::Sampler sampler;
  Ids made = {};
  bool ended = false;
};

// A pass over some of the texts: all that they are so far, or their last token each.
struct Pass {
  std::vector<Growing*> texts = {};
  bool reads = false;
};

class Generation {
 public:
  Generation(const Model& model, const Model::Parts& parts, std::span<const Ids> prompts,
             const GenerateOptions& options)
      : model_(model),
        info_(parts.info),
        prompts_(prompts),
        options_(options),
        again_(computed_again_after(parts)),
        start_(info_.encoder_decoder() ? checked_start(info_) : -1),
        made_(prompts.size()) {
    std::ranges::copy_if(options.edits, std::back_inserter(lasting_),
                         [](const Edit& edit) { return !edit.rows && !models::is_of_encoder(edit.at); });
  }

  std::vector<Ids> run() {
    for (take_in(); !texts_.empty(); take_in()) {
      const Pass pass = next_pass();
      add_tokens(pass, logits_of(pass));
      for (Growing& text : texts_)
        if (text.ended) made_[text.number] = std::move(text.made);
      std::erase_if(texts_, [](const Growing& text) { return text.ended; });
    }
    return std::move(made_);
  }

 private:
  void take_in() {
    for (; taken_ < prompts_.size() && texts_.size() < most_at_once; ++taken_)
      texts_.push_back({taken_, prompts_[taken_], model_.cache(), models::Sampler(options_, options_.seed + taken_)});
  }

  // Prompts are read first, so that all texts grow in one pass then.
  Pass next_pass() {
    Pass reading{.reads = true}, growing;
    std::int64_t tokens = 0;
    for (Growing& text : texts_) {
      growing.texts.push_back(&text);
      if (text.cache.length() > 0) continue;
      const std::int64_t count = std::ssize(text.prompt) + std::ssize(text.made);
      if (!reading.texts.empty() && tokens + count > pass_tokens) continue;
      reading.texts.push_back(&text);
      tokens += count;
    }
    return reading.texts.empty() ? growing : reading;
  }

  // [texts,vocabulary]
  Tensor logits_of(const Pass& pass) const {
    const bool both = info_.encoder_decoder();
    std::vector<ModelCache*> caches;
    Ids ids, starts{0}, decoder_ids, decoder_starts{0};
    for (Growing* text : pass.texts) {
      caches.push_back(&text->cache);
      Ids& own = both ? decoder_ids : ids;  // of the stack that writes
      if (!pass.reads) {
        own.push_back(text->made.back());
      } else {
        ids.insert(ids.end(), text->prompt.begin(), text->prompt.end());
        if (both) own.push_back(start_);
        own.insert(own.end(), text->made.begin(), text->made.end());
      }
      starts.push_back(std::ssize(ids));
      decoder_starts.push_back(std::ssize(decoder_ids));
    }
    ModelCall call{.caches = caches, .recorder = options_.recorder, .edits = pass.reads ? options_.edits : lasting_};
    if (!ids.empty()) call.starts = starts;
    if (both) call.decoder_ids = decoder_ids, call.decoder_starts = decoder_starts;
    return model_.logits(last_rows(model_.forward(ids, call), both ? decoder_starts : starts));
  }

  static Tensor last_rows(const Tensor& hidden, const Ids& starts) {
    Tensor last({std::ssize(starts) - 1, hidden.size(1)});
    for (std::int64_t n = 0; n < last.size(0); ++n) {
      const std::int64_t row = starts[static_cast<std::size_t>(n) + 1] - 1;
      last.view().select(0, n).copy_from(hidden.view().select(0, row));
    }
    return last;
  }

  void add_tokens(const Pass& pass, Tensor logits) {
    const std::int64_t vocabulary = logits.size(1), count = logits.size(0);
    Ids chosen(pass.texts.size());
    parallel_for(count, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t n = begin; n < end; ++n) {
        const std::span<float> own{logits.data<float>() + n * vocabulary, static_cast<std::size_t>(vocabulary)};
        for (const std::int64_t id : info_.never)
          if (id < vocabulary) own[static_cast<std::size_t>(id)] = -std::numeric_limits<float>::infinity();
        chosen[static_cast<std::size_t>(n)] = pass.texts[static_cast<std::size_t>(n)]->sampler.choose(own);
      }
    });
    for (std::size_t n = 0; n < chosen.size(); ++n) pass.texts[n]->ended = !add_token(*pass.texts[n], chosen[n]);
  }

  // What comes next whatever the logits say: the last token that is asked for, or after a text of one token.
  std::optional<std::int64_t> forced(const Growing& text) const {
    const std::int64_t made = std::ssize(text.made), before = start_ < 0 ? std::ssize(text.prompt) : 1;
    if (info_.last && made + 1 == options_.max_new_tokens) return info_.last;
    return before + made == 1 ? info_.first : std::nullopt;
  }

  // Whether the text goes on.
  bool add_token(Growing& text, std::int64_t chosen) const {
    const std::int64_t next = forced(text).value_or(chosen);
    const Ids& end = options_.end ? *options_.end : info_.end;
    if (std::ranges::find(end, next) != end.end()) return false;
    text.made.push_back(next);
    if (options_.on_token && !options_.on_token(next)) return false;
    if (options_.on_token_of && !options_.on_token_of(static_cast<std::int64_t>(text.number), next)) return false;
    if (std::ssize(text.made) >= options_.max_new_tokens || text.cache.length() == info_.longest) return false;
    if (text.cache.length() == again_) read_again(text);
    return true;
  }

  void read_again(Growing& text) const {
    if (options_.recorder)
      fail(ErrorCode::bad_value, function,
           "a recorder can't follow a text beyond {} tokens: all is computed again there", again_);
    text.cache.truncate(0);
  }

  const Model& model_;
  const ModelInfo& info_;
  std::span<const Ids> prompts_;
  const GenerateOptions& options_;
  const std::int64_t again_, start_;
  std::vector<Edit> lasting_;  // the edits of every token
  std::vector<Growing> texts_;
  std::size_t taken_ = 0;  // of the prompts
  std::vector<Ids> made_;
};

}  // namespace

std::vector<std::int64_t> Model::generate(std::span<const std::int64_t> ids, const GenerateOptions& options) const {
  models::output_of(*parts_, "Model.generate");
  models::check_sampling(options);
  if (options.max_new_tokens == 0) return {};
  const std::vector<Ids> prompts{{ids.begin(), ids.end()}};
  return Generation(*this, *parts_, prompts, options).run()[0];
}

std::vector<std::vector<std::int64_t>> Model::generate(std::span<const std::vector<std::int64_t>> prompts,
                                                       const GenerateOptions& options) const {
  models::output_of(*parts_, "Model.generate");
  models::check_sampling(options);
  if (prompts.size() > 1) check_for_several(options);
  for (std::size_t n = 0; n < prompts.size(); ++n) check_prompt(fmt::format("prompts[{}]", n), prompts[n], info());
  if (options.max_new_tokens == 0) return std::vector<Ids>(prompts.size());
  return Generation(*this, *parts_, prompts, options).run();
}

}  // namespace attend
