// What a trace is made from: a preset's document, or a sentence and options, written down as data.
#pragma once

#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "attend/attention.h"
#include "attend/explain.h"

namespace attend::inline v1 {

// How a matrix stands and is used.
enum class Orientation {
  out_in,  // [d,E], used as x w^T, as torch.nn.Linear stores it
  in_out,  // [E,d], used as x w
};

// One set of projection matrices drawn from the generator. Documents draw sets that they do not go on to use
// (document 002's single head before its three heads), and these move the generator too.
struct WeightDraw {
  WeightInit init = WeightInit::uniform;
  Orientation orientation = Orientation::out_in;
  std::int64_t heads = 0;  // 0: no head axis
  bool key_first = false;  // document 003 draws key, query, value; the others query, key, value
  bool output = false;     // and then w_output
};

struct Recipe {
  std::string preset;
  std::string title;
  ExplainOptions options;  // seed and sizes; of a preset, those of the draw that is used
  std::vector<std::string> tokens;
  std::vector<std::int64_t> ids;
  std::int64_t vocabulary_size = 0;
  std::optional<Tensor> embeddings;   // numbers given by the document instead of an Embedding
  std::vector<std::string> tokens_2;  // a second sentence, or
  std::int64_t random_rows_2 = 0;     // that many rows of torch.rand as a second sequence
  bool reseed = false;                // seed again between the embedding and the weights
  std::vector<WeightDraw> draws;      // the last one is used
  struct Matrices {
    Tensor query, key, value;  // [E,d]
  };
  std::optional<Matrices> matrices;  // given, and nothing is drawn
  std::int64_t focus = 0;

  std::int64_t keys() const {
    return random_rows_2 > 0 ? random_rows_2 : std::ssize(tokens_2.empty() ? tokens : tokens_2);
  }
};

// What attention() is asked for of a trace's queries, keys and values.
AttentionOptions attention_options(const Trace& trace);

// Throws bad_value unless 0 <= head < heads.
void check_head(std::int64_t head, std::int64_t heads);

// Throws bad_value as explain() does.
Recipe recipe_of(const ExplainOptions& options);
// What the recipe makes.
Trace trace_of(const Recipe& recipe, const ExplainKeep& keep = {});
// Throws bad_value as explain_preset() does.
Recipe recipe_of_preset(std::string_view name);

}  // namespace attend::inline v1
