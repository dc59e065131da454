#include "explain/walk.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/message.h"
#include "core/utf8.h"
#include "kernels/rules.h"
#include "picture/text.h"

namespace attend {

namespace {

// More rows than this are too many to read; the rest is summed up in words.
constexpr std::int64_t most_rows = 24;
// Larger weight matrices are shown by their first row alone.
constexpr std::int64_t small_matrix = 64;

// A trace seen through one head and one query row.
struct Focus {
  const Trace& trace;
  std::int64_t i;     // query row
  std::int64_t j;     // the key with the largest weight in that row
  std::int64_t head;  // -1: there is no head axis
  const std::vector<std::string>& key_tokens;

  View of(const Tensor& tensor) const { return head < 0 ? tensor.view() : tensor.view().select(0, head); }
  // "queries", or "queries[0]" in a multi-head trace.
  std::string name(const char* field) const { return head < 0 ? field : fmt::format("{}[{}]", field, head); }
  std::string query_label() const { return label_of(trace.tokens, i); }
  std::string key_label(std::int64_t key) const { return label_of(key_tokens, key); }
  bool cross() const { return trace.embeddings_2.has_value(); }
  bool visible(std::int64_t key) const {
    return key < kernels::visible_keys({.causal = trace.causal, .key_length = keys()}, i).hi;
  }
  std::int64_t keys() const { return of(trace.weights).size(1); }
};

std::string number(double value) {
  return fmt::format("{:.4f}", value);
}

Table id_table(const std::vector<std::string>& tokens, const std::vector<std::int64_t>& ids) {
  Table table{{"word", "id"}, {}};
  const auto rows = std::min<std::size_t>(tokens.size(), most_rows);
  for (std::size_t t = 0; t < rows; ++t) table.rows.push_back({shown(tokens[t]), std::to_string(ids[t])});
  return table;
}

void add_ids(Step& step, const std::vector<std::string>& tokens, const std::vector<std::int64_t>& ids) {
  step.blocks.push_back(id_table(tokens, ids));
  if (tokens.size() > most_rows) {
    step.blocks.push_back(Paragraph{fmt::format("and {} more words", tokens.size() - most_rows)});
  }
}

Step words_step(const Focus& f) {
  Step step{"Words become ids", {}};
  step.blocks.push_back(Paragraph{f.trace.preset.starts_with("my-name")
                                      ? "The document gives each word an id in a vocabulary of 10."
                                      : "Commas are dropped and the words are split at white space. A word's id is its "
                                        "place among the sorted distinct words."});
  add_ids(step, f.trace.tokens, f.trace.ids);
  if (!f.trace.ids_2.empty()) {
    step.blocks.push_back(Paragraph{"The second sentence has a vocabulary of its own."});
    add_ids(step, f.trace.tokens_2, f.trace.ids_2);
  }
  return step;
}

Step embeddings_step(const Focus& f) {
  const Trace& t = f.trace;
  Step step{"Ids become embeddings", {}};
  const bool given = t.preset.starts_with("journey");
  step.blocks.push_back(Paragraph{
      given ? "The document gives the embeddings: one row of numbers for each word."
            : "Each id picks one row of a table of random numbers from N(0, 1). Training would learn the table."});
  step.blocks.push_back(
      Formula{given ? "embeddings" : "embeddings = embedding_table[ids]", t.embeddings.shape().str()});
  step.blocks.push_back(Numbers{"embeddings", t.embeddings});
  if (f.cross()) {
    step.blocks.push_back(Paragraph{t.ids_2.empty() ? "The second sequence is drawn as numbers, without words."
                                                    : "The second sentence is embedded in a table of its own."});
    step.blocks.push_back(Numbers{"embeddings_2", *t.embeddings_2});
  }
  return step;
}

void add_projection(Step& step, const Focus& f, const char* result, const char* matrix, const char* input,
                    const Tensor& x, const Tensor& w, const Tensor& y) {
  const View used = f.of(w);
  const View right = f.trace.weights_in_out ? used : used.transpose(0, 1);
  step.blocks.push_back(
      Formula{fmt::format("{} = {} {}{}", f.name(result), input, f.name(matrix), f.trace.weights_in_out ? "" : "ᵀ"),
              fmt::format("{} = {} {}", f.of(y).shape().str(), x.shape().str(), right.shape().str())});
  if (used.count() <= small_matrix) {
    step.blocks.push_back(Numbers{f.name(matrix), used});
  } else {
    step.blocks.push_back(
        Numbers{fmt::format("{}[0], the first of {} rows", f.name(matrix), used.size(0)), used.select(0, 0)});
  }
  step.blocks.push_back(Numbers{f.name(result), f.of(y)});
}

Step projections_step(const Focus& f) {
  const Trace& t = f.trace;
  Step step{"Embeddings become queries, keys and values", {}};
  step.blocks.push_back(Paragraph{
      f.cross()
          ? "Three matrices turn each embedding into a query (what it looks for), a key (what it offers) and a value "
            "(what it hands over). The queries come from the first sequence, the keys and values from the second."
          : "Three matrices turn each embedding into a query (what it looks for), a key (what it offers) and a value "
            "(what it hands over)."});
  if (f.head >= 0) {
    step.blocks.push_back(Paragraph{
        fmt::format("Each of the {} heads has matrices of its own. This is head {}, at index {} of the first axis.",
                    t.queries.size(0), f.head + 1, f.head)});
  }
  const char* second = f.cross() ? "embeddings_2" : "embeddings";
  const Tensor& x2 = f.cross() ? *t.embeddings_2 : t.embeddings;
  add_projection(step, f, "queries", "w_query", "embeddings", t.embeddings, t.w_query, t.queries);
  add_projection(step, f, "keys", "w_key", second, x2, t.w_key, t.keys);
  add_projection(step, f, "values", "w_value", second, x2, t.w_value, t.values);
  return step;
}

Step scores_step(const Focus& f) {
  const View queries = f.of(f.trace.queries), keys = f.of(f.trace.keys), scores = f.of(f.trace.scores);
  Step step{"Queries meet keys: scores", {}};
  step.blocks.push_back(
      Paragraph{"A score is the dot product of one query with one key: large where they point the same way."});
  step.blocks.push_back(Formula{
      fmt::format("{} = {} {}ᵀ", f.name("scores"), f.name("queries"), f.name("keys")),
      fmt::format("{} = {} {}", scores.shape().str(), queries.shape().str(), keys.transpose(0, 1).shape().str())});
  step.blocks.push_back(Numbers{f.name("scores"), scores});
  step.blocks.push_back(
      Paragraph{fmt::format("One of them worked out: the query of \"{}\" with the key of \"{}\", which it "
                            "matches best. {} products:",
                            f.query_label(), f.key_label(f.j), queries.size(1))});
  Items products;
  const std::int64_t shown = std::min<std::int64_t>(queries.size(1), 2 * most_rows);
  for (std::int64_t d = 0; d < shown; ++d) {
    const double a = queries.item({f.i, d}), b = keys.item({f.j, d});
    products.items.push_back(fmt::format("{:>7.4f} × {:>7.4f} = {:>8.4f}", a, b, a * b));
  }
  if (shown < queries.size(1)) products.items.push_back(fmt::format("and {} more", queries.size(1) - shown));
  step.blocks.push_back(products);
  step.blocks.push_back(
      Formula{fmt::format("scores[{},{}] = their sum = {}", f.i, f.j, number(scores.item({f.i, f.j}))), ""});
  return step;
}

Step scale_step(const Focus& f) {
  const auto d_k = f.of(f.trace.queries).size(1);
  Step step{"Scores are scaled", {}};
  step.blocks.push_back(
      Paragraph{"Dot products grow with the number of products; dividing by its square root keeps the softmax "
                "from saturating."});
  step.blocks.push_back(
      Formula{fmt::format("{} = {} / √d_k = {} / √{} = {} / {}", f.name("scaled_scores"), f.name("scores"),
                          f.name("scores"), d_k, f.name("scores"), number(std::sqrt(d_k))),
              f.of(f.trace.scaled_scores).shape().str()});
  step.blocks.push_back(Numbers{f.name("scaled_scores"), f.of(f.trace.scaled_scores)});
  return step;
}

// The keys of the row, those with the largest weights first where there are too many for a table.
std::vector<std::int64_t> shown_keys(const Focus& f) {
  std::vector<std::int64_t> keys(static_cast<std::size_t>(f.keys()));
  std::iota(keys.begin(), keys.end(), 0);
  if (f.keys() <= most_rows) return keys;
  const View weights = f.of(f.trace.weights);
  const auto heavier = [&](std::int64_t a, std::int64_t b) { return weights.item({f.i, a}) > weights.item({f.i, b}); };
  std::partial_sort(keys.begin(), keys.begin() + most_rows, keys.end(), heavier);
  keys.resize(most_rows);
  return keys;
}

Table softmax_table(const Focus& f, const std::vector<std::int64_t>& keys, double largest, double sum) {
  const View scaled = f.of(f.trace.scaled_scores), weights = f.of(f.trace.weights);
  Table table{{"key", "scaled score", fmt::format("exp(score - {})", number(largest)),
               fmt::format("÷ {} = weight", number(sum))},
              {}};
  for (const std::int64_t key : keys) {
    const double score = scaled.item({f.i, key});
    if (f.visible(key)) {
      table.rows.push_back(
          {f.key_label(key), number(score), number(std::exp(score - largest)), number(weights.item({f.i, key}))});
    } else {
      table.rows.push_back({f.key_label(key), number(score), "hidden", number(0)});
    }
  }
  return table;
}

Step softmax_step(const Focus& f) {
  const View scaled = f.of(f.trace.scaled_scores), weights = f.of(f.trace.weights);
  const double largest = scaled.item({f.i, f.j});
  double sum = 0, row_sum = 0;
  for (std::int64_t key = 0; key < f.keys(); ++key) {
    if (f.visible(key)) sum += std::exp(scaled.item({f.i, key}) - largest);
    row_sum += weights.item({f.i, key});
  }
  Step step{"Softmax turns scores into weights", {}};
  step.blocks.push_back(
      Paragraph{"Each row becomes positive numbers that sum to 1: the shares of its attention. The row's largest score "
                "is taken off first, "
                "which changes nothing but keeps exp from overflowing."});
  if (f.trace.causal)
    step.blocks.push_back(Paragraph{"Causal: a word sees itself and the words before it; later keys get weight 0."});
  step.blocks.push_back(
      Formula{fmt::format("{} = softmax({})", f.name("weights"), f.name("scaled_scores")), weights.shape().str()});
  step.blocks.push_back(Numbers{f.name("weights"), weights});
  step.blocks.push_back(Paragraph{fmt::format("The row of \"{}\":", f.query_label())});
  const std::vector<std::int64_t> keys = shown_keys(f);
  step.blocks.push_back(softmax_table(f, keys, largest, sum));
  const auto hidden_rows = f.keys() - static_cast<std::int64_t>(keys.size());
  if (hidden_rows > 0) step.blocks.push_back(Paragraph{fmt::format("and {} keys with smaller weights", hidden_rows)});
  step.blocks.push_back(Formula{fmt::format("row sum = {}", number(row_sum)), ""});
  return step;
}

Step context_step(const Focus& f) {
  const View weights = f.of(f.trace.weights), context = f.of(f.trace.context), values = f.of(f.trace.values);
  Step step{"Weights mix the values: context vectors", {}};
  step.blocks.push_back(Paragraph{"Each word's context vector is the average of all values, each in its share."});
  step.blocks.push_back(
      Formula{fmt::format("{} = {} {}", f.name("context"), f.name("weights"), f.name("values")),
              fmt::format("{} = {} {}", context.shape().str(), weights.shape().str(), values.shape().str())});
  std::string mix = fmt::format("context[{}] =", f.i);
  const std::vector<std::int64_t> keys = shown_keys(f);
  for (std::size_t n = 0; n < keys.size() && n < 8; ++n) {
    mix += fmt::format("{} {} v({})", n == 0 ? "" : " +", number(weights.item({f.i, keys[n]})), f.key_label(keys[n]));
  }
  if (f.keys() > 8) mix += " + …";
  step.blocks.push_back(Formula{mix, ""});
  step.blocks.push_back(Numbers{f.name("context"), context});
  return step;
}

Step output_step(const Trace& t) {
  Step step{"The heads are joined and projected", {}};
  step.blocks.push_back(Paragraph{fmt::format(
      "The context vectors of the {} heads stand side by side, and one more matrix mixes them.", t.context.size(0))});
  step.blocks.push_back(
      Formula{"concat_heads = the heads' context vectors, side by side", t.concat_heads->shape().str()});
  step.blocks.push_back(Numbers{"concat_heads", *t.concat_heads});
  step.blocks.push_back(Formula{
      "output = concat_heads w_output",
      fmt::format("{} = {} {}", t.output->shape().str(), t.concat_heads->shape().str(), t.w_output->shape().str())});
  step.blocks.push_back(Numbers{"output", *t.output});
  return step;
}

Step picture_step(const Focus& f) {
  Step step{"The picture", {}};
  step.blocks.push_back(Paragraph{"Each row is a query, each column a key; the darker, the more attention."});
  HeatMap map = weight_maps(f.trace)[static_cast<std::size_t>(std::max<std::int64_t>(f.head, 0))];
  step.blocks.push_back(Picture{std::move(map)});
  return step;
}

std::int64_t heaviest_key(const View& weights, std::int64_t i) {
  std::int64_t best = 0;
  for (std::int64_t key = 1; key < weights.size(1); ++key) {
    if (weights.item({i, key}) > weights.item({i, best})) best = key;
  }
  return best;
}

}  // namespace

void check_text(const Trace& trace) {
  const auto check = [](const std::vector<std::string>& tokens, std::size_t ids, std::int64_t rows) {
    if (tokens.size() != ids || (!tokens.empty() && static_cast<std::int64_t>(tokens.size()) != rows))
      fail(ErrorCode::bad_shape, "explain", "the trace has {} words and {} ids for {} embeddings", tokens.size(), ids,
           rows);
    for (const std::string& token : tokens) decode_utf8(token, {"explain", "the trace's word"});
  };
  check(trace.tokens, trace.ids.size(), trace.embeddings.size(0));
  if (trace.embeddings_2) check(trace.tokens_2, trace.ids_2.size(), trace.embeddings_2->size(0));
}

std::string shown(const std::string& text) {
  return encode_utf8(one_line(text, {"explain", "text"}));
}

std::string label_of(const std::vector<std::string>& tokens, std::int64_t position) {
  if (tokens.empty()) return fmt::format("x{}", position + 1);
  const std::string& word = tokens[static_cast<std::size_t>(position)];
  // A word that occurs more than once is told apart by its place.
  if (std::count(tokens.begin(), tokens.end(), word) == 1) return shown(word);
  return fmt::format("{} ({})", shown(word), position + 1);
}

std::vector<Step> walk(const Trace& trace, std::int64_t focus, std::int64_t head) {
  check_text(trace);
  const auto rows = trace.embeddings.size(0);
  if (focus < 0 || focus >= rows)
    fail(ErrorCode::bad_value, "explain", "focus is {}, the sentence has {} words", focus, rows);
  const std::int64_t heads = trace.multi_head() ? trace.queries.size(0) : 1;
  if (head < 0 || head >= heads) fail(ErrorCode::bad_value, "explain", "head is {}, there are {} heads", head, heads);

  Focus f{trace, focus, 0, trace.multi_head() ? head : -1, trace.embeddings_2 ? trace.tokens_2 : trace.tokens};
  f.j = heaviest_key(f.of(trace.weights), focus);
  std::vector<Step> steps{words_step(f), embeddings_step(f), projections_step(f), scores_step(f),
                          scale_step(f), softmax_step(f),    context_step(f)};
  if (trace.output) steps.push_back(output_step(trace));
  steps.push_back(picture_step(f));
  return steps;
}

std::vector<HeatMap> weight_maps(const Trace& trace) {
  const std::int64_t heads = trace.multi_head() ? trace.weights.size(0) : 1;
  std::vector<HeatMap> maps;
  for (std::int64_t h = 0; h < heads; ++h) {
    HeatMap map;
    map.values = trace.multi_head() ? trace.weights.view().select(0, h) : trace.weights.view();
    map.row_labels = trace.tokens;
    map.column_labels = trace.embeddings_2 ? trace.tokens_2 : trace.tokens;
    for (auto j = static_cast<std::int64_t>(map.column_labels.size()); j < map.values.size(1); ++j) {
      map.column_labels.push_back(label_of({}, j));
    }
    if (heads > 1) map.title = fmt::format("head {}", h + 1);
    maps.push_back(std::move(map));
  }
  return maps;
}

std::string picture_title(const Trace& trace) {
  return fmt::format("{}attention weights: {}",
                     trace.embeddings_2 ? "Cross-"
                     : trace.causal     ? "Causal self-"
                                        : "Self-",
                     trace.title);
}

}  // namespace attend
