// Experiments on SmolLM2, whose passes are recorded when the class is made.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "attend/analysis.h"
#include "attend/session.h"
#include "class/experiments.h"
#include "class/measures.h"

namespace attend::inline v1 {

namespace {

using nlohmann::ordered_json;

// What comes next after a text, with or without a head.
struct Said {
  std::vector<NextToken> next;
  double answer = 0;  // probability of the token that is asked about
};

Said said_after(const Model& model, std::string_view text, std::int64_t answer,
                const std::optional<Head>& without = {}) {
  std::vector<Edit> edits;
  if (without) edits.push_back({.layer = without->first, .head = without->second});
  const Pass pass = run(model, {.ids = encode(model, text).ids}, {.edits = edits, .next = 5});
  const auto logits = pass.logits.row<float>();
  const double largest = *std::ranges::max_element(logits);
  const double sum =
      std::accumulate(logits.begin(), logits.end(), 0.0, [&](double s, float x) { return s + std::exp(x - largest); });
  return {pass.next, std::exp(logits[static_cast<std::size_t>(answer)] - largest) / sum};
}

ordered_json json_of(const std::vector<NextToken>& next) {
  ordered_json list = ordered_json::array();
  for (const NextToken& each : next)
    list.push_back({{"token", each.token}, {"probability", to_digits(each.probability)}});
  return list;
}

// In how many heads, taken out one at a time, the answer becomes less than half as likely.
std::int64_t heads_that_halve(const Model& model, std::string_view text, std::int64_t answer) {
  const Ablation found = ablate(model, encode(model, text).ids, {.token = answer});
  const auto changes =
      std::span(found.log_probability.data<float>(), static_cast<std::size_t>(found.log_probability.count()));
  return std::ranges::count_if(changes, [](float change) { return change < -std::log(2.0); });
}

constexpr Head capital_head = {23, 4};
// The countries of examples/capitals.py.
constexpr std::array<std::pair<const char*, const char*>, 8> capitals = {{{"France", "Paris"},
                                                                          {"Italy", "Rome"},
                                                                          {"Spain", "Madrid"},
                                                                          {"Japan", "Tokyo"},
                                                                          {"Russia", "Moscow"},
                                                                          {"Egypt", "Cairo"},
                                                                          {"Greece", "Athens"},
                                                                          {"Cuba", "Havana"}}};

ordered_json capitals_json(const Model& model) {
  ordered_json list = ordered_json::array();
  for (const auto& [country, capital] : capitals) {
    const std::string text = fmt::format("The capital of {} is", country);
    const std::int64_t answer = encode(model, fmt::format(" {}", capital)).ids.front();
    list.push_back({{"country", country},
                    {"capital", capital},
                    {"before", to_digits(said_after(model, text, answer).answer)},
                    {"after", to_digits(said_after(model, text, answer, capital_head).answer)}});
  }
  return list;
}

// A name that is cut off, and the text where it stood whole before.
struct Name {
  const char* alone;
  const char* after;
};
constexpr std::array<Name, 3> names = {{{"Mr Zor", "Mr Zorvak was thin. Mr Zor"},
                                        {"Mr Blen", "Mr Blenkop was the director of a firm. Mr Blen"},
                                        {"The wizard Quem", "The wizard Quemlin slept. The wizard Quem"}}};
constexpr const char* twice = "Mr Zorvak was thin and old. Mr Zorvak was thin and old.";

// What followed the last token where it stood before.
std::int64_t followed(const std::vector<std::int64_t>& ids) {
  const auto before = std::find(ids.begin(), ids.end() - 1, ids.back());
  return *(before + 1);
}

std::pair<std::int64_t, HeadScores> strongest_induction(const Recording& recording) {
  std::pair<std::int64_t, HeadScores> best{0, {}};
  for (std::int64_t layer = 0; layer < std::ssize(recording.layers()); ++layer)
    for (const HeadScores& each : recording.scores(layer))
      if (each.induction.value_or(0) > best.second.induction.value_or(0)) best = {layer, each};
  return best;
}

constexpr std::array sink_texts = {"The capital of France is",
                                   "Mr Zorvak was thin and old. Mr Zorvak was thin and old.",
                                   "Once upon a time there was a small house at the edge of a dark forest.",
                                   "To make bread, mix flour with water, salt and yeast, and wait an hour.",
                                   "Water boils at one hundred degrees, and freezes at zero."};

// Sums over the heads of all layers and the queries of a text.
struct Shares {
  double first = 0, even = 0;  // what the first key gets, and would get of weights that are all alike
  std::int64_t rows = 0;
  std::int64_t heads = 0, heads_of_half = 0;  // those whose rows give it more than half, in the mean
};

// Without the first query, which sees nothing else.
void add_shares(const Recording& recording, Shares& sums) {
  for (std::int64_t layer = 0; layer < std::ssize(recording.layers()); ++layer)
    for (const std::int64_t head : recording.at(layer).heads) {
      const Tensor weights = recording.weights(layer, 0, head);
      const std::int64_t rows = weights.size(0);
      double first = 0;
      for (std::int64_t row = 1; row < rows; ++row) {
        first += weights.item({row, 0});
        sums.even += 1.0 / static_cast<double>(row + 1);
      }
      sums.first += first, sums.rows += rows - 1, ++sums.heads;
      sums.heads_of_half += first > 0.5 * static_cast<double>(rows - 1) ? 1 : 0;
    }
}

// What a query gives to each token, in the mean over all heads.
ordered_json mean_row(const Recording& recording, std::int64_t query) {
  std::vector<double> sums(recording.tokens[0].size());
  double heads = 0;
  for (std::int64_t layer = 0; layer < std::ssize(recording.layers()); ++layer)
    for (const std::int64_t head : recording.at(layer).heads) {
      const Tensor row = recording.weights(layer, 0, head, Range{query, query + 1});
      for (std::size_t key = 0; key < sums.size(); ++key) sums[key] += row.data<float>()[key];
      ++heads;
    }
  ordered_json list = ordered_json::array();
  for (const double sum : sums) list.push_back(to_digits(sum / heads));
  return list;
}

// The length of the first token's values beside the others' mean length, the median over layers and heads of the keys.
double length_of_first(const std::map<std::string, Tensor>& values) {
  std::vector<double> ratios;
  for (const auto& [layer, v] : values)
    for (std::int64_t head = 0; head < v.size(1); ++head) {
      double others = 0;
      for (std::int64_t key = 1; key < v.size(2); ++key) others += length_of(v.view().row<float>({0, head, key}));
      ratios.push_back(length_of(v.view().row<float>({0, head, 0})) / (others / static_cast<double>(v.size(2) - 1)));
    }
  return median(ratios);
}

}  // namespace

Experiment paris_experiment(const Model& smollm2) {
  const std::string text = "The capital of France is";
  const std::int64_t answer = encode(smollm2, " Paris").ids.front();
  Recording recording = recorded(smollm2, text);
  const std::int64_t last = std::ssize(recording.tokens[0]) - 1;
  const Said before = said_after(smollm2, text, answer), after = said_after(smollm2, text, answer, capital_head);
  const Tensor row = recording.weights(capital_head.first, 0, capital_head.second, Range{last, last + 1});
  ordered_json numbers = {{"text", text},
                          {"tokens", recording.tokens[0]},
                          {"head", head_text(capital_head)},
                          {"heads", smollm2.info().layers * smollm2.info().heads},
                          {"before", json_of(before.next)},
                          {"after", json_of(after.next)},
                          {"answer", {to_digits(before.answer), to_digits(after.answer)}},
                          {"weights", rounded(row)},
                          {"halving", heads_that_halve(smollm2, text, answer)},
                          {"capitals", capitals_json(smollm2)}};
  return {.id = "paris",
          .numbers = std::move(numbers),
          .place = place_of(
              {{"text", text}, {"head", head_text(capital_head)}, {"query", std::to_string(last)}, {"key", "3"}}),
          .recording = std::move(recording),
          .decoder = true};
}

Experiment induction_experiment(const Model& smollm2) {
  Recording recording = recorded(smollm2, twice);
  const auto [layer, best] = strongest_induction(recording);
  const Head head = {layer, best.head};
  ordered_json list = ordered_json::array();
  for (const Name& name : names) {
    const std::int64_t next = followed(encode(smollm2, name.after).ids);
    const Said alone = said_after(smollm2, name.alone, next), after = said_after(smollm2, name.after, next);
    list.push_back({{"alone", name.alone},
                    {"after", name.after},
                    {"token", smollm2.tokenizer().text(next).value_or("")},
                    {"likeliest", json_of(alone.next)},
                    {"probabilities", {to_digits(alone.answer), to_digits(after.answer)}}});
  }
  const std::int64_t last = std::ssize(recording.tokens[0]) - 1;
  ordered_json numbers = {{"names", std::move(list)},
                          {"head", head_text(head)},
                          {"tokens", recording.tokens[0]},
                          {"weights", rows_of(recording.weights(layer, 0, best.head))}};
  return {.id = "induction",
          .numbers = std::move(numbers),
          .place = place_of({{"text", twice}, {"head", head_text(head)}, {"query", std::to_string(last - 1)}}),
          .recording = std::move(recording),
          .decoder = true};
}

Experiment sink_experiment(const Model& smollm2) {
  constexpr std::size_t shown = 2;  // of the texts, whose pass is looked into
  Shares sums;
  ordered_json lengths = ordered_json::array();
  Recording recording;
  for (std::size_t n = 0; n < sink_texts.size(); ++n) {
    Recorder recorder({.keep_qk = true, .key_sizes = true});
    Pass pass = run(smollm2, {.ids = encode(smollm2, sink_texts[n]).ids}, {.recorder = &recorder, .values = true});
    add_shares(*pass.recording, sums);
    lengths.push_back(to_digits(length_of_first(pass.values)));
    if (n == shown) recording = std::move(*pass.recording);
  }
  const std::int64_t last = std::ssize(recording.tokens[0]) - 1;
  const auto rows = static_cast<double>(sums.rows);
  ordered_json numbers = {
      {"texts", sink_texts},           {"share", to_digits(sums.first / rows)}, {"even", to_digits(sums.even / rows)},
      {"heads", sums.heads},           {"heads_of_half", sums.heads_of_half},   {"lengths", std::move(lengths)},
      {"tokens", recording.tokens[0]}, {"weights", mean_row(recording, last)}};
  return {
      .id = "sink",
      .numbers = std::move(numbers),
      .place = place_of({{"text", sink_texts[shown]}, {"head", "25.4"}, {"query", std::to_string(last)}, {"key", "0"}}),
      .recording = std::move(recording),
      .decoder = true};
}

}  // namespace attend::inline v1
