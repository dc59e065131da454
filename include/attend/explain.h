// Attention on a sentence, every step kept: text -> ids -> embeddings -> queries, keys, values -> scores -> weights ->
// context.
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

namespace attend::inline v0 {

enum class ATTEND_API WeightInit {
  uniform,  // torch.rand, between 0 and 1: w_query [d_k,E], used as w x
  linear,   // torch.nn.Linear: w_query [d_k,E], used as x w^T
};

// What to explain.
struct ATTEND_API ExplainOptions {
  // Without one: the sentence of documents 002 and 004, "Life is short, eat dessert first", drawn as they draw it.
  std::optional<std::string> text = {};
  std::optional<std::string> second_text = {};  // cross-attention: keys and values come from this sentence
  std::uint64_t seed = 123;
  std::int64_t embedding_size = 16;
  std::int64_t d_k = 24;  // of each head
  std::int64_t d_v = 28;
  // Heads, each with matrices of its own; their context vectors are joined and projected by w_output. 0: a single head,
  // without a head axis and w_output.
  std::int64_t heads = 0;
  // Default: linear for a text, whose scores are then of a size at which the softmax shares; uniform without one.
  std::optional<WeightInit> weights = {};
  bool causal = false;     // a word sees itself and the words before it
  bool positions = false;  // sinusoidal encodings are added to the embeddings (Vaswani et al. 2017, section 3.5)
  bool scale = true;       // scores / sqrt(d_k) go to the softmax; false: the scores as they are
  // A word sees itself and that many words before it and, unless it is causal, after it. Not with a second sentence.
  std::optional<std::int64_t> window = {};
};

// What explain() keeps of the matrices [H][T,T2], which are nearly all of a long sentence's memory. What to_text and
// the pictures draw without `all` needs the weights alone.
struct ATTEND_API ExplainKeep {
  bool scores = true;                         // scores, scaled_scores and logits; else they are empty
  std::optional<std::int64_t> head = {};      // this head's alone (from 0), which are then [1,T,T2]
  std::function<void(double)> progress = {};  // called now and then, on the calling thread, with the part that is done
};

// The result. Each tensor is f32; [H] stands only in multi-head traces, and T2 is T without a second sequence.
struct ATTEND_API Trace {
  std::string preset;               // the preset's name; "" for a sentence of the user's
  std::string title;                // one line that says what is explained
  ExplainOptions options;           // explain(options) makes the trace again; a preset's says its sizes, seed and draw
  std::vector<std::string> tokens;  // T words
  std::vector<std::int64_t> ids;    // T
  std::vector<std::string> tokens_2;
  std::vector<std::int64_t> ids_2;   // empty where the second sequence is numbers, not words
  std::int64_t vocabulary_size = 0;  // of the first sequence; 0 where the preset gives the embeddings
  std::int64_t focus = 0;            // the query row that the preset's document looks at
  bool causal = false;
  bool weights_in_out = false;                 // w_* stand as [in,out], used as x @ w; else [out,in], used as x @ w^T
  std::optional<std::int64_t> kept_head = {};  // of ExplainKeep

  Tensor embeddings;                   // [T,E]
  std::optional<Tensor> embeddings_2;  // [T2,E]
  std::optional<Tensor> positions;     // [max(T,T2),E]: row t is the encoding of place t
  std::optional<Tensor> inputs;        // [T,E]: embeddings + positions
  std::optional<Tensor> inputs_2;      // [T2,E]
  Tensor w_query, w_key;               // [H][d_k,E], or [H][E,d_k]: weights_in_out
  Tensor w_value;                      // [H][d_v,E], or [H][E,d_v]
  Tensor queries, keys;                // [H][T,d_k], [H][T2,d_k]
  Tensor values;                       // [H][T2,d_v]
  Tensor scores, scaled_scores;  // [H][T,T2]: q.k, and q.k / sqrt(d_k) (or q.k: options.scale), of hidden keys too
  std::optional<Tensor> logits;  // [H][T,T2]: causal or window: scaled_scores, and -inf where a key is hidden
  Tensor weights;                // [H][T,T2]: each row sums to 1; 0 where a key is hidden
  Tensor context;                // [H][T,d_v]
  std::optional<Tensor> concat_heads;  // [T,H * d_v]
  std::optional<Tensor> w_output;      // [E,H * d_v], or [H * d_v,E]: weights_in_out
  std::optional<Tensor> output;        // [T,E]

  bool multi_head() const { return queries.rank() == 3; }
  // Whether some key may be hidden from a query.
  bool masked() const { return causal || options.window; }
  // What the projections take: the embeddings, with their positions where those are added.
  View input() const ATTEND_LIFETIMEBOUND;    // [T,E]
  View input_2() const ATTEND_LIFETIMEBOUND;  // [T2,E]
  // The tensors that are there, by their names, in the order of the fields.
  std::vector<std::pair<std::string, View>> tensors() const ATTEND_LIFETIMEBOUND;
};

// A part of a seed document.
struct ATTEND_API Preset {
  std::string_view name;
  std::string_view document;
  std::string_view summary;
};
ATTEND_API std::span<const Preset> presets();

// Throws bad_value for a sentence without words, text that is not UTF-8, a size below 1 or a head that is not there.
ATTEND_API Trace explain(const ExplainOptions& options, const ExplainKeep& keep = {});
// The bytes of the tensors that it keeps, INT64_MAX beyond 2^62. Throws as explain() does.
ATTEND_API std::int64_t explain_bytes(const ExplainOptions& options, const ExplainKeep& keep = {});
// Throws bad_value for a name that is not a preset's.
ATTEND_API Trace explain_preset(std::string_view name);

// How a trace is shown. Throws bad_value for a focus or head that the trace does not have or has not kept.
struct ATTEND_API TextStyle {
  int width = 80;  // columns of the text, at least 40
  bool colour = false;
  std::optional<std::int64_t> focus = {};  // the query row to work out; default: the trace's
  // Of a multi-head trace, counted from 0. Default: head 0 for the text and the page, all for a picture.
  std::optional<std::int64_t> head = {};
  bool all = false;  // whole matrices too, not only the rows of the word that is worked out
};
// The walk for a terminal: the picture, then each step for one word, with its formula, shapes and numbers.
ATTEND_API std::string to_text(const Trace& trace, const TextStyle& style = {});
// One JSON object; docs/json.md describes it.
ATTEND_API std::string to_json(const Trace& trace);
// One HTML page without outside references: the steps, for one word and head. Where the library was built with the page
// that computes (docs/page.md), it is that page: explain() on whatever is typed into it, beginning with trace.options.
ATTEND_API std::string to_html(const Trace& trace, const TextStyle& style = {});
// Why to_html()'s page of this trace shows the steps and does not compute: the library was built without that page, or
// there are more than 200 words. "" where it computes.
ATTEND_API std::string page_note(const Trace& trace);
// Pictures of the weights, one panel a head.
ATTEND_API std::string to_svg(const Trace& trace, const TextStyle& style = {});
ATTEND_API std::string to_png(const Trace& trace, const TextStyle& style = {});

// A sheet on which one word's attention is worked out with pencil and pocket calculator, and its answers.
struct ATTEND_API SheetOptions {
  std::string text;                        // 2 to 12 words
  std::uint64_t seed = 123;                // other numbers for another class
  std::optional<std::int64_t> focus = {};  // the word, from 0; default: the second, or with causal the last
  bool causal = false;                     // a word attends to itself and the words before it
};
// One HTML page that prints on A4 and on Letter: the numbers that are given, blanks for what is to be worked out, and
// on a page of its own what comes out, with the rounding that the sheet asks for. Embeddings of 3 numbers, queries and
// keys of 4, values of 2, multiples of a half, drawn so that the weights differ. Throws bad_value for another number of
// words, for a word that is not there, for one that sees itself alone, and for text that is not UTF-8.
ATTEND_API std::string exercise_sheet(const SheetOptions& options);

// The trace's attention as a recording of one layer, q and k kept: "0.self", or "decoder.0.cross" where there is a
// second sentence, whose words are the recording's tokens, and the first's its decoder_tokens. Throws bad_value, as
// Recorder does, for heads that take more than its budget.
ATTEND_API Recording to_recording(const Trace& trace);

// Writes the trace as .json, .npz, .safetensors, .attend (to_recording()'s), .svg, .png or .html, by the path's ending;
// another ending throws bad_value. The style is that of the page and the pictures.
ATTEND_API void write_trace(const std::string& path, const Trace& trace, const TextStyle& style = {});

}  // namespace attend::inline v0
