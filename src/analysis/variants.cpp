#include "attend/variants.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "analysis/json.h"
#include "analysis/texts.h"
#include "attend/summary.h"
#include "core/from_end.h"
#include "core/message.h"
#include "core/utf8.h"
#include "models/batch.h"
#include "models/growing.h"
#include "models/model.h"
#include "tokenizer/unicode.h"

namespace attend::inline v1 {

namespace {

using tokenizer::is_cjk, tokenizer::is_mark, tokenizer::is_word;

constexpr const char* variants_function = "vary";

// ---- Words ----

struct WordBytes {
  std::string word;
  Range bytes;
};

// What stands between marks and blanks; an ideograph is one by itself.
std::vector<WordBytes> words_of(std::string_view text) {
  std::vector<WordBytes> words;
  bool goes_on = false;
  std::int64_t begin = 0;
  for (const char32_t point : decode_utf8(text, {variants_function, "text"})) {
    const std::string character = encode_utf8(std::u32string_view(&point, 1));
    const std::int64_t end = begin + std::ssize(character);
    if (is_word(point) || is_mark(point)) {
      if (!goes_on || is_cjk(point)) words.push_back({{}, {begin, begin}});
      words.back().word += character, words.back().bytes.end = end;
    }
    goes_on = (is_word(point) || is_mark(point)) && !is_cjk(point);
    begin = end;
  }
  return words;
}

// The bytes of the first place where a word, or several in a row, stand.
std::optional<Range> find_words(std::string_view text, std::string_view asked) {
  const std::vector<WordBytes> words = words_of(text), sought = words_of(asked);
  const auto same = [](const WordBytes& a, const WordBytes& b) { return a.word == b.word; };
  const auto found = std::search(words.begin(), words.end(), sought.begin(), sought.end(), same);
  if (sought.empty() || found == words.end()) return std::nullopt;
  return Range{found->bytes.begin, (found + std::ssize(sought) - 1)->bytes.end};
}

Range bytes_of(const VariantText& text, std::string_view name, std::string_view word) {
  const std::optional<Range> found = find_words(text.text, word);
  if (!found)
    fail(ErrorCode::bad_value, variants_function, "{} is {}, which is not in {}", name, quote(word), quote(text.text));
  return *found;
}

// The tokens that stand for some of these bytes.
Range tokens_of(const Encoding& encoding, const Range& bytes) {
  Range tokens{0, 0};
  for (std::int64_t n = 0; n < std::ssize(encoding.ids); ++n) {
    const Range& at = encoding.offsets[static_cast<std::size_t>(n)];
    if (encoding.texts[static_cast<std::size_t>(n)] != 0 || at.begin >= bytes.end || at.end <= bytes.begin) continue;
    if (tokens.end == 0) tokens.begin = n;
    tokens.end = n + 1;
  }
  return tokens;
}

// ---- Rows ----

// What the query gives to each token, in every layer: [L,H,N].
class RowsOfQuery : public models::Watcher {
 public:
  RowsOfQuery(std::int64_t layers, std::int64_t heads, std::int64_t query, std::int64_t tokens)
      : query_(query), weights_({layers, heads, tokens}) {}

  void at(ModelPlace place, std::int64_t, const MutableView& values) override {
    if (place == ModelPlace::rotated_k) keys_ = values.clone();
  }
  void attends(const models::AttentionStep& step, const View& q, const View&) override {
    const std::int64_t N = keys_.size(0), D = keys_.size(1) / step.kv_heads;
    const View keys = keys_.view().reshape({1, N, step.kv_heads, D}).transpose(1, 2);
    const Tensor row =
        attention_weights(q, keys, {}, step.options(), {.queries = Range{query_, query_ + 1}});  // [1,H,1,N]
    std::copy_n(row.data<float>(), row.count(), weights_.data<float>() + step.layer * row.count());
  }
  Tensor take() { return std::move(weights_); }

 private:
  std::int64_t query_;
  Tensor keys_, weights_;
};

VariantRow row_of(const Model& model, const VariantText& text) {
  const ModelInfo& info = model.info();
  const Encoding encoding = models::embedded(model.tokenizer().encode(text.text), model.tokenizer(), info);
  VariantRow row{.text = text.text, .ids = encoding.ids};
  for (const WordBytes& word : words_of(text.text))
    if (const Range tokens = tokens_of(encoding, word.bytes); tokens.end > 0) row.words.push_back({word.word, tokens});
  const auto found = [&](std::string_view name, std::string_view word) {
    const Range tokens = tokens_of(encoding, bytes_of(text, name, word));
    if (tokens.end == 0)
      fail(ErrorCode::bad_value, variants_function, "{} is {}, for which {} has no token", name, quote(word),
           quote(text.text));
    return tokens;
  };
  row.query = found("query", text.query).end - 1;
  const auto claimed = [&](std::string_view name, const std::string& word) -> std::optional<Range> {
    if (word.empty()) return std::nullopt;
    const Range tokens = found(name, word);
    if (info.decoder() && tokens.end > row.query)
      fail(ErrorCode::bad_value, variants_function, "{} is {}, which comes after {}: a decoder does not see it there",
           name, quote(word), quote(text.query));
    return tokens;
  };
  row.target = claimed("target", text.target), row.other = claimed("other", text.other);
  if (row.other && !row.target)
    fail(ErrorCode::bad_value, variants_function, "other is {} without a target", quote(text.other));
  RowsOfQuery watcher(info.layers, info.heads, row.query, std::ssize(row.ids));
  (void)ModelAccess::forward(model, row.ids, {}, &watcher);
  row.weights = watcher.take();
  return row;
}

// ---- Claims ----

// Of a row that may have been made by hand. Throws bad_shape, bad_dtype and bad_value.
void check_row(const VariantRow& row) {
  if (row.weights.rank() != 3)
    fail(ErrorCode::bad_shape, variants_function, "weights have shape {}, expected [L,H,N]", row.weights.shape());
  if (row.weights.dtype() != DType::f32)
    fail(ErrorCode::bad_dtype, variants_function, "weights are {}, expected f32", row.weights.dtype());
  const std::int64_t N = row.weights.size(2);
  const auto check = [&](const Range& tokens) {
    if (tokens.begin < 0 || tokens.begin > tokens.end || tokens.end > N)
      fail(ErrorCode::bad_value, variants_function, "tokens {} to {}, expected a part of {}", tokens.begin, tokens.end,
           N);
  };
  for (const VariantWord& word : row.words) check(word.tokens);
  for (const std::optional<Range>& tokens : {row.target, row.other})
    if (tokens) check(*tokens);
}

const float* weights_of(const VariantRow& row, const Head& head) {
  const std::int64_t layer = from_end(variants_function, "layer is", head.first, row.weights.size(0)),
                     number = from_end(variants_function, "head is", head.second, row.weights.size(1));
  return row.weights.data<float>() + (layer * row.weights.size(1) + number) * row.weights.size(2);
}

double sum_of(const float* weights, const Range& tokens) {
  double sum = 0;
  for (std::int64_t n = tokens.begin; n < tokens.end; ++n) sum += static_cast<double>(weights[n]);
  return sum;
}

std::int64_t place_of_top(const VariantRow& row, const float* weights) {
  std::int64_t best = -1;
  double most = 0;
  for (std::int64_t n = 0; n < std::ssize(row.words); ++n) {
    const Range& tokens = row.words[static_cast<std::size_t>(n)].tokens;
    if (tokens.begin <= row.query && row.query < tokens.end) continue;
    if (const double sum = sum_of(weights, tokens); sum > most) most = sum, best = n;
  }
  return best;
}

// Of a head whose top word in the first text is `first` of `words`.
bool is_same(const VariantRow& row, std::int64_t top, const VariantRow& before, std::int64_t first) {
  if (top < 0 || first < 0) return false;
  if (row.words.size() == before.words.size()) return top == first;
  return row.words[static_cast<std::size_t>(top)].word == before.words[static_cast<std::size_t>(first)].word;
}

bool holds(const VariantRow& row, const float* weights, const VariantRow& before, std::int64_t first) {
  if (row.target && row.other) return sum_of(weights, *row.target) > sum_of(weights, *row.other);
  const std::int64_t top = place_of_top(row, weights);
  if (!row.target) return is_same(row, top, before, first);
  return top >= 0 && sum_of(weights, *row.target) >= sum_of(weights, row.words[static_cast<std::size_t>(top)].tokens);
}

// P(X <= k) of n flips of a coin.
std::vector<double> flips(std::int64_t n) {
  std::vector<double> below;
  double sum = 0;
  for (std::int64_t k = 0; k <= n; ++k) {
    const auto count = static_cast<double>(n), hits = static_cast<double>(k);
    sum +=
        std::exp(std::lgamma(count + 1) - std::lgamma(hits + 1) - std::lgamma(count - hits + 1) - count * std::log(2));
    below.push_back(sum);
  }
  return below;
}

Json json_of(const std::optional<Range>& tokens) {
  return tokens ? Json::array({tokens->begin, tokens->end}) : Json();
}

}  // namespace

Variants vary(const Model& model, std::span<const VariantText> texts, const std::function<void(double)>& progress) {
  if (texts.empty()) fail(ErrorCode::bad_value, variants_function, "there are no texts");
  models::check_exact(model.info(), variants_function);
  if (model.info().encoder_decoder())
    fail(ErrorCode::bad_value, variants_function, "the model is of type {}, expected a decoder or an encoder",
         model.info().type);
  Variants out;
  for (std::size_t n = 0; n < texts.size(); ++n) {
    analysis::of_text(n, texts.size(), [&] { out.rows.push_back(row_of(model, texts[n])); });
    if (progress) progress(static_cast<double>(n + 1) / static_cast<double>(texts.size()));
  }
  return out;
}

std::vector<std::string> varied_texts(std::string_view text, std::string_view words) {
  constexpr const char* form = "expected a word of the text and others for it, as \"tired=wide,full\"";
  const std::size_t equals = words.find('=');
  if (equals == std::string_view::npos)
    fail(ErrorCode::bad_value, "varied_texts", "{} has no '=': {}", quote(words), form);
  const std::optional<Range> place = find_words(text, words.substr(0, equals));
  if (!place)
    fail(ErrorCode::bad_value, "varied_texts", "the text does not have {}: {}", quote(words.substr(0, equals)), form);
  std::vector<std::string> out{std::string(text)};
  for (std::string_view rest = words.substr(equals + 1);;) {
    const std::string_view word = rest.substr(0, rest.find(','));
    if (word.empty()) fail(ErrorCode::bad_value, "varied_texts", "{} has an empty word: {}", quote(words), form);
    out.emplace_back(text);
    out.back().replace(static_cast<std::size_t>(place->begin), static_cast<std::size_t>(place->end - place->begin),
                       word);
    if (word.size() == rest.size()) return out;
    rest.remove_prefix(word.size() + 1);
  }
}

double given(const VariantRow& row, const Head& head, const Range& tokens) {
  check_row(row);
  if (tokens.begin < 0 || tokens.begin > tokens.end || tokens.end > row.weights.size(2))
    fail(ErrorCode::bad_value, "given", "tokens {} to {}, expected a part of {}", tokens.begin, tokens.end,
         row.weights.size(2));
  return sum_of(weights_of(row, head), tokens);
}

std::optional<VariantWord> top_word(const VariantRow& row, const Head& head) {
  check_row(row);
  const std::int64_t place = place_of_top(row, weights_of(row, head));
  return place < 0 ? std::nullopt : std::optional(row.words[static_cast<std::size_t>(place)]);
}

Tensor times_held(const Variants& variants) {
  if (variants.rows.empty()) fail(ErrorCode::bad_value, "times_held", "there are no texts");
  for (const VariantRow& row : variants.rows) check_row(row);
  const VariantRow& before = variants.rows.front();
  Tensor held({before.weights.size(0), before.weights.size(1)}, DType::i64);
  for (std::int64_t n = 0; n < held.count(); ++n) {
    const Head head{n / held.size(1), n % held.size(1)};
    const std::int64_t first = place_of_top(before, weights_of(before, head));
    for (const VariantRow& row : variants.rows)
      held.data<std::int64_t>()[n] += holds(row, weights_of(row, head), before, first) ? 1 : 0;
  }
  return held;
}

VariantBaselines baselines(const Variants& variants) {
  VariantBaselines found;
  std::int64_t texts = 0;
  for (const VariantRow& row : variants.rows) {
    check_row(row);
    if (!row.target || !row.other) continue;
    const auto away = [&](const Range& tokens) { return std::abs(tokens.begin - row.query); };
    ++texts;
    found.first += row.target->begin < row.other->begin;
    found.nearest += away(*row.target) < away(*row.other);
  }
  if (texts == 0) return found;
  const auto heads = static_cast<double>(variants.rows.front().weights.size(0) * variants.rows.front().weights.size(1));
  const std::vector<double> below = flips(texts);
  found.chance = std::ranges::find_if(below, [&](double p) { return std::pow(p, heads) >= 0.5; }) - below.begin();
  return found;
}

std::string to_json(const Variants& x, const TensorJson& tensor) {
  const Tensors json(tensor);
  Json texts = Json::array();
  for (const VariantRow& row : x.rows) {
    Json words = Json::array();
    for (const VariantWord& word : row.words)
      words.push_back({{"word", word.word}, {"tokens", json_of(std::optional(word.tokens))}});
    texts.push_back({{"text", row.text},
                     {"ids", row.ids},
                     {"words", std::move(words)},
                     {"query", row.query},
                     {"target", json_of(row.target)},
                     {"other", json_of(row.other)},
                     {"weights", json("weights", row.weights)}});
  }
  return text_of({{"texts", std::move(texts)}, {"held", json("held", times_held(x))}});
}

}  // namespace attend::inline v1
