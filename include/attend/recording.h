// Recordings of what every head of a model attended to, in memory that grows with Tq + Tk. A recording can be a file.
//
//     attend::Recorder recorder;
//     model.forward(ids, {.recorder = &recorder});
//     recorder.finish().save("text.attend");
//
// For each layer it has the numbers of AttentionSummary and HeadScores, lse, and on request q and k, which give any
// part of the weights exactly. With key sizes, everything is also known by norm. It is made from calls to attention():
// one for each layer in a forward pass; in a generation, later calls add rows to the layers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attend/api.h"
#include "attend/io.h"
#include "attend/quantized.h"
#include "attend/summary.h"

namespace attend::inline v1 {

struct ATTEND_API RecordOptions {
  std::int64_t top = 8;                         // how many of a row's largest weights, at least 1
  MapSize map = {256, 256};                     // most blocks
  bool keep_qk = false;                         // also keep q, k and masks, which Recording::weights() needs
  bool key_sizes = false;                       // models also give key sizes (RecordCall)
  std::int64_t budget = std::int64_t{2} << 30;  // most bytes for everything
  // Layers may be called again: each call adds rows, and the earlier keys remain. Map blocks have 1, 2, 4, 8, ... rows
  // and keys, doubled whenever rows or keys exceed the map's size.
  bool grows = false;
};

// How rows of a layer were computed: the AttentionOptions that are not tensors, for keys counted from keys.begin.
struct ATTEND_API RecordedCall {
  Range queries, keys;
  double scale = 1;
  Window window = {};                          // right 0 is causal
  std::optional<std::int64_t> offset = {};     // query queries.begin + i is level with key keys.begin + i + offset
  std::map<std::string, double> numbers = {};  // the number_options() that were not 0
  std::vector<std::string> tensors = {};       // names of the options that were tensors
};

struct ATTEND_API RecordedLayer {
  std::string name;          // "decoder.3.cross"
  std::string kind;          // "self", "cross"
  DType dtype = DType::f32;  // of q and k
  std::int64_t batch = 0, kv_heads = 0, head_size = 0, queries = 0, keys = 0, top = 0;
  std::vector<std::int64_t> heads = {};  // the model's query heads that were recorded, ascending
  // The map has row_blocks x column_blocks; query i is in row floor(i row_blocks / row_range), likewise for keys.
  std::int64_t row_blocks = 0, row_range = 0, column_blocks = 0, column_range = 0;
  bool has_distance = false, has_sinks = false, has_tokens = false, has_qk = false, has_key_sizes = false;
  std::vector<RecordedCall> calls = {};
};

// Which part of a head's steps; default: all queries and keys.
struct ATTEND_API StepsOptions {
  std::optional<Range> queries = {}, keys = {};
  // [Tk,Dv] for all keys of the head, floating point: also gives context.
  OptionalView values = {};
};

// The steps to a head's weights, with the names of a trace in docs/json.md. f32; f64 if the layer computed in f64.
struct ATTEND_API HeadSteps {
  Tensor queries, keys;          // [queries,D], [keys,D]
  Tensor scores, scaled_scores;  // [queries,keys]: q.k, and times the scale; hidden pairs too
  Tensor logits;        // [queries,keys]: input of the softmax, after softcap, biases and ALiBi; -inf if hidden
  Tensor weights;       // [queries,keys] of Recording::weights(): e^(logits - lse)
  Tensor lse, entropy;  // [queries], as recorded
  std::optional<Tensor> context = {};  // [queries,Dv], with values: all keys' weights times their values
};

// What a file may leave out, by layer index.
struct ATTEND_API LeftOut {
  std::vector<std::int64_t> qk = {};    // q and k
  std::vector<std::int64_t> maps = {};  // maps of more than `most` blocks: neighbours are merged
  MapSize most = {64, 64};
};

// "18.6" for layer "18.self"; "decoder.3.cross.6" for other names.
ATTEND_API std::string head_name(std::string_view layer, std::int64_t head);

class ATTEND_API Recording {
 public:
  Recording() = default;
  Recording(Recording&&) = default;
  Recording& operator=(Recording&&) = default;

  // Reads the header; numbers are read from the opened file on demand. Throws bad_file, also later if the file changed.
  static Recording load(const std::filesystem::path& path);
  // Writes one .safetensors file (docs/inside.md lists its parts), replaced in one step.
  void save(const std::filesystem::path& path) const;
  // The bytes of that file, or of a smaller one. Throws bad_value for layers that do not exist.
  std::string to_bytes(const LeftOut& left_out = {}) const;
  // Bytes of all tensors, and of q and k alone. The file is little larger.
  struct Size {
    std::int64_t all = 0, qk = 0;
  };
  Size size() const;

  std::string model;                             // what was recorded
  Activations activations = Activations::exact;  // as ModelInfo::activations
  // Each batch item's tokens as text; empty: unknown. decoder_tokens: for an encoder-decoder's decoder.
  std::vector<std::vector<std::string>> tokens, decoder_tokens;
  // Token ids, i64 [B,T], if known.
  std::optional<Tensor> ids() const { return find("ids"); }
  std::optional<Tensor> decoder_ids() const { return find("decoder_ids"); }
  void set_ids(const std::optional<View>& ids, const std::optional<View>& decoder_ids = {});

  const std::vector<RecordedLayer>& layers() const { return layers_; }
  // Throws bad_value for an index without a layer.
  const RecordedLayer& at(std::int64_t layer) const;
  // The index of the layer with that name. Throws bad_value.
  std::int64_t layer(std::string_view name) const;
  // The tokens of a layer's queries and keys; empty if unknown or of another number.
  const std::vector<std::vector<std::string>>& query_tokens(std::int64_t layer) const;
  const std::vector<std::vector<std::string>>& key_tokens(std::int64_t layer) const;

  // A layer's numbers: one of summary_statistics(), "lse" and "lse_low" [B,H,Tq], "key_sizes" [B,H,Tk], "q" [B,H,Tq,D]
  // or "k" [B,Hkv,Tk,D], with H the recorded heads. Throws bad_value for other names and for what was not recorded.
  Tensor numbers(std::int64_t layer, std::string_view name) const;
  // Scores of each item and recorded head; HeadScores::head is the model's number. What version 1 files lack is
  // unknown. Throws bad_value for norm if the layer has no key_sizes.
  std::vector<HeadScores> scores(std::int64_t layer, WeighedBy by = WeighedBy::weight) const;
  // A head's exact weights [queries,keys]; by norm what is carried. head: the model's number. Throws bad_value if q and
  // k were not kept, for ranges outside the layer's, a head or item that does not exist, and norm without key_sizes.
  Tensor weights(std::int64_t layer, std::int64_t item, std::int64_t head, const std::optional<Range>& queries = {},
                 const std::optional<Range>& keys = {}, WeighedBy by = WeighedBy::weight) const;
  // The steps to a head's weights, recomputed in double from q, k and the calls' options. Memory grows with queries x
  // keys. Same errors as weights(), and bad_shape and bad_dtype for values.
  HeadSteps steps(std::int64_t layer, std::int64_t item, std::int64_t head, const StepsOptions& part = {}) const;
  // The keys that causality and windows leave to each query; masks are ignored.
  std::vector<Range> visible_keys(std::int64_t layer) const;
  // The index of a head among the recorded ones. Throws bad_value.
  std::int64_t head(std::int64_t layer, std::int64_t number) const;

 private:
  friend class Recorder;
  struct File;
  struct Contents;
  Contents contents(const char* function, const LeftOut& left_out) const;
  void widen_scores();
  std::optional<Tensor> find(std::string_view name) const;
  // Rows of one item and head of a layer's tensor [B,H,T,...], as [1,1,rows,...].
  Tensor rows_of(std::int64_t layer, std::string_view name, std::int64_t item, std::int64_t head,
                 const Range& rows) const;
  AttentionOptions options_of(std::int64_t layer, std::size_t call, std::int64_t item, std::int64_t head,
                              TensorMap& tensors) const;
  // The index of a head among the recorded ones. Throws bad_value.
  std::int64_t check_head(const char* function, std::int64_t layer, std::int64_t item, std::int64_t head) const;

  std::vector<RecordedLayer> layers_;
  TensorMap tensors_;                 // in memory
  std::shared_ptr<const File> file_;  // the others
};

// What one call to attention() was.
struct ATTEND_API RecordCall {
  std::string_view layer;  // its name
  // Or "cross", whose keys are not the queries' own: distance, `previous` and `local` then need an offset.
  std::string_view kind = "self";
  // The model's query heads that q has; empty: 0, 1, ...
  std::span<const std::int64_t> heads = {};
  // i64 [T] or [B,T]: ids of all keys in this layer so far, for the scores `duplicate` and `induction`; with kind
  // "self".
  OptionalView tokens = {};
  // As in SummaryOptions, [B,H,n] for the call's last n keys, which include all new ones. All calls of a layer give
  // them, or none does.
  OptionalView key_sizes = {};
  Activations activations = Activations::exact;  // the model's; the same in all calls
};

class ATTEND_API Recorder {
 public:
  // Throws bad_value for top < 1, a map without blocks and a budget below 0.
  explicit Recorder(const RecordOptions& options = {});
  Recorder(Recorder&&) noexcept;
  Recorder& operator=(Recorder&&) noexcept;
  ~Recorder();

  // Call before computing: throws bad_value, with advice, if recording the call would exceed the budget.
  void check(const RecordCall& call, const Dims& q, const Dims& k, DType dtype, const AttentionOptions& options) const;
  // Adds a call: q [B,H,Tq,D], k [B,Hkv,Tk,D] and options as given to attention(), lse and lse_low [B,H,Tq] as it
  // returned them. query_starts are refused. The first call with a name makes the layer; further calls need
  // RecordOptions::grows.
  //
  // In a growing "self" layer the new rows follow the recorded ones. With `offset`, query i is level with key i +
  // offset of this call, which places these keys among all keys; without it, they begin with the first key. Hidden keys
  // after the last query (a static cache's) are dropped.
  //
  // Same errors as attention_summary() and check(), and bad_value for a call that does not continue the layer. All
  // layers stay whole after an error, except this one after `interrupted` or `out_of_memory`: add nothing to it then.
  void add(const RecordCall& call, const View& q, const View& k, const View& lse, const View& lse_low,
           const AttentionOptions& options);

  const RecordOptions& options() const;
  bool has(std::string_view layer) const;  // whether a call to it was added
  std::int64_t bytes() const;              // used so far
  // The recording. The recorder is empty afterwards.
  Recording finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace attend::inline v1
