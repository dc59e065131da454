// An exercise sheet: one word's attention with numbers that a pocket calculator can do, with blanks and with answers.
#include <algorithm>
#include <array>
#include <cmath>

#include "attend/random.h"
#include "core/message.h"
#include "core/utf8.h"
#include "explain/recipe.h"
#include "explain/walk.h"
#include "html/page.h"
#include "picture/text.h"

namespace attend::inline v1 {

namespace {

constexpr const char* sheet_function = "exercise_sheet";
constexpr std::int64_t least_answered_words = 2, most_answered_words = 12;
constexpr std::int64_t embedding_size = 3, d_k = 4, d_v = 2;  // the root of d_k is a whole number

// ---- The numbers ----

// Whole or half numbers from -most to most.
Tensor draw(Generator& generator, const Dims& shape, double most, double step) {
  const auto values = static_cast<double>(std::lround(2 * most / step) + 1);
  Tensor out = generator.rand(shape);
  for (float& x : std::span(out.data<float>(), static_cast<std::size_t>(out.count())))
    x = static_cast<float>(std::min(std::floor(x * values), values - 1) * step - most);
  return out;
}

void draw_numbers(Generator& generator, Recipe& recipe) {
  const Tensor table = draw(generator, {recipe.vocabulary_size, embedding_size}, 2, 1);
  recipe.embeddings = Tensor({std::ssize(recipe.ids), embedding_size});
  for (std::int64_t i = 0; i < std::ssize(recipe.ids); ++i)
    recipe.embeddings->view().select(0, i).copy_from(table.view().select(0, recipe.ids[static_cast<std::size_t>(i)]));
  recipe.matrices = {draw(generator, {embedding_size, d_k}, 1, 0.5), draw(generator, {embedding_size, d_k}, 1, 0.5),
                     draw(generator, {embedding_size, d_v}, 1, 0.5)};
}

// The weights differ, and no exponential is too large or too small to write down.
bool is_good(const Trace& trace) {
  const auto [begin, end] = visible_keys(trace, trace.focus);
  const auto of_visible = [&](const Tensor& x) {
    const auto row = x.row<float>({trace.focus});
    return std::vector<float>(row.begin() + begin, row.begin() + end);
  };
  std::vector<float> weights = of_visible(trace.weights);
  const std::vector<float> scores = of_visible(trace.scaled_scores);
  if (std::ranges::count(trace.queries.row<float>({trace.focus}), 0.0F) > 1) return false;  // little to work out
  std::ranges::sort(weights, std::greater());
  return std::ranges::all_of(scores, [](float x) { return std::abs(x) <= 3; }) && weights[0] >= 0.35F &&
         weights[0] <= 0.85F && weights[0] - weights[1] >= 0.08F;
}

Recipe sheet_recipe(const SheetOptions& options) {
  decode_utf8(options.text, {sheet_function, "text"});
  Recipe recipe = recipe_of({.text = options.text,
                             .seed = options.seed,
                             .embedding_size = embedding_size,
                             .d_k = d_k,
                             .d_v = d_v,
                             .causal = options.causal});
  const std::int64_t words = std::ssize(recipe.tokens);
  if (words < least_answered_words || words > most_answered_words)
    fail(ErrorCode::bad_value, sheet_function, "a sheet has {} to {} words, got {}", least_answered_words,
         most_answered_words, words);
  recipe.focus = options.focus.value_or(options.causal ? words - 1 : 1);
  if (recipe.focus < 0 || recipe.focus >= words)
    fail(ErrorCode::bad_value, sheet_function, "focus is {}, expected 0 to {}", recipe.focus, words - 1);
  if (options.causal && recipe.focus == 0)
    fail(ErrorCode::bad_value, sheet_function, "the first word sees itself alone, expected another focus with causal");
  recipe.draws.clear();
  return recipe;
}

// Draws until the numbers are good. A sentence of equal words has no good ones, and takes the last.
Trace sheet_trace(Recipe& recipe) {
  constexpr int tries = 1000;
  Generator generator(recipe.options.seed);
  for (int n = 1;; ++n) {
    draw_numbers(generator, recipe);
    Trace trace = trace_of(recipe);
    if (n == tries || is_good(trace)) return trace;
  }
}

// As somebody works who writes down two digits after the point and goes on with these.
double two_digits(double x) {
  return std::round(x * 100) / 100;
}

struct Worked {
  std::vector<double> powers, weights;            // 0 where a word is hidden
  std::vector<std::array<double, d_v>> products;  // weight times value
  double sum = 0, weight_sum = 0;
  std::array<double, d_v> context = {};
};

Worked worked(const Trace& trace) {
  Worked out;
  const std::int64_t i = trace.focus, keys = std::ssize(trace.tokens);
  for (std::int64_t j = 0; j < keys; ++j)
    out.powers.push_back(visible(trace, i, j) ? two_digits(std::exp(trace.scaled_scores.item({i, j}))) : 0);
  for (const double power : out.powers) out.sum += power;
  for (std::int64_t j = 0; j < keys; ++j) {
    const double weight = two_digits(out.powers[static_cast<std::size_t>(j)] / out.sum);
    out.weights.push_back(weight), out.weight_sum += weight;
    std::array<double, d_v> product{};
    for (std::int64_t d = 0; d < d_v; ++d) {
      const auto place = static_cast<std::size_t>(d);
      product[place] = two_digits(weight * trace.values.item({j, d})), out.context[place] += product[place];
    }
    out.products.push_back(product);
  }
  return out;
}

// ---- The page ----

// "−2", "0.5"; with a minus sign, not a hyphen.
std::string written(double x, int digits = -1) {
  if (digits >= 0 && std::abs(x) < 0.5 * std::pow(10, -digits)) x = 0;  // no "-0.00"
  const std::string text = digits < 0 ? fmt::format("{:g}", x) : fmt::format("{:.{}f}", x, digits);
  return text.starts_with('-') ? "−" + text.substr(1) : text;
}

std::string cells(const View& row) {
  std::string out;
  for (std::int64_t n = 0; n < row.count(); ++n) out += fmt::format("<td>{}</td>", written(row.item({n})));
  return out;
}

std::string vector_text(const View& row) {
  std::string out;
  for (std::int64_t n = 0; n < row.count(); ++n) out += (n > 0 ? ", " : "") + written(row.item({n}));
  return "(" + out + ")";
}

// "1 · 0.5 + (−2) · 1"
std::string products_text(const View& a, const View& b) {
  std::string out;
  for (std::int64_t n = 0; n < a.count(); ++n) {
    const auto factor = [](double x) { return x < 0 ? "(" + written(x) + ")" : written(x); };
    out += fmt::format("{}{} · {}", n > 0 ? " + " : "", factor(a.item({n})), factor(b.item({n})));
  }
  return out;
}

class Sheet {
 public:
  Sheet(const Trace& trace, const Trace& unscaled, const Trace& causal, const SheetOptions& options)
      : trace_(trace), unscaled_(unscaled), causal_(causal), options_(options), worked_(worked(trace)) {
    for (const std::string& label : labels_of(trace.tokens, std::ssize(trace.tokens)))
      labels_.push_back(escape_markup(shown(label)));
    word_ = labels_[static_cast<std::size_t>(trace.focus)];
  }

  // One page: the blanks, or with answers.
  std::string page(bool answers) const {
    std::string out = fmt::format(
        "<section class=\"sheet\">\n<header><h1>Attention by hand{}</h1>{}</header>\n<p class=\"sentence\">{}</p>\n",
        answers ? ": answers" : "", answers ? "" : "<p class=\"who\">Name <i></i> Date <i></i></p>",
        escape_markup(shown(trace_.title)));
    out += answers ? "<p>What a reader gets who rounds as the sheet says. Another rounding moves the last digit by one "
                     "or two.</p>\n"
                   : fmt::format(
                         "<p>What does <b>{}</b> take from each word? You need a pocket calculator with "
                         "e<sup>x</sup>. Write two digits after the point, and go on with these.</p>\n",
                         word_);
    return out + query(answers) + attention(answers) + questions(answers) + "</section>\n";
  }

 private:
  View focus_row(const Tensor& x) const { return x.view().select(0, trace_.focus); }
  bool hidden(std::int64_t j) const { return !visible(trace_, trace_.focus, j); }
  static std::string blank(bool answers, const std::string& answer) {
    return fmt::format("<td class=\"blank\">{}</td>", answers ? answer : "");
  }

  std::string query(bool answers) const {
    const View x = focus_row(trace_.embeddings), w = trace_.w_query.view(), q = focus_row(trace_.queries);
    std::string out =
        fmt::format("<h2>1 The query of {}</h2>\n<div class=\"side\"><table><caption>W_query</caption>\n", word_);
    for (std::int64_t e = 0; e < embedding_size; ++e) out += "<tr>" + cells(w.select(0, e)) + "</tr>\n";
    out += fmt::format(
        "</table><div><p>The embedding of {} is {}. Each number of its query is the embedding times a column of "
        "W_query. The first: {} = {}. Work out the others.</p>\n<table><tr><th>query of {}</th><td>{}</td>",
        word_, vector_text(x), products_text(x, w.select(1, 0)), written(q.item({0})), word_, written(q.item({0})));
    for (std::int64_t d = 1; d < d_k; ++d) out += blank(answers, written(q.item({d})));
    return out + "</tr></table></div></div>\n";
  }

  std::string row(std::int64_t j, bool answers) const {
    const auto place = static_cast<std::size_t>(j);
    const bool filled = answers && !hidden(j);
    const auto item = [&](const Tensor& x) { return written(x.item({trace_.focus, j})); };
    std::string out = fmt::format("<tr><th>{}</th>{}{}", labels_[place], cells(trace_.keys.view().select(0, j)),
                                  cells(trace_.values.view().select(0, j)));
    out += blank(answers, hidden(j) ? "hidden" : item(trace_.scores)) + blank(filled, item(trace_.scaled_scores));
    out += blank(filled, written(worked_.powers[place], 2)) + blank(filled, written(worked_.weights[place], 2));
    for (const double product : worked_.products[place]) out += blank(filled, written(product, 2));
    return out + "</tr>\n";
  }

  std::string attention(bool answers) const {
    const std::string causal =
        options_.causal ? fmt::format("<li>{} sees itself and the words before it. Cross out the others.</li>\n", word_)
                        : "";
    std::string out = fmt::format(
        "<h2>2 to 6 What {0} takes from each word</h2>\n"
        "<p>Keys and values were made as the query was, with matrices of their own.</p>\n<ul>\n{1}"
        "<li>2: the score is the query of {0} times the key, as above. 3: divide it by √4 = 2. 4: take e<sup>x</sup>, "
        "and add these up.</li>\n"
        "<li>5: divide each by the sum. 6: multiply each value by its weight, and add up: the sums are the context "
        "vector of {0}.</li>\n</ul>\n<table class=\"rows\">"
        "<colgroup><col class=\"word\"><col class=\"given\" span=\"6\"><col span=\"6\"></colgroup>\n"
        "<tr><th>word</th><th colspan=\"4\">key</th><th colspan=\"2\">value</th><th>2 score</th><th>3 half</th>"
        "<th>4 e<sup>x</sup></th><th>5 weight</th><th colspan=\"2\">6 weight × value</th></tr>\n",
        word_, causal);
    for (std::int64_t j = 0; j < std::ssize(labels_); ++j) out += row(j, answers);
    out += "<tr class=\"sum\"><th>sum</th><td colspan=\"8\"></td>";
    for (const double sum : {worked_.sum, worked_.weight_sum, worked_.context[0], worked_.context[1]})
      out += blank(answers, written(sum, 2));
    return out + "</tr></table>\n" + (answers ? exactly() : "");
  }

  std::string exactly() const {
    const View context = focus_row(trace_.context);
    return fmt::format("<p>Without rounding on the way: ({}, {}).</p>\n", written(context.item({0}), 4),
                       written(context.item({1}), 4));
  }

  std::int64_t strongest() const {
    const auto row = trace_.weights.row<float>({trace_.focus});
    return std::ranges::max_element(row) - row.begin();
  }

  std::string questions(bool answers) const {
    const std::int64_t most = strongest(), last = trace_.focus;
    const auto item = [&](const std::string& question, const std::string& answer) {
      return fmt::format("<li>{} {}</li>\n", question,
                         answers ? "<b>" + answer + "</b>" : std::string("<i class=\"line\"></i>"));
    };
    std::string out = "<h2>7 Questions</h2>\n<ol>\n";
    out += item(fmt::format("Which word does {} look at most?", word_), labels_[static_cast<std::size_t>(most)]);
    out += item("Leave out the division in step 3. What does that word’s weight become?",
                written(unscaled_.weights.item({last, most}), 2));
    if (!options_.causal && last > 0)
      out +=
          item(fmt::format("A causal mask hides all words after {}. What is the weight of {} then?", word_, labels_[0]),
               written(causal_.weights.item({last, 0}), 2));
    return out + "</ol>\n";
  }

  const Trace& trace_;
  const Trace& unscaled_;
  const Trace& causal_;
  const SheetOptions& options_;
  Worked worked_;
  std::vector<std::string> labels_;
  std::string word_;
};

// Ink on paper in both colour schemes; on a screen the pages stand as two sheets.
constexpr std::string_view style = R"(
@page { margin: 11mm 15mm; }
body { margin: 0; background: #fff; color: #111; font: 11pt/1.35 "DejaVu Sans", Arial, sans-serif; color-scheme: light; }
.sheet { max-width: 180mm; margin: 0 auto; padding: 4mm; }
.sheet + .sheet { break-before: page; border-top: 1px solid #999; }
.sheet header { display: flex; justify-content: space-between; align-items: baseline; flex-wrap: wrap; }
.sheet h1 { font-size: 17pt; margin: 0; }
.sheet h2 { font-size: 11.5pt; margin: 3.5mm 0 1mm; break-after: avoid; }
.sheet p { margin: 1mm 0; }
.sheet .sentence { font-size: 15pt; }
.who i { display: inline-block; width: 38mm; border-bottom: 1px solid #111; }
.who i:last-child { width: 22mm; }
.sheet table { border-collapse: collapse; break-inside: avoid; font-variant-numeric: tabular-nums; }
.sheet caption { font-size: 9pt; color: #444; }
.sheet th, .sheet td { border: 1px solid #888; padding: .6mm 1.5mm; text-align: center; height: 5.4mm; font-weight: 400; }
.sheet th { background: #eee; }
.sheet td { min-width: 6mm; }
.rows { font-size: 10pt; table-layout: fixed; width: 100%; }
.rows .word { width: 12.5%; }
.rows .given { width: 6.3%; }
.rows th, .rows td { padding: .4mm .5mm; min-width: 0; }
.rows th:first-child { overflow-wrap: anywhere; }
.sheet .rows th:first-child { text-align: right; }
.sheet .side .blank { min-width: 14mm; }
.sheet ul { margin: 1mm 0 2mm; padding-left: 5mm; }
.sheet .sum th, .sheet .sum td { border-top: 2px solid #333; }
.side { display: flex; gap: 6mm; align-items: flex-start; }
.side table { margin-bottom: 1mm; }
.sheet ol { margin: 1mm 0; padding-left: 7mm; }
.line { display: inline-block; width: 22mm; border-bottom: 1px solid #111; }
.made { font-size: 8pt; color: #555; max-width: 180mm; margin: 0 auto; padding: 0 4mm; }
@media print { .sheet { padding: 0; } .sheet + .sheet { border: 0; } }
@media (max-width: 40rem) { .sheet { overflow-x: auto; } .side { flex-wrap: wrap; } }
)";

}  // namespace

std::string exercise_sheet(const SheetOptions& options) {
  Recipe recipe = sheet_recipe(options);
  const Trace trace = sheet_trace(recipe);
  recipe.options.scale = false;
  const Trace unscaled = trace_of(recipe);
  recipe.options.scale = true, recipe.options.causal = true;
  const Trace causal = trace_of(recipe);
  const Sheet sheet(trace, unscaled, causal, options);
  const std::string made = fmt::format("<p class=\"made\">attend explain --sheet, seed {}</p>\n", options.seed);
  return fill_page(static_page(), {{"title", "Attention by hand: " + escape_markup(shown(trace.title))},
                                   {"style", std::string(style)},
                                   {"static", sheet.page(false) + sheet.page(true) + made}});
}

}  // namespace attend::inline v1
