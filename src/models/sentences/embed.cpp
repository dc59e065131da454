// Sentences to vectors.
#include <algorithm>
#include <atomic>
#include <cctype>
#include <exception>
#include <numeric>
#include <thread>

#include "core/parallel.h"
#include "models/model.h"

namespace attend::inline v0 {

namespace {

using models::SentenceModules;

constexpr const char* function = "Model.embed";

// Of sentences that are in memory as ids at once.
constexpr std::size_t most_bytes = 1 << 18, most_sentences = 4096;
// Of one pass: its numbers fit a core's cache, and its products are as fast as those of more.
constexpr std::int64_t pass_tokens = 256;

// A word alone is a name that was mistyped: as a text it would run into the sentence.
std::string prompt_of(const SentenceModules& modules, const std::optional<std::string>& given) {
  if (!given) return modules.default_prompt;
  if (const auto found = modules.prompts.find(*given); found != modules.prompts.end()) return found->second;
  const auto in_name = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '-'; };
  if (given->empty() || !std::ranges::all_of(*given, in_name)) return *given;
  std::vector<std::string> names;
  names.reserve(modules.prompts.size());
  for (const auto& [name, text] : modules.prompts) names.push_back(quote(name));
  fail(ErrorCode::bad_value, function,
       "prompt {} is none of the model's ({}); a text to stand before each sentence ends in a space or a mark",
       quote(*given), fmt::join(names, ", "));
}

struct Tokens {
  std::vector<std::int64_t> ids, types;
  bool cut = false;
};

// At most so many, of which those that the tokenizer adds are kept.
Tokens cut(const Encoding& from, std::int64_t most, bool begin) {
  const auto added = std::ranges::count(from.special, true);
  const std::int64_t own = std::ssize(from.ids) - added, kept = std::max<std::int64_t>(0, most - added);
  Tokens tokens{.ids = {}, .types = {}, .cut = own > kept};
  std::int64_t at = 0;  // among the text's own
  for (std::size_t n = 0; n < from.ids.size(); ++n) {
    if (!from.special[n]) {
      const std::int64_t place = at++;
      if (begin ? place < own - kept : place >= kept) continue;
    }
    tokens.ids.push_back(from.ids[n]);
    tokens.types.push_back(from.types[n]);
  }
  return tokens;
}

// How many tokens of a sentence are its prompt's: those that the tokenizer adds after it are not.
std::int64_t length_of(const Tokenizer& tokenizer, const std::string& prompt, const SentenceModules& modules) {
  const Encoding alone = tokenizer.encode(prompt);
  const std::int64_t length = std::ssize(cut(alone, modules.max_tokens, modules.cuts_begin).ids);
  return length - (!alone.special.empty() && alone.special.back() ? 1 : 0);
}

// Embeds sentences window by window. A window's are sorted by length and packed into passes, each of which is one
// core's: short sentences keep all of them busy.
class Embedder {
 public:
  Embedder(const Model& model, const Model::Parts& parts, std::span<const std::string_view> sentences,
           const EmbedOptions& options)
      : model_(model),
        modules_(*parts.sentences),
        tokenizer_((parts.of_sentences ? parts.of_sentences : parts.tokenizer)->get()),
        sentences_(sentences),
        options_(options),
        prompt_(prompt_of(modules_, options.prompt)) {
    if (!modules_.pooling.includes_prompt && !prompt_.empty())
      prompt_length_ = length_of(tokenizer_, prompt_, modules_);
    made_.vectors = Tensor({std::ssize(sentences), vector_size()});
  }

  Embeddings run() {
    for (std::size_t begin = 0; begin < sentences_.size();) {
      std::size_t end = begin, bytes = 0;
      while (end < sentences_.size() && end - begin < most_sentences && bytes < most_bytes)
        bytes += sentences_[end++].size();
      encode(begin, end);
      compute(begin);
      begin = end;
    }
    return std::move(made_);
  }

 private:
  std::int64_t vector_size() const { return model_.info().vector_size; }

  void encode(std::size_t begin, std::size_t end) {
    window_.assign(end - begin, {});
    // Of several that can't be encoded the first is told, whichever thread meets one first.
    std::vector<std::exception_ptr> thrown(window_.size());
    parallel_for(std::ssize(window_), 8, [&](std::int64_t first, std::int64_t last) {
      for (auto n = static_cast<std::size_t>(first); n < static_cast<std::size_t>(last); ++n) {
        try {
          window_[n] = tokens_of(begin + n);
        } catch (...) {
          thrown[n] = std::current_exception();
        }
      }
    });
    for (const std::exception_ptr& each : thrown)
      if (each) std::rethrow_exception(each);
    made_.cut += std::ranges::count(window_, true, &Tokens::cut);
  }

  Encoding encoded(std::size_t n) const {
    try {
      return models::encoded(tokenizer_, std::string(prompt_).append(sentences_[n]), model_.info());
    } catch (const Error& error) {
      fail(error.code(), function, "sentences[{}]: {}", n, error.detail());
    }
  }

  Tokens tokens_of(std::size_t n) const {
    const Encoding all = encoded(n);
    Tokens tokens = cut(all, modules_.max_tokens, modules_.cuts_begin);
    if (tokens.ids.empty()) fail(ErrorCode::bad_value, function, "sentences[{}] has no tokens", n);
    if (tokens.cut && !options_.truncate)
      fail(ErrorCode::bad_value, function, "sentences[{}] has {} tokens, the model takes {}", n, all.ids.size(),
           modules_.max_tokens);
    return tokens;
  }

  // Of the window's sentences, the longest first, so many that a pass is full, or that each thread has one.
  std::vector<std::vector<std::size_t>> passes(int threads) const {
    std::vector<std::size_t> order(window_.size());
    std::iota(order.begin(), order.end(), 0);
    const auto length = [&](std::size_t n) { return std::ssize(window_[n].ids); };
    std::ranges::stable_sort(order, std::greater(), length);
    std::int64_t all = 0;
    for (const std::size_t n : order) all += length(n);
    const std::int64_t most = std::clamp(all / threads, pass_tokens / 4, pass_tokens);
    std::vector<std::vector<std::size_t>> packed;
    std::int64_t tokens = most;
    for (const std::size_t n : order) {
      if (tokens + length(n) > most || packed.empty()) packed.emplace_back(), tokens = 0;
      packed.back().push_back(n);
      tokens += length(n);
    }
    return packed;
  }

  void compute(std::size_t begin) {
    const int threads = num_threads();
    const auto packed = passes(threads);
    const auto workers = static_cast<int>(std::min<std::int64_t>(threads, std::ssize(packed)));
    std::atomic<std::int64_t> done = static_cast<std::int64_t>(begin);
    const auto caller = std::this_thread::get_id();
    parallel_items(std::ssize(packed), workers, [&](int, std::int64_t item) {
      const auto& pass = packed[static_cast<std::size_t>(item)];
      put(vectors_of(pass), pass, begin);
      done += std::ssize(pass);
      if (options_.progress && std::this_thread::get_id() == caller) tell(done);
    });
    if (options_.progress) tell(done);
  }

  void tell(std::int64_t done) const { options_.progress(double(done) / double(sentences_.size())); }

  Tensor vectors_of(const std::vector<std::size_t>& pass) const {
    std::vector<std::int64_t> ids, types, starts{0};
    for (const std::size_t n : pass) {
      ids.insert(ids.end(), window_[n].ids.begin(), window_[n].ids.end());
      types.insert(types.end(), window_[n].types.begin(), window_[n].types.end());
      starts.push_back(std::ssize(ids));
    }
    if (std::ranges::count(types, 0) == std::ssize(types)) types.clear();
    const Tensor hidden = ModelAccess::forward(model_, ids, {.starts = starts, .types = types}, nullptr);
    return modules_.vectors(hidden, starts, prompt_length_, options_.normalize);
  }

  void put(const Tensor& vectors, const std::vector<std::size_t>& pass, std::size_t begin) {
    const std::int64_t size = vector_size();
    for (std::size_t n = 0; n < pass.size(); ++n)
      std::copy_n(vectors.data<float>() + static_cast<std::int64_t>(n) * size, size,
                  made_.vectors.data<float>() + static_cast<std::int64_t>(begin + pass[n]) * size);
  }

  const Model& model_;
  const SentenceModules& modules_;
  const Tokenizer& tokenizer_;
  std::span<const std::string_view> sentences_;
  const EmbedOptions& options_;
  std::string prompt_;
  std::int64_t prompt_length_ = 0;  // tokens that are not pooled
  std::vector<Tokens> window_;
  Embeddings made_;
};

}  // namespace

const SentenceModules& models::sentence_modules(const Model::Parts& parts) {
  if (parts.pooling) throw Error(*parts.pooling);
  return *parts.sentences;
}

Tensor Model::embed(std::span<const std::int64_t> ids, const ModelCall& call, std::optional<bool> normalize) const {
  const SentenceModules& modules = models::sentence_modules(*parts_);
  const Tensor hidden = ModelAccess::forward(*this, ids, call, nullptr);
  return modules.vectors(hidden, models::checked_starts("starts", call.starts, std::ssize(ids)), 0, normalize);
}

Embeddings Model::embed(std::span<const std::string_view> sentences, const EmbedOptions& options) const {
  if (models::sentence_modules(*parts_).chats)
    fail(ErrorCode::bad_file, function,
         "sentence-transformers renders sentences with this model's chat template, which is not known here");
  return Embedder(*this, *parts_, sentences, options).run();
}

Embeddings Model::embed(std::span<const std::string> sentences, const EmbedOptions& options) const {
  return embed(std::vector<std::string_view>(sentences.begin(), sentences.end()), options);
}

}  // namespace attend::inline v0
