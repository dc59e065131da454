// Attention on a sentence, every step kept: text -> ids -> embeddings -> queries, keys, values -> scores -> weights ->
// context.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attend/tensor.h"

#pragma GCC visibility push(default)

namespace attend {

enum class WeightInit {
  uniform,  // torch.rand, between 0 and 1: w_query [d_k,E], used as w x
  linear,   // torch.nn.Linear: w_query [d_k,E], used as x w^T
};

// What to explain. The defaults are those of documents 002 and 004.
struct ExplainOptions {
  std::string text = "Life is short, eat dessert first";
  std::optional<std::string> second_text = {};  // cross-attention: keys and values come from this sentence
  std::uint64_t seed = 123;
  std::int64_t embedding_size = 16;
  std::int64_t d_k = 24;
  std::int64_t d_v = 28;
  std::int64_t heads = 0;  // 0: a single head without a head axis
  WeightInit weights = WeightInit::uniform;
  bool causal = false;
};

// The result. Each tensor is f32; [H] stands only in multi-head traces, and T2 is T without a second sequence.
struct Trace {
  std::string preset;               // the preset's name; "" for a sentence of the user's
  std::string title;                // one line that says what is explained
  std::vector<std::string> tokens;  // T words
  std::vector<std::int64_t> ids;    // T
  std::vector<std::string> tokens_2;
  std::vector<std::int64_t> ids_2;  // empty where the second sequence is numbers, not words
  std::int64_t focus = 0;           // the query row that the preset's document looks at
  bool causal = false;
  bool weights_in_out = false;  // w_* stand as [in,out], used as x @ w; else [out,in], used as x @ w^T

  Tensor embeddings;                   // [T,E]
  std::optional<Tensor> embeddings_2;  // [T2,E]
  Tensor w_query, w_key;               // [H][d_k,E], or [H][E,d_k]: weights_in_out
  Tensor w_value;                      // [H][d_v,E], or [H][E,d_v]
  Tensor queries, keys;                // [H][T,d_k], [H][T2,d_k]
  Tensor values;                       // [H][T2,d_v]
  Tensor scores, scaled_scores;        // [H][T,T2]: q.k, and q.k / sqrt(d_k)
  Tensor weights;                      // [H][T,T2]: each row sums to 1
  Tensor context;                      // [H][T,d_v]
  std::optional<Tensor> concat_heads;  // [T,H * d_v]
  std::optional<Tensor> w_output;      // [H * d_v,E], used as concat_heads @ w_output
  std::optional<Tensor> output;        // [T,E]

  bool multi_head() const { return queries.rank() == 3; }
  // The tensors that are there, by their names, in the order of the fields.
  std::vector<std::pair<std::string, View>> tensors() const;
};

// A part of a seed document.
struct Preset {
  std::string_view name;
  std::string_view document;
  std::string_view summary;
};
std::span<const Preset> presets();

// Throws bad_value for a sentence without words, text that is not UTF-8, or a size below 1.
Trace explain(const ExplainOptions& options);
// Throws bad_value for a name that is not a preset's.
Trace explain_preset(std::string_view name);

// How to_text and to_html show a trace; both throw bad_value for a focus or head that the trace does not have.
struct TextStyle {
  int width = 80;
  bool colour = false;
  std::optional<std::int64_t> focus = {};  // the query row to work out; default: the trace's
  std::int64_t head = 0;                   // of a multi-head trace
};
// The whole walk for a terminal: formulas, shapes, numbers, one dot product worked out, a heat map.
std::string to_text(const Trace& trace, const TextStyle& style = {});
// One JSON object; docs/json.md describes it.
std::string to_json(const Trace& trace);
// One HTML page without outside references.
std::string to_html(const Trace& trace, const TextStyle& style = {});
// Pictures of the weights, one panel a head.
std::string to_svg(const Trace& trace);
std::string to_png(const Trace& trace);

// Writes the trace as .json, .npz, .safetensors, .svg, .png or .html, by the path's ending; another ending throws
// bad_value. The style is the page's.
void write_trace(const std::string& path, const Trace& trace, const TextStyle& style = {});

}  // namespace attend

#pragma GCC visibility pop
