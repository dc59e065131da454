// Sentences to vectors.
#include <algorithm>
#include <cctype>

#include "models/model.h"
#include "models/text_passes.h"

namespace attend::inline v0 {

namespace {

using models::SentenceModules;

constexpr const char* function = "Model.embed";

// A word alone is a name that was mistyped: as a text it would run into the sentence.
std::string prompt_of(const SentenceModules& modules, const std::optional<std::string>& given) {
  if (!given) return modules.texts.default_prompt;
  if (const auto found = modules.texts.prompts.find(*given); found != modules.texts.prompts.end()) return found->second;
  const auto in_name = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '-'; };
  if (given->empty() || !std::ranges::all_of(*given, in_name)) return *given;
  std::vector<std::string> names;
  names.reserve(modules.texts.prompts.size());
  for (const auto& [name, text] : modules.texts.prompts) names.push_back(quote(name));
  fail(ErrorCode::bad_value, function,
       "prompt {} is none of the model's ({}); a text to stand before each sentence ends in a space or a mark",
       quote(*given), fmt::join(names, ", "));
}

// How many tokens of a sentence are its prompt's: those that the tokenizer adds after it are not.
std::int64_t length_of(const Tokenizer& tokenizer, const std::string& prompt, const SentenceModules& modules) {
  const Encoding alone = tokenizer.encode(prompt);
  const std::int64_t length =
      std::ssize(models::cut_encoding(alone, modules.texts.max_tokens, modules.texts.cuts_begin).ids);
  return length - (!alone.special.empty() && alone.special.back() ? 1 : 0);
}

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
  }

  Embeddings run() const {
    Embeddings made{.vectors = Tensor({std::ssize(sentences_), model_.info().vector_size})};
    made.cut = models::run_passes(model_, {.count = sentences_.size(),
                                           .bytes = [&](std::size_t n) { return sentences_[n].size(); },
                                           .tokens = [&](std::size_t n) { return tokens_of(n); },
                                           .use = [&](const models::TextPass& pass) { put(pass, made.vectors); },
                                           .progress = options_.progress});
    return made;
  }

 private:
  Encoding encoded(std::size_t n) const {
    try {
      return models::encoded(tokenizer_, std::string(prompt_).append(sentences_[n]), model_.info());
    } catch (const Error& error) {
      fail(error.code(), function, "sentences[{}]: {}", n, error.detail());
    }
  }

  models::TextTokens tokens_of(std::size_t n) const {
    Encoding all = encoded(n);
    const std::int64_t count = std::ssize(all.ids);
    all = models::cut_encoding(std::move(all), modules_.texts.max_tokens, modules_.texts.cuts_begin);
    models::TextTokens tokens{std::move(all.ids), std::move(all.types), false};
    tokens.cut = std::ssize(tokens.ids) < count;
    if (tokens.ids.empty()) fail(ErrorCode::bad_value, function, "sentences[{}] has no tokens", n);
    if (tokens.cut && !options_.truncate)
      fail(ErrorCode::bad_value, function, "sentences[{}] has {} tokens, the model takes {}", n, count,
           modules_.texts.max_tokens);
    return tokens;
  }

  void put(const models::TextPass& pass, Tensor& to) const {
    const Tensor vectors = modules_.vectors(pass.hidden, pass.starts, prompt_length_, options_.normalize);
    const std::int64_t size = vectors.size(1);
    for (std::size_t n = 0; n < pass.texts.size(); ++n)
      std::copy_n(vectors.data<float>() + static_cast<std::int64_t>(n) * size, size,
                  to.data<float>() + static_cast<std::int64_t>(pass.texts[n]) * size);
  }

  const Model& model_;
  const SentenceModules& modules_;
  const Tokenizer& tokenizer_;
  std::span<const std::string_view> sentences_;
  const EmbedOptions& options_;
  std::string prompt_;
  std::int64_t prompt_length_ = 0;  // tokens that are not pooled
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
  if (models::sentence_modules(*parts_).texts.chats)
    fail(ErrorCode::bad_file, function,
         "sentence-transformers renders sentences with this model's chat template, which is not known here");
  return Embedder(*this, *parts_, sentences, options).run();
}

Embeddings Model::embed(std::span<const std::string> sentences, const EmbedOptions& options) const {
  return embed(std::vector<std::string_view>(sentences.begin(), sentences.end()), options);
}

}  // namespace attend::inline v0
