// Sentences to vectors.
#include <algorithm>
#include <limits>

#include "core/utf8.h"
#include "models/model.h"
#include "models/text_passes.h"

namespace attend::inline v1 {

namespace {

using models::SentenceModules;

constexpr const char* embed_function = "Model.embed";

// How many tokens of a sentence are its prompt's: those that the tokenizer adds after it are not.
std::int64_t length_of(const Tokenizer& tokenizer, const std::string& prompt, const SentenceModules& modules) {
  const Encoding alone = tokenizer.encode(prompt);
  const std::int64_t length =
      std::ssize(models::cut_encoding(alone, modules.texts.max_tokens, modules.texts.cuts_begin).ids);
  return length - (!alone.special.empty() && alone.special.back() ? 1 : 0);
}

// Of the characters that the vocabulary's tokens have, the median, as StaticModel of model2vec has it.
std::int64_t median_length(const Tokenizer& tokenizer) {
  std::vector<std::int64_t> lengths;
  for (std::int64_t id = 0; id < tokenizer.size(); ++id)
    lengths.push_back(std::ranges::count_if(tokenizer.token(id), begins_character));
  const std::size_t middle = lengths.size() / 2;
  std::nth_element(lengths.begin(), lengths.begin() + static_cast<std::ptrdiff_t>(middle), lengths.end());
  if (lengths.size() % 2 == 1) return lengths[middle];
  const std::int64_t below = *std::max_element(lengths.begin(), lengths.begin() + static_cast<std::ptrdiff_t>(middle));
  return (below + lengths[middle]) / 2;
}

// The text's first characters, `most` of them.
std::string_view begin_of(std::string_view text, std::int64_t most) {
  std::size_t end = 0;
  for (; end < text.size(); ++end)
    if (begins_character(text[end]) && most-- == 0) break;
  return text.substr(0, end);
}

// A call over many sentences: their ids by the folder's rules, and their vectors, each put in its place.
class Embedder {
 public:
  Embedder(const Model& model, const Model::Parts& parts, std::span<const std::string_view> sentences,
           const EmbedOptions& options)
      : model_(model),
        modules_(*parts.sentences),
        tokenizer_((parts.of_sentences ? parts.of_sentences : parts.tokenizer)->get()),
        sentences_(sentences),
        options_(options),
        prompt_(models::prompt_text(embed_function, modules_.texts, options.prompt)) {
    if (!modules_.pooling.includes_prompt && !prompt_.empty())
      prompt_length_ = length_of(tokenizer_, prompt_, modules_);
    prepare_model2vec();
  }

  Embeddings run() const {
    Embeddings made{.vectors = Tensor({std::ssize(sentences_), model_.info().vector_size})};
    made.cut = models::run_passes(model_, {.count = sentences_.size(),
                                           .bytes = [&](std::size_t n) { return sentences_[n].size(); },
                                           .tokens = [&](std::size_t n) { return tokens_of(n); },
                                           .use = [&](const models::TextPass& pass) { put(pass, made.vectors); },
                                           .first = modules_.pooling.modes == std::vector{models::PoolingMode::cls} &&
                                                    prompt_length_ == 0 && !modules_.of_table,
                                           .progress = options_.progress});
    return made;
  }

 private:
  bool is_model2vec() const { return modules_.of_table && modules_.of_table->model2vec; }

  // The vocabulary is looked through where a sentence may be so long that it matters.
  void prepare_model2vec() {
    if (!is_model2vec()) return;
    if (modules_.of_table->unknown) unknown_ = tokenizer_.id(*modules_.of_table->unknown);
    const auto is_long = [&](std::string_view text) {
      return std::ssize(prompt_) + std::ssize(text) > modules_.texts.max_tokens;
    };
    if (options_.truncate && std::ranges::any_of(sentences_, is_long))
      most_characters_ = modules_.texts.max_tokens * median_length(tokenizer_);
  }

  Encoding encoded(std::size_t n, std::string_view text) const {
    try {
      return models::embedded(tokenizer_.encode(text, !modules_.of_table), tokenizer_, model_.info());
    } catch (const Error& error) {
      fail(error.code(), embed_function, "sentences[{}]: {}", n, error.detail());
    }
  }

  models::TextTokens tokens_of(std::size_t n) const {
    const std::string text = std::string(prompt_).append(sentences_[n]);
    const std::string_view read = begin_of(text, most_characters_);
    Encoding all = encoded(n, read);
    const std::int64_t count = std::ssize(all.ids);
    models::TextTokens tokens = is_model2vec()
                                    ? cut_model2vec(std::move(all), read.size() < text.size())
                                    : cut(std::move(all), modules_.texts.max_tokens, modules_.texts.cuts_begin);
    if (tokens.ids.empty() && !modules_.of_table)
      fail(ErrorCode::bad_value, embed_function, "sentences[{}] has no tokens", n);
    if (tokens.cut && !options_.truncate)
      fail(ErrorCode::bad_value, embed_function, "sentences[{}] has {} tokens, the model takes {}", n, count,
           modules_.texts.max_tokens);
    return tokens;
  }

  static models::TextTokens cut(Encoding all, std::int64_t most, bool begin) {
    const std::size_t count = all.ids.size();
    all = models::cut_encoding(std::move(all), most, begin);
    const bool is_cut = all.ids.size() < count;
    return {std::move(all.ids), std::move(all.types), is_cut};
  }
  // What is left out does not count.
  models::TextTokens cut_model2vec(Encoding all, bool is_cut) const {
    const std::int64_t most = modules_.texts.max_tokens;
    models::TextTokens tokens = cut(std::move(all), modules_.of_table->cut_before, modules_.texts.cuts_begin);
    if (unknown_) std::erase(tokens.ids, *unknown_);
    tokens.cut |= is_cut || std::ssize(tokens.ids) > most;
    tokens.ids.resize(std::min(tokens.ids.size(), static_cast<std::size_t>(most)));
    tokens.types.assign(tokens.ids.size(), 0);
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
  std::optional<std::int64_t> unknown_;
  std::int64_t most_characters_ = std::numeric_limits<std::int64_t>::max();  // of a sentence with its prompt
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
    fail(ErrorCode::bad_file, embed_function,
         "sentence-transformers renders sentences with this model's chat template, which is not known here");
  return Embedder(*this, *parts_, sentences, options).run();
}

Embeddings Model::embed(std::span<const std::string> sentences, const EmbedOptions& options) const {
  return embed(std::vector<std::string_view>(sentences.begin(), sentences.end()), options);
}

}  // namespace attend::inline v1
