#include "explain/walk.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/message.h"
#include "explain/recipe.h"

namespace attend::inline v1 {

namespace {

// More rows than this are too many to read; the rest is summed up in words.
constexpr std::int64_t most_rows = 24;
// Larger weight matrices are shown by their first row alone.
constexpr std::int64_t small_matrix = 64;
// Numbers of one row, and of a whole matrix; of more, the corners are shown.
constexpr std::int64_t most_of_row = 64, most_of_matrix = 1000;

// A trace seen through one head and one query.
struct Focus {
  const Trace& trace;
  bool all;           // whole matrices, not only the rows of this query
  std::int64_t head;  // 0 where there is no head axis
  std::int64_t i;     // the query's row
  std::vector<std::string> words, key_words;
  const AttentionSteps& row;  // of this query alone, [1,T2]
  std::int64_t j = 0;         // the visible key with the largest score

  View of(const Tensor& x) const { return trace.multi_head() ? x.view().select(0, head) : x.view(); }
  // A matrix of all pairs.
  View pairs(const Tensor& x) const {
    if (x.count() == 0) fail(ErrorCode::bad_value, "explain", "style.all shows the scores, which were not kept");
    return trace.multi_head() ? x.view().select(0, trace.kept_head ? 0 : head) : x.view();
  }
  const std::string& query() const { return words[static_cast<std::size_t>(i)]; }
  const std::string& key(std::int64_t place) const { return key_words[static_cast<std::size_t>(place)]; }
  bool cross() const { return trace.embeddings_2.has_value(); }
  bool sees(std::int64_t place) const { return visible(trace, i, place); }
  std::int64_t keys() const { return row.weights.size(1); }
  Dims pairs_shape() const { return {std::ssize(words), keys()}; }
  const char* softmax_of() const { return trace.masked() ? "logits" : "scaled_scores"; }
  // A step that each head takes by itself.
  std::string title(const char* text) const {
    return trace.multi_head() ? fmt::format("{} (head {})", text, head) : text;
  }
};

std::string number(double value) {
  return fmt::format("{:.4f}", value);
}

template <class... Args>
void say(Step& step, fmt::format_string<Args...> format, Args&&... args) {
  step.blocks.push_back(Paragraph{fmt::format(format, std::forward<Args>(args)...)});
}

// "[6,24] = [6,16] [16,24]"
std::string product_shapes(const View& result, const View& left, const View& right) {
  return fmt::format("{} = {} {}", result.shape(), left.shape(), right.shape());
}

// The row of a word in a matrix, or the whole matrix.
void show(Step& step, const Focus& f, const char* name, const View& matrix, std::int64_t row, const std::string& word) {
  if (f.all)
    step.blocks.push_back(Numbers{name, matrix, most_of_matrix});
  else
    step.blocks.push_back(Numbers{fmt::format("{}({})", name, word), matrix.select(0, row), most_of_row});
}
// The query's numbers for each key: `row` is [1,T2].
void show_pairs(Step& step, const Focus& f, const char* name, const Tensor& matrix, const Tensor& row) {
  show(step, f, name, f.all ? f.pairs(matrix) : row.view(), 0, f.query());
}

// "come later", "stand more than 2 words away"
std::string why_hidden(const Trace& trace) {
  const std::optional<std::int64_t>& window = trace.options.window;
  if (!window) return "come later";
  const std::string far = fmt::format("more than {} word{}", *window, *window == 1 ? "" : "s");
  return trace.causal ? fmt::format("come later or stand {} before it", far) : fmt::format("stand {} away", far);
}

Step picture_step(const Focus& f) {
  Step step{f.title("Who attends to whom"), {}};
  say(step, "Each row is a query: how a word shares its attention out among the keys, the columns. A row sums to 1.{}",
      f.trace.masked() ? fmt::format(" Hatched keys are hidden from it, as they {}.", why_hidden(f.trace)) : "");
  const std::int64_t heads = f.trace.multi_head() ? f.trace.queries.size(0) : 1;
  if (heads > 1) say(step, "There are {} heads, 0 to {}. This is what head {} looks at.", heads, heads - 1, f.head);
  HeatMap map = std::move(weight_maps(f.trace, f.head).front());
  map.title.clear();
  step.blocks.push_back(Map{std::move(map)});
  say(step, "How the row of \"{}\" comes about:", f.query());
  return step;
}

void add_ids(Step& step, const std::vector<std::string>& tokens, const std::vector<std::int64_t>& ids) {
  Items items;
  for (std::size_t t = 0; t < std::min<std::size_t>(tokens.size(), 2 * most_rows); ++t)
    items.items.push_back(fmt::format("{} {}", shown(tokens[t]), ids[t]));
  if (tokens.size() > items.items.size())
    items.items.push_back(fmt::format("and {} more", tokens.size() - items.items.size()));
  step.blocks.push_back(std::move(items));
}

Step words_step(const Focus& f) {
  const Trace& t = f.trace;
  Step step{"Words become ids", {}};
  if (t.vocabulary_size > std::ssize(t.tokens))
    say(step, "The document gives each word an id in a vocabulary of {}.", t.vocabulary_size);
  else
    say(step,
        "Commas are dropped and the words are split at white space. A word's id is its place among the sorted distinct "
        "words.");
  add_ids(step, t.tokens, t.ids);
  if (!t.ids_2.empty()) {
    say(step, "The second sentence has a vocabulary of its own.");
    add_ids(step, t.tokens_2, t.ids_2);
  }
  return step;
}

Step embeddings_step(const Focus& f) {
  const Trace& t = f.trace;
  Step step{"Ids become embeddings", {}};
  const bool given = t.vocabulary_size == 0;
  if (given)
    say(step, "The document gives the embeddings: one row of numbers for each word.");
  else
    say(step, "Each id picks one row of a table of random numbers from N(0, 1), seed {}. Training would learn it.",
        t.options.seed);
  step.blocks.push_back(
      Formula{given ? "embeddings" : "embeddings = embedding_table[ids]", t.embeddings.shape().str()});
  show(step, f, "embeddings", t.embeddings, f.i, f.query());
  if (f.cross()) {
    say(step, "{}",
        t.ids_2.empty() ? "The second sequence is drawn as numbers, without words."
                        : "The second sentence is embedded in a table of its own.");
    show(step, f, "embeddings_2", *t.embeddings_2, f.j, f.key(f.j));
  }
  return step;
}

Step positions_step(const Focus& f) {
  const Trace& t = f.trace;
  Step step{"Places are added to the embeddings", {}};
  say(step,
      "Attention does not know in which order words stand: so each place has a row of its own, sines and cosines of "
      "ever longer waves (Vaswani et al. 2017, section 3.5). The place t of the first word is 0.");
  step.blocks.push_back(Formula{"positions[t, 2n] = sin(t / 10000^(2n/E)), positions[t, 2n+1] = cos(t / 10000^(2n/E))",
                                t.positions->shape().str()});
  show(step, f, "positions", *t.positions, f.i, f.query());
  step.blocks.push_back(Formula{"inputs = embeddings + positions", t.inputs->shape().str()});
  show(step, f, "inputs", *t.inputs, f.i, f.query());
  if (t.inputs_2) show(step, f, "inputs_2", *t.inputs_2, f.j, f.key(f.j));
  return step;
}

struct Projection {
  const char *result, *matrix, *input;
  View x;
  const Tensor &w, &y;
  std::int64_t row;
  const std::string& word;
};

void add_projection(Step& step, const Focus& f, const Projection& p) {
  const View used = f.of(p.w);
  const bool in_out = f.trace.weights_in_out;
  step.blocks.push_back(Formula{fmt::format("{} = {} {}{}", p.result, p.input, p.matrix, in_out ? "" : "ᵀ"),
                                product_shapes(f.of(p.y), p.x, in_out ? used : used.transpose(0, 1))});
  if (used.count() <= small_matrix)
    step.blocks.push_back(Numbers{p.matrix, used, small_matrix});
  else if (f.all)
    step.blocks.push_back(
        Numbers{fmt::format("{}, the first of {} rows", p.matrix, used.size(0)), used.select(0, 0), most_of_row});
  show(step, f, p.result, f.of(p.y), p.row, p.word);
}

Step projections_step(const Focus& f) {
  const Trace& t = f.trace;
  Step step{f.title("Embeddings become queries, keys and values"), {}};
  say(step,
      "Three matrices turn each embedding into a query (what it looks for), a key (what it offers) and a value "
      "(what it hands over).{} {}",
      f.cross() ? " The queries come from the first sequence, the keys and values from the second." : "",
      t.options.weights == WeightInit::linear ? "The matrices are drawn as torch.nn.Linear draws its own."
                                              : "The matrices are drawn between 0 and 1.");
  if (t.multi_head())
    say(step, "Each head has matrices of its own. The numbers up to the context are those of head {}.", f.head);
  const char* first = t.inputs ? "inputs" : "embeddings";
  const char* second = t.inputs_2 ? "inputs_2" : f.cross() ? "embeddings_2" : first;
  // The query's own key and value, so that one word is seen in its three parts; in cross-attention it has none.
  const std::int64_t row = f.cross() ? f.j : f.i;
  add_projection(step, f, {"queries", "w_query", first, t.input(), t.w_query, t.queries, f.i, f.query()});
  add_projection(step, f, {"keys", "w_key", second, t.input_2(), t.w_key, t.keys, row, f.key(row)});
  add_projection(step, f, {"values", "w_value", second, t.input_2(), t.w_value, t.values, row, f.key(row)});
  return step;
}

Step scores_step(const Focus& f) {
  const View queries = f.of(f.trace.queries), keys = f.of(f.trace.keys);
  const std::int64_t size = queries.size(1);
  Step step{f.title("Queries meet keys: scores"), {}};
  say(step, "A score is the dot product of one query with one key: large where they point the same way.");
  step.blocks.push_back(Formula{"scores = queries keysᵀ", fmt::format("{} = {} {}", f.pairs_shape(), queries.shape(),
                                                                      keys.transpose(0, 1).shape())});
  show_pairs(step, f, "scores", f.trace.scores, f.row.scores);
  say(step, "One of them worked out: the query of \"{}\" with the key of \"{}\", which it matches best{}. {} products:",
      f.query(), f.key(f.j), f.trace.masked() ? " of those that it sees" : "", size);
  Items products;
  const std::int64_t shown = std::min<std::int64_t>(size, 2 * most_rows);
  for (std::int64_t d = 0; d < shown; ++d) {
    const double a = queries.item({f.i, d}), b = keys.item({f.j, d});
    products.items.push_back(fmt::format("{:>7.4f} × {:>7.4f} = {:>8.4f}", a, b, a * b));
  }
  if (shown < size) products.items.push_back(fmt::format("and {} more", size - shown));
  step.blocks.push_back(std::move(products));
  step.blocks.push_back(Formula{
      fmt::format("scores({}, {}) = their sum = {}", f.query(), f.key(f.j), number(f.row.scores.item({0, f.j}))), ""});
  return step;
}

// The rows that give nearly all to one key, of those that see several.
std::int64_t saturated_rows(const Focus& f) {
  const View weights = f.pairs(f.trace.weights);
  std::int64_t rows = 0;
  for (std::int64_t i = 0; i < weights.size(0); ++i) {
    const float* row = weights.data<float>() + i * weights.strides()[0];
    const auto [begin, end] = visible_keys(f.trace, i);
    const bool several = end - begin > 1;
    rows += several && *std::max_element(row, row + f.keys()) > 0.99f ? 1 : 0;
  }
  return rows;
}

// How many rows are saturated, and why: `begins` is the sentence's beginning.
void say_saturated(Step& step, const Focus& f, const char* begins) {
  if (const std::int64_t rows = saturated_rows(f); rows > 0)
    say(step, "{} {} of the {} queries will give one key more than 0.99: these scores lie far apart{}.", begins, rows,
        f.words.size(),
        f.trace.options.weights == WeightInit::uniform ? ", as the matrices' numbers are all positive" : "");
}

Step unscaled_step(const Focus& f) {
  const auto d_k = f.of(f.trace.queries).size(1);
  Step step{f.title("Scores are not scaled"), {}};
  say(step,
      "They go to the softmax as they are. Attention usually divides them by √d_k, here √{} = {}: the more products, "
      "the larger their sum, and the larger the scores, the nearer the softmax comes to giving all to one key.",
      d_k, number(std::sqrt(d_k)));
  step.blocks.push_back(Formula{"scaled_scores = scores", f.pairs_shape().str()});
  show_pairs(step, f, "scaled_scores", f.trace.scaled_scores, f.row.scaled_scores);
  say_saturated(step, f, "So");
  return step;
}

Step scale_step(const Focus& f) {
  const auto d_k = f.of(f.trace.queries).size(1);
  Step step{f.title("Scores are scaled"), {}};
  say(step,
      "The more products, the larger their sum: it grows with the square root of their number. Divided by that, scores "
      "keep a size at which the softmax can share.");
  step.blocks.push_back(
      Formula{fmt::format("scaled_scores = scores / √d_k = scores / √{} = scores / {}", d_k, number(std::sqrt(d_k))),
              f.pairs_shape().str()});
  show_pairs(step, f, "scaled_scores", f.trace.scaled_scores, f.row.scaled_scores);
  say_saturated(step, f, "Even so");
  return step;
}

// What a word sees besides itself: " and the words before it".
std::string what_is_seen(const Trace& trace) {
  const char* sides = trace.causal ? "before it" : "before it and after it";
  const std::optional<std::int64_t>& window = trace.options.window;
  if (!window) return fmt::format(" and the words {}", sides);
  if (*window == 0) return " alone";
  return *window == 1 ? fmt::format(" and the word {}", sides) : fmt::format(" and the {} words {}", *window, sides);
}

Step mask_step(const Focus& f) {
  const Trace& t = f.trace;
  const char* mask = !t.options.window ? "Causal" : t.causal ? "Causal, in a window" : "A window";
  Step step{f.title(!t.options.window ? "Later keys are hidden"
                    : t.causal        ? "Later and distant keys are hidden"
                                      : "Distant keys are hidden"),
            {}};
  const auto [begin, end] = visible_keys(t, f.i);
  say(step,
      "{}: a word sees itself{}. The score of a key that it does not see becomes -inf, so that the softmax gives "
      "it nothing. \"{}\" sees {} of {} keys.",
      mask, what_is_seen(t), f.query(), end - begin, f.keys());
  step.blocks.push_back(
      Formula{"logits = scaled_scores where the query sees the key, else -inf", f.pairs_shape().str()});
  const Tensor none;
  show_pairs(step, f, "logits", f.trace.logits ? *f.trace.logits : none, f.row.logits);
  return step;
}

// The keys of the row, those with the largest weights first where there are too many for a table.
std::vector<std::int64_t> shown_keys(const Focus& f) {
  std::vector<std::int64_t> keys(static_cast<std::size_t>(f.keys()));
  std::iota(keys.begin(), keys.end(), 0);
  if (f.keys() <= most_rows) return keys;
  const float* weights = f.row.weights.data<float>();
  std::partial_sort(keys.begin(), keys.begin() + most_rows, keys.end(),
                    [&](std::int64_t a, std::int64_t b) { return weights[a] > weights[b]; });
  keys.resize(most_rows);
  return keys;
}

Step softmax_step(const Focus& f) {
  const View logits = f.row.logits.view().select(0, 0), weights = f.row.weights.view().select(0, 0);
  const double largest = logits.item({f.j});
  double sum = 0, row_sum = 0;
  for (std::int64_t key = 0; key < f.keys(); ++key) {
    if (f.sees(key)) sum += std::exp(logits.item({key}) - largest);
    row_sum += weights.item({key});
  }
  Step step{f.title("Softmax turns scores into weights"), {}};
  say(step,
      "Each row becomes positive numbers that sum to 1. The row's largest score is taken off first, which changes "
      "nothing but keeps exp from overflowing.");
  step.blocks.push_back(Formula{fmt::format("weights = softmax({})", f.softmax_of()), f.pairs_shape().str()});
  if (f.all) step.blocks.push_back(Numbers{"weights", f.pairs(f.trace.weights), most_of_matrix});
  step.blocks.push_back(Formula{fmt::format("weights({0}) = e / {1}, e = exp({2}({0}) {3} {4})", f.query(), number(sum),
                                            f.softmax_of(), largest < 0 ? '+' : '-', number(std::abs(largest))),
                                ""});
  Table table{{"key", f.softmax_of(), "e", "weight"}, {}};
  const std::vector<std::int64_t> keys = shown_keys(f);
  for (const std::int64_t key : keys) {
    const double logit = logits.item({key});
    if (f.sees(key))
      table.rows.push_back({f.key(key), number(logit), number(std::exp(logit - largest)), number(weights.item({key}))});
    else
      table.rows.push_back({f.key(key), "-inf", "0", "hidden"});
  }
  step.blocks.push_back(std::move(table));
  if (const auto rest = f.keys() - std::ssize(keys); rest > 0) say(step, "and {} keys with smaller weights", rest);
  step.blocks.push_back(Formula{fmt::format("row sum = {}", number(row_sum)), ""});
  return step;
}

Step context_step(const Focus& f) {
  const View context = f.of(f.trace.context), values = f.of(f.trace.values);
  Step step{f.title("Weights mix the values: context vectors"), {}};
  say(step, "Each word's context vector is the average of the values that it sees, each in its share.");
  step.blocks.push_back(
      Formula{"context = weights values", fmt::format("{} = {} {}", context.shape(), f.pairs_shape(), values.shape())});
  std::string mix;
  std::vector<std::int64_t> keys = shown_keys(f);
  std::erase_if(keys, [&](std::int64_t key) { return !f.sees(key); });
  for (std::size_t n = 0; n < std::min<std::size_t>(keys.size(), 8); ++n)
    mix +=
        fmt::format(" {} {}·values({})", n == 0 ? "=" : "+", number(f.row.weights.item({0, keys[n]})), f.key(keys[n]));
  step.blocks.push_back(Formula{fmt::format("context({}){}{}", f.query(), mix, keys.size() > 8 ? " + …" : ""), ""});
  show(step, f, "context", context, f.i, f.query());
  return step;
}

Step output_step(const Focus& f) {
  const Trace& t = f.trace;
  Step step{"The heads are joined and projected", {}};
  say(step, "The context vectors of the {} heads stand side by side, and one more matrix mixes them.",
      t.context.size(0));
  step.blocks.push_back(
      Formula{"concat_heads = the heads' context vectors, side by side", t.concat_heads->shape().str()});
  show(step, f, "concat_heads", *t.concat_heads, f.i, f.query());
  const View w = t.weights_in_out ? t.w_output->view() : t.w_output->view().transpose(0, 1);
  step.blocks.push_back(Formula{fmt::format("output = concat_heads w_output{}", t.weights_in_out ? "" : "ᵀ"),
                                product_shapes(*t.output, *t.concat_heads, w)});
  show(step, f, "output", *t.output, f.i, f.query());
  return step;
}

// The steps of one query: the row that the trace's matrices hold, to the last bit.
AttentionSteps steps_of(const Focus& f) {
  AttentionOptions options = attention_options(f.trace);
  options.offset = Offset(f.i);
  return attention_steps(f.of(f.trace.queries).slice(0, f.i, f.i + 1), f.of(f.trace.keys), f.of(f.trace.values),
                         options);
}

}  // namespace

std::vector<Step> walk(const Trace& trace, const TextStyle& style, AttentionSteps& row) {
  check_text(trace);
  const std::int64_t rows = trace.embeddings.size(0), focus = style.focus.value_or(trace.focus);
  if (focus < 0 || focus >= rows)
    fail(ErrorCode::bad_value, "explain", "focus is {}, the sentence has {} words", focus, rows);
  const std::int64_t head = drawn_heads(trace, style.head).first;
  Focus f{trace, style.all, head, focus, labels_of(trace.tokens, rows), {}, row};
  f.key_words = f.cross() ? labels_of(trace.tokens_2, trace.embeddings_2->size(0)) : f.words;
  row = steps_of(f);
  // A hidden key's logit is -inf, so the largest is that of a visible one.
  const float* logits = row.logits.data<float>();
  f.j = std::max_element(logits, logits + f.keys()) - logits;

  std::vector<Step> steps;
  steps.push_back(picture_step(f));
  steps.push_back(words_step(f));
  steps.push_back(embeddings_step(f));
  if (trace.positions) steps.push_back(positions_step(f));
  steps.push_back(projections_step(f));
  steps.push_back(scores_step(f));
  steps.push_back(trace.options.scale ? scale_step(f) : unscaled_step(f));
  if (trace.masked()) steps.push_back(mask_step(f));
  steps.push_back(softmax_step(f));
  steps.push_back(context_step(f));
  if (trace.output) steps.push_back(output_step(f));
  return steps;
}

}  // namespace attend::inline v1
