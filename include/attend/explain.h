// Attention on a sentence with every step kept: text -> ids -> embeddings -> queries, keys, values -> scores -> weights
// -> context.
//
//     const attend::Trace trace = attend::explain({.text = "the cat sat"});
//     fmt::print("{}", attend::to_text(trace));
#pragma once

#ifdef ATTEND_WITHOUT_PICTURES
#error "attend was built with ATTEND_PICTURES=OFF: it has no explain.h"
#endif

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attend/api.h"
#include "attend/recording.h"
#include "attend/tensor.h"

namespace attend::inline v1 {

enum class ATTEND_API WeightInit {
  uniform,  // torch.rand, between 0 and 1: w_query [d_k,E], used as w x
  linear,   // torch.nn.Linear: w_query [d_k,E], used as x w^T
};

// What to explain.
struct ATTEND_API ExplainOptions {
  // Default: "Life is short, eat dessert first" of documents 002 and 004, drawn as there.
  std::optional<std::string> text = {};
  std::optional<std::string> second_text = {};  // cross-attention: keys and values come from this sentence
  std::uint64_t seed = 123;
  std::int64_t embedding_size = 16;
  std::int64_t d_k = 24;  // of each head
  std::int64_t d_v = 28;
  // Heads with their own matrices, whose contexts are joined and projected by w_output. 0: a single head without a head
  // axis and w_output.
  std::int64_t heads = 0;
  // Default: linear for a text, which gives scores of a useful size; uniform without one.
  std::optional<WeightInit> weights = {};
  bool causal = false;     // a word sees itself and the words before it
  bool positions = false;  // add sinusoidal encodings to the embeddings (Vaswani et al. 2017, section 3.5)
  bool scale = true;       // divide scores by sqrt(d_k) before the softmax
  // A word sees itself and this many words before it and, unless causal, after it. Not with a second sentence.
  std::optional<std::int64_t> window = {};
};

// What to keep of the matrices [H][T,T2], which take most memory for a long sentence. to_text() and pictures without
// `all` need only the weights.
struct ATTEND_API ExplainKeep {
  bool scores = true;                         // scores, scaled_scores and logits; false: empty
  std::optional<std::int64_t> head = {};      // only this head (from 0), as [1,T,T2]
  std::function<void(double)> progress = {};  // called with the share done, on the calling thread
};

// The steps. Tensors are f32; only multi-head traces have [H]; T2 is T without a second sequence.
struct ATTEND_API Trace {
  std::string preset;      // the preset's name; "" for the user's sentence
  std::string title;       // one line that says what is explained
  ExplainOptions options;  // explain(options) repeats the trace; for a preset: its sizes, seed and initialisation
  std::vector<std::string> tokens;  // T words
  std::vector<std::int64_t> ids;    // T
  std::vector<std::string> tokens_2;
  std::vector<std::int64_t> ids_2;   // empty if the second sequence is numbers, not words
  std::int64_t vocabulary_size = 0;  // of the first sequence; 0 if the preset gives embeddings
  std::int64_t focus = 0;            // the query row that the preset's document looks at
  bool causal = false;
  bool weights_in_out = false;                 // w_* are [in,out], used as x @ w; false: [out,in], x @ w^T
  std::optional<std::int64_t> kept_head = {};  // of ExplainKeep

  Tensor embeddings;                   // [T,E]
  std::optional<Tensor> embeddings_2;  // [T2,E]
  std::optional<Tensor> positions;     // [max(T,T2),E]: row t encodes position t
  std::optional<Tensor> inputs;        // [T,E]: embeddings + positions
  std::optional<Tensor> inputs_2;      // [T2,E]
  Tensor w_query, w_key;               // [H][d_k,E], or with weights_in_out [H][E,d_k]
  Tensor w_value;                      // [H][d_v,E], or [H][E,d_v]
  Tensor queries, keys;                // [H][T,d_k], [H][T2,d_k]
  Tensor values;                       // [H][T2,d_v]
  Tensor scores, scaled_scores;        // [H][T,T2]: q.k, and q.k / sqrt(d_k) (if options.scale), hidden keys too
  std::optional<Tensor> logits;        // [H][T,T2], with causal or window: scaled_scores, -inf where hidden
  Tensor weights;                      // [H][T,T2]: each row sums to 1; 0 where hidden
  Tensor context;                      // [H][T,d_v]
  std::optional<Tensor> concat_heads;  // [T,H * d_v]
  std::optional<Tensor> w_output;      // [E,H * d_v], or with weights_in_out [H * d_v,E]
  std::optional<Tensor> output;        // [T,E]

  bool multi_head() const { return queries.rank() == 3; }
  // Whether some key may be hidden from a query.
  bool masked() const { return causal || options.window; }
  // The projections' input: embeddings, plus positions if used.
  View input() const ATTEND_LIFETIMEBOUND;    // [T,E]
  View input_2() const ATTEND_LIFETIMEBOUND;  // [T2,E]
  // All existing tensors by name, in the order of the fields.
  std::vector<std::pair<std::string, View>> tensors() const ATTEND_LIFETIMEBOUND;
};

// A worked example with fixed sizes and numbers.
struct ATTEND_API Preset {
  std::string_view name;
  std::string_view document;
  std::string_view summary;
};
ATTEND_API std::span<const Preset> presets();

// Throws bad_value for a sentence without words, text that is not UTF-8, a size below 1 and a head that does not exist.
ATTEND_API Trace explain(const ExplainOptions& options, const ExplainKeep& keep = {});
// Bytes of the tensors kept; INT64_MAX beyond 2^62. Same errors as explain().
ATTEND_API std::int64_t explain_bytes(const ExplainOptions& options, const ExplainKeep& keep = {});
// Throws bad_value for an unknown preset.
ATTEND_API Trace explain_preset(std::string_view name);

// How a trace is shown. Throws bad_value for a focus or head that the trace does not have or has not kept.
struct ATTEND_API TextStyle {
  int width = 80;  // columns, at least 40
  bool colour = false;
  std::optional<std::int64_t> focus = {};  // the query row to work out; default: the trace's
  // For a multi-head trace, from 0. Default: head 0 for text and page, all for pictures.
  std::optional<std::int64_t> head = {};
  bool all = false;  // show whole matrices, not only the focus word's rows
};
// A walkthrough for a terminal: the picture, then each step for one word, with formula, shapes and numbers.
ATTEND_API std::string to_text(const Trace& trace, const TextStyle& style = {});
// One JSON object (docs/json.md).
ATTEND_API std::string to_json(const Trace& trace);
// One self-contained HTML page with the steps for one word and head. If the library has the page that computes
// (docs/page.md), it explains whatever is typed, beginning with trace.options.
ATTEND_API std::string to_html(const Trace& trace, const TextStyle& style = {});
// Why to_html()'s page does not compute: the library lacks that page, or there are over 200 words. "" if it computes.
ATTEND_API std::string page_note(const Trace& trace);
// Pictures of the weights, one panel for each head.
ATTEND_API std::string to_svg(const Trace& trace, const TextStyle& style = {});
ATTEND_API std::string to_png(const Trace& trace, const TextStyle& style = {});

// A worksheet: one word's attention with pencil and calculator, and the answers.
struct ATTEND_API SheetOptions {
  std::string text;                        // 2 to 12 words
  std::uint64_t seed = 123;                // gives other numbers, for another class
  std::optional<std::int64_t> focus = {};  // the word, from 0; default: the second, or with causal the last
  bool causal = false;                     // a word attends to itself and the words before it
};
// One HTML page that prints on A4 and Letter: given numbers, blanks to fill in, and the answers on their own page,
// rounded as the sheet asks. Embeddings have 3 numbers, queries and keys 4, values 2, all multiples of a half, drawn so
// that the weights differ. Throws bad_value for another number of words, a word that does not exist or sees only
// itself, and text that is not UTF-8.
ATTEND_API std::string exercise_sheet(const SheetOptions& options);

// The trace as a recording of one layer, with q and k: "0.self", or with a second sentence "decoder.0.cross". Then the
// second sentence's words are its tokens, and the first's its decoder_tokens. Throws bad_value, as Recorder, for heads
// beyond its budget.
ATTEND_API Recording to_recording(const Trace& trace);

// Writes .json, .npz, .safetensors, .attend (a recording), .svg, .png or .html, by the path's ending; bad_value for
// others. The style applies to page and pictures.
ATTEND_API void write_trace(const std::string& path, const Trace& trace, const TextStyle& style = {});

}  // namespace attend::inline v1
