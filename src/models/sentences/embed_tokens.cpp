// Texts to a vector for each token.
#include <algorithm>
#include <array>
#include <utility>

#include "layers/rows.h"
#include "models/model.h"
#include "models/sentences/token_rules.h"
#include "models/text_passes.h"

namespace attend::inline v1 {

namespace {

using models::TokenRules;

constexpr const char* embed_tokens_function = "embed_tokens";

const Model::Parts& checked_parts(const Model& model) {
  const Model::Parts& parts = ModelAccess::parts(model);
  if (parts.info.vectors != VectorKind::token)
    fail(ErrorCode::bad_value, embed_tokens_function,
         "expected a model with a vector for each token (ColBERT), and this one's files (type {}) do not describe one; "
         "forward() gives its hidden states",
         parts.info.type);
  if (!parts.tokens) throw Error(*parts.pooling);
  if (parts.tokens->texts.chats)
    fail(ErrorCode::bad_file, embed_tokens_function,
         "sentence-transformers renders texts with this model's chat template, which is not known here");
  return parts;
}

// A prompt that is begun by a marker that the tokenizer would take apart: the marker's id, and what comes after it.
struct Prompt {
  std::string text;
  std::optional<std::int64_t> marker = {};
};

// A marker is looked for with its space and without, as sentence-transformers does it.
Prompt read_prompt(const TokenRules& rules, const Tokenizer& tokenizer, std::string text) {
  for (const std::string& marker : rules.markers) {
    if (!text.starts_with(marker)) continue;
    for (const std::string& each : {marker, marker.substr(0, marker.find(' '))}) {
      const std::optional<std::int64_t> id = tokenizer.id(each);
      if (!id) continue;
      if (tokenizer.encode(each, false).ids == std::vector{*id}) break;
      return {text.substr(each.size()), id};
    }
    break;
  }
  return {std::move(text)};
}

class TokenEmbedder {
 public:
  TokenEmbedder(const Model& model, std::span<const std::string_view> texts, const TokenVectorOptions& options)
      : model_(model),
        parts_(checked_parts(model)),
        rules_(*parts_.tokens),
        tokenizer_((parts_.of_sentences ? parts_.of_sentences : parts_.tokenizer)->get()),
        texts_(texts),
        options_(options),
        of_query_(options.role == TextRole::query),
        prompt_(read_prompt(rules_, tokenizer_,
                            options.prompt ? models::prompt_text(embed_tokens_function, rules_.texts, options.prompt)
                                           : rules_.prompt(options.role))) {
    if (options.max_tokens && *options.max_tokens < 1)
      fail(ErrorCode::bad_value, embed_tokens_function, "max_tokens is {}, expected 1 or more", *options.max_tokens);
    max_tokens_ = of_query_ ? rules_.query_tokens : rules_.texts.max_tokens;
    if (options.max_tokens && !fills_up()) max_tokens_ = std::min(max_tokens_, *options.max_tokens);
    if (fills_up()) fill_id_ = find_fill_id();
    read_skipped();
  }

  std::vector<TokenVectors> run() {
    made_.resize(texts_.size());
    kept_.resize(texts_.size());
    models::run_passes(model_, {.count = texts_.size(),
                                .bytes = [&](std::size_t n) { return texts_[n].size(); },
                                .tokens = [&](std::size_t n) { return tokens_of(n); },
                                .use = [&](const models::TextPass& pass) { put(pass); },
                                .progress = options_.progress});
    return std::move(made_);
  }

 private:
  bool fills_up() const { return of_query_ && rules_.expansion; }

  std::int64_t find_fill_id() const {
    std::vector<std::string> names{rules_.mask, "[MASK]", "<mask>", rules_.end};
    if (rules_.expansion->token) names = {*rules_.expansion->token};
    for (const std::string& name : names)
      if (const auto id = name.empty() ? std::nullopt : tokenizer_.id(name)) return *id;
    fail(ErrorCode::bad_file, embed_tokens_function, "a query is filled up with {}, which the tokenizer does not have",
         rules_.expansion->token ? quote(names[0]) : "a mask or what ends a text");
  }

  void read_skipped() {
    if (!(of_query_ ? rules_.skips_in_queries : rules_.skips_in_documents)) return;
    for (const std::string& each : rules_.skipped)
      if (const auto id = tokenizer_.id(each)) skipped_.push_back(*id);
    std::ranges::sort(skipped_);
  }

  // With the marker behind what the tokenizer puts first.
  Encoding encoded(std::size_t n) const {
    Encoding all =
        models::embedded(tokenizer_.encode(std::string(prompt_.text).append(texts_[n])), tokenizer_, model_.info());
    if (!prompt_.marker) return all;
    const std::ptrdiff_t at = std::ranges::find(all.special, false) - all.special.begin();
    // Of an empty text all are the tokenizer's, and half of them stand before it.
    const std::ptrdiff_t place = at == std::ssize(all.special) ? (at + 1) / 2 : at;
    all.ids.insert(all.ids.begin() + place, *prompt_.marker);
    all.offsets.insert(all.offsets.begin() + place, Range());
    all.special.insert(all.special.begin() + place, false);
    all.types.insert(all.types.begin() + place, 0);
    all.texts.insert(all.texts.begin() + place, 0);
    return all;
  }

  models::TextTokens tokens_of(std::size_t n) {
    try {
      Encoding all = encoded(n);
      const std::int64_t count = std::ssize(all.ids);
      if (count == 0) fail(ErrorCode::bad_value, embed_tokens_function, "has no tokens");
      all = models::cut_encoding(std::move(all), max_tokens_, rules_.texts.cuts_begin);
      made_[n].cut = std::ssize(all.ids) < count;
      if (made_[n].cut && !options_.truncate)
        fail(ErrorCode::bad_value, embed_tokens_function, "has {} tokens, the model takes {}", count, max_tokens_);
      return filled_up(n, std::move(all));
    } catch (const Error& error) {
      fail(error.code(), embed_tokens_function, "texts[{}]: {}", n, error.detail());
    }
  }

  models::TextTokens filled_up(std::size_t n, Encoding all) {
    const std::int64_t own = std::ssize(all.ids);
    models::TextTokens tokens{std::move(all.ids), std::move(all.types), made_[n].cut};
    if (fills_up() && own < rules_.expansion->length) {
      const auto length = static_cast<std::size_t>(rules_.expansion->length);
      tokens.ids.resize(length, *fill_id_);
      tokens.types.resize(length, 0);
      tokens.unseen = rules_.expansion->attends ? 0 : rules_.expansion->length - own;
    }
    const auto prompt = static_cast<std::int64_t>(prompt_.text.size());
    for (std::int64_t row = 0; row < std::ssize(tokens.ids); ++row) {
      const std::int64_t id = tokens.ids[static_cast<std::size_t>(row)];
      if (std::binary_search(skipped_.begin(), skipped_.end(), id)) continue;
      const Range range = row < own ? all.offsets[static_cast<std::size_t>(row)] : Range();
      kept_[n].push_back(row);
      made_[n].ids.push_back(id);
      made_[n].offsets.push_back(
          {std::max<std::int64_t>(0, range.begin - prompt), std::max<std::int64_t>(0, range.end - prompt)});
    }
    return tokens;
  }

  void put(const models::TextPass& pass) {
    Tensor x = pass.hidden.clone();
    for (const models::SentenceModule& each : rules_.after) x = models::passed(each, std::move(x));
    const std::int64_t size = x.size(1);
    for (std::size_t n = 0; n < pass.texts.size(); ++n) {
      const std::size_t text = pass.texts[n];
      Tensor& vectors = made_[text].vectors = Tensor({std::ssize(kept_[text]), size});
      float* to = vectors.data<float>();
      for (const std::int64_t row : kept_[text])
        to = std::copy_n(x.data<float>() + (pass.starts[n] + row) * size, size, to);
    }
  }

  const Model& model_;
  const Model::Parts& parts_;
  const TokenRules& rules_;
  const Tokenizer& tokenizer_;
  std::span<const std::string_view> texts_;
  const TokenVectorOptions& options_;
  bool of_query_;
  Prompt prompt_;
  std::int64_t max_tokens_ = 0;
  std::optional<std::int64_t> fill_id_ = {};
  std::vector<std::int64_t> skipped_;  // ids, rising
  std::vector<TokenVectors> made_;
  std::vector<std::vector<std::int64_t>> kept_;  // of each text: the rows that have a vector
};

}  // namespace

std::string_view name_of(TextRole role) {
  constexpr std::string_view names[] = {"query", "document"};
  if (const auto n = static_cast<std::size_t>(role); n < std::size(names)) return names[n];
  fail(ErrorCode::bad_value, "name_of", "there is no text role {}", static_cast<int>(role));
}

std::vector<TokenVectors> embed_tokens(const Model& model, std::span<const std::string_view> texts,
                                       const TokenVectorOptions& options) {
  return TokenEmbedder(model, texts, options).run();
}

std::vector<TokenVectors> embed_tokens(const Model& model, std::span<const std::string> texts,
                                       const TokenVectorOptions& options) {
  return embed_tokens(model, std::vector<std::string_view>(texts.begin(), texts.end()), options);
}

TokenVectors embed_tokens(const Model& model, std::string_view text, const TokenVectorOptions& options) {
  return std::move(embed_tokens(model, std::span(&text, 1), options).front());
}

}  // namespace attend::inline v1
