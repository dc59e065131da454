// Experiments on MiniLM, which the class has in a page that computes whatever is typed.
#include <array>

#include "attend/analysis.h"
#include "attend/session.h"
#include "attend/variants.h"
#include "class/experiments.h"
#include "class/measures.h"

namespace attend::inline v1 {

namespace {

using nlohmann::ordered_json;

constexpr Head noun_head = {3, 1};

// The opening's sentence and its variants: which noun "it" is, and the other.
std::array<VariantText, 4> sentences() {
  return {{
      {"the animal did not cross the street because it was too tired", "it", "animal", "street"},
      {"the animal did not cross the street because it was too wide", "it", "street", "animal"},
      {"the street was not crossed by the animal because it was too tired", "it", "animal", "street"},
      {"the street was not crossed by the animal because it was too wide", "it", "street", "animal"},
  }};
}

std::vector<std::string> tokens_of(const Model& model, const VariantRow& row) {
  std::vector<std::string> tokens;
  for (const std::optional<std::string>& text : model.tokenizer().texts(row.ids)) tokens.push_back(text.value_or(""));
  return tokens;
}

// What the query gives to each token in a head.
View weights_of(const VariantRow& row, const Head& head) {
  return row.weights.view().select(0, head.first).select(0, head.second);
}

// The head that gives most to a word, and that word: of all heads and words, but for the query's own and `but`.
struct Most {
  Head head = {0, 0};
  VariantWord word = {};
  double weight = 0;
};
Most most_given(const VariantRow& row, const std::optional<VariantWord>& but) {
  Most most;
  for (std::int64_t layer = 0; layer < row.weights.size(0); ++layer)
    for (std::int64_t head = 0; head < row.weights.size(1); ++head)
      for (const VariantWord& word : row.words) {
        const bool own = word.tokens.begin <= row.query && row.query < word.tokens.end;
        if (own || (but && but->tokens.begin == word.tokens.begin)) continue;
        if (const double weight = given(row, {layer, head}, word.tokens); weight > most.weight)
          most = {{layer, head}, word, weight};
      }
  return most;
}

}  // namespace

Experiment tired_experiment(const Model& minilm) {
  const Variants found = vary(minilm, sentences());
  ordered_json list = ordered_json::array();
  for (const VariantRow& row : found.rows) {
    const bool of_animal = row.text.ends_with("tired");
    list.push_back({{"text", row.text},
                    {"tokens", tokens_of(minilm, row)},
                    {"query", row.query},
                    {"meant", of_animal ? "animal" : "street"},
                    {"weights", rounded(weights_of(row, noun_head))}});
  }
  const Ablation without = ablate(minilm, found.rows[0].ids, {.heads = {noun_head}});
  ordered_json numbers = {{"head", head_text(noun_head)},
                          {"sentences", std::move(list)},
                          {"cosine", to_digits(1 - without.cosine_distance.item({0}))}};
  return {.id = "tired",
          .numbers = std::move(numbers),
          .place = place_of({{"text", found.rows[1].text},
                             {"head", head_text(noun_head)},
                             {"query", std::to_string(found.rows[1].query)}})};
}

Experiment two_heads_experiment(const Model& minilm) {
  const auto texts = sentences();
  const Variants found = vary(minilm, std::span(texts).first(1));
  const VariantRow& row = found.rows[0];
  const Most one = most_given(row, {}), other = most_given(row, one.word);
  ordered_json heads = ordered_json::array();
  for (const Most& each : {one, other})
    heads.push_back({{"head", head_text(each.head)},
                     {"key", each.word.tokens.begin},
                     {"word", each.word.word},
                     {"weights", rounded(weights_of(row, each.head))}});
  ordered_json numbers = {{"text", row.text},
                          {"tokens", tokens_of(minilm, row)},
                          {"query", row.query},
                          {"heads", std::move(heads)},
                          {"head_size", minilm.info().head_size}};
  return {.id = "two-heads",
          .numbers = std::move(numbers),
          .place = place_of({{"text", row.text},
                             {"head", head_text(other.head)},
                             {"query", std::to_string(row.query)},
                             {"key", std::to_string(other.word.tokens.begin)}})};
}

}  // namespace attend::inline v1
