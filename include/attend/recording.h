// Recordings: what every head of a model attended to while it computed, in memory that grows with Tq + Tk, and as a
// file. Of each layer: the numbers of AttentionSummary and HeadScores, lse, and on request q and k, from which any part
// of the weights is exact again. Where the keys' sizes were given, all of it is known by norm, too.
//
// A recording is made from the arguments of the calls to attention(), one layer after the other, and is one forward
// pass; or a generation, whose later calls bring further rows to the layers that are there.
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

namespace attend::inline v0 {

struct ATTEND_API RecordOptions {
  std::int64_t top = 8;                         // how many of a row's largest weights, at least 1
  MapSize map = {256, 256};                     // of blocks, at most
  bool keep_qk = false;                         // keep q, k and what masks them, too: Recording::weights() needs them
  bool key_sizes = false;                       // a model gives the sizes of its keys, too (RecordCall)
  std::int64_t budget = std::int64_t{2} << 30;  // bytes that all of it may take
  // Layers are called again: each call brings rows that follow those that are there, and keys that are there still.
  // Maps have blocks of 1, 2, 4, 8, ... rows and keys then, doubled whenever rows or keys pass the map's size.
  bool grows = false;
};

// How rows of a layer were computed: what AttentionOptions says that is no tensor, for keys counted from keys.begin.
struct ATTEND_API RecordedCall {
  Range queries, keys;
  double scale = 1;
  Window window = {};                          // a right side of 0 is causal
  std::optional<std::int64_t> offset = {};     // query queries.begin + i is level with key keys.begin + i + offset
  std::map<std::string, double> numbers = {};  // of number_options(), those that were not 0
  std::vector<std::string> tensors = {};       // the names of the options that were tensors
};

struct ATTEND_API RecordedLayer {
  std::string name;          // "decoder.3.cross"
  std::string kind;          // "self", "cross"
  DType dtype = DType::f32;  // of q and k
  std::int64_t batch = 0, kv_heads = 0, head_size = 0, queries = 0, keys = 0, top = 0;
  std::vector<std::int64_t> heads = {};  // which query heads of the model were recorded, rising
  // The map has row_blocks x column_blocks; query i is in its row floor(i row_blocks / row_range), keys likewise.
  std::int64_t row_blocks = 0, row_range = 0, column_blocks = 0, column_range = 0;
  bool has_distance = false, has_sinks = false, has_tokens = false, has_qk = false, has_key_sizes = false;
  std::vector<RecordedCall> calls = {};
};

// Which part of a head's steps. Not given: all queries, all keys.
struct ATTEND_API StepsOptions {
  std::optional<Range> queries = {}, keys = {};
  // [Tk,Dv] of all the head's keys, floating point: what the weights make of them is wanted too.
  OptionalView values = {};
};

// How a head's weights came about, by the names of docs/json.md's trace. f32; f64 of a layer that computed in f64.
struct ATTEND_API HeadSteps {
  Tensor queries, keys;          // [queries,D], [keys,D]
  Tensor scores, scaled_scores;  // [queries,keys] q.k, and times the layer's scale; of hidden pairs too
  Tensor logits;   // [queries,keys] what the softmax sees: after softcap, biases and ALiBi; -inf where a pair is hidden
  Tensor weights;  // [queries,keys] those of Recording::weights(): e^(logits - lse)
  Tensor lse, entropy;                 // [queries] as they were recorded
  std::optional<Tensor> context = {};  // [queries,Dv] with values: the weights of all keys times theirs
};

// What a file may do without, of layers by their places.
struct ATTEND_API LeftOut {
  std::vector<std::int64_t> qk = {};    // q and k
  std::vector<std::int64_t> maps = {};  // maps of more blocks than `most`: neighbours are merged
  MapSize most = {64, 64};
};

// "18.6" of layer "18.self"; "decoder.3.cross.6" of another name.
ATTEND_API std::string head_name(std::string_view layer, std::int64_t head);

class ATTEND_API Recording {
 public:
  Recording() = default;
  Recording(Recording&&) = default;
  Recording& operator=(Recording&&) = default;

  // Reads the file's header; numbers are read when they are asked for, from the file that was opened then. Throws
  // bad_file, also later, where the file has changed.
  static Recording load(const std::filesystem::path& path);
  // One .safetensors file (docs/inside.md has its parts), replaced in one step.
  void save(const std::filesystem::path& path) const;
  // The bytes of that file, or of a smaller one. Throws bad_value for layers that are not there.
  std::string to_bytes(const LeftOut& left_out = {}) const;
  // The bytes of its tensors, and how many of these q and k take: the file is little larger.
  struct Size {
    std::int64_t all = 0, qk = 0;
  };
  Size size() const;

  std::string model;                             // what was recorded
  Activations activations = Activations::exact;  // ModelInfo::activations of it
  // The tokens of each item of the batch, as text; no items: unknown. decoder_tokens: of an encoder-decoder's decoder.
  std::vector<std::vector<std::string>> tokens, decoder_tokens;
  // The tokens' ids, i64 [B,T], where they are known.
  std::optional<Tensor> ids() const { return find("ids"); }
  std::optional<Tensor> decoder_ids() const { return find("decoder_ids"); }
  void set_ids(const std::optional<View>& ids, const std::optional<View>& decoder_ids = {});

  const std::vector<RecordedLayer>& layers() const { return layers_; }
  // Throws bad_value for a place where there is none.
  const RecordedLayer& at(std::int64_t layer) const;
  // The place of the layer with that name. Throws bad_value.
  std::int64_t layer(std::string_view name) const;
  // The tokens of a layer's queries and keys; no items where they are unknown or of another number.
  const std::vector<std::vector<std::string>>& query_tokens(std::int64_t layer) const;
  const std::vector<std::vector<std::string>>& key_tokens(std::int64_t layer) const;

  // The layer's numbers of a name: one of summary_statistics(), "lse" and "lse_low" [B,H,Tq], "key_sizes" [B,H,Tk], "q"
  // [B,H,Tq,D] or "k" [B,Hkv,Tk,D]. H are the recorded heads. Throws bad_value for another name, and for what was not
  // recorded.
  Tensor numbers(std::int64_t layer, std::string_view name) const;
  // A line for each item and recorded head; HeadScores::head is the model's own number. What a file of version 1 lacks
  // is not known. Throws bad_value for norm where the layer has no key_sizes.
  std::vector<HeadScores> scores(std::int64_t layer, WeighedBy by = WeighedBy::weight) const;
  // Exact weights [queries,keys] of a head, by the model's number; by norm, what is carried. Throws bad_value where q
  // and k were not kept, for ranges that are not within the layer's, for a head or item that is not there, and for norm
  // where the layer has no key_sizes.
  Tensor weights(std::int64_t layer, std::int64_t item, std::int64_t head, const std::optional<Range>& queries = {},
                 const std::optional<Range>& keys = {}, WeighedBy by = WeighedBy::weight) const;
  // What makes a head's weights, in memory that grows with queries x keys. Made again in double of q, k and what the
  // layer's calls were told. Throws as weights(), bad_shape and bad_dtype for values.
  HeadSteps steps(std::int64_t layer, std::int64_t item, std::int64_t head, const StepsOptions& part = {}) const;
  // Of each query, the keys that causality and windows leave to it; what its mask hides is not looked at.
  std::vector<Range> visible_keys(std::int64_t layer) const;
  // The place of a head among the recorded ones. Throws bad_value.
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
  // What weights and steps are asked for: the place of a head among the recorded ones. Throws bad_value.
  std::int64_t check_head(const char* function, std::int64_t layer, std::int64_t item, std::int64_t head) const;

  std::vector<RecordedLayer> layers_;
  TensorMap tensors_;                 // what is in memory
  std::shared_ptr<const File> file_;  // the others
};

// What one call to attention() was.
struct ATTEND_API RecordCall {
  std::string_view layer;  // its name
  // Or "cross", whose keys are not the queries' own: distance, `previous` and `local` exist where an offset is given.
  std::string_view kind = "self";
  // Which of the model's query heads q has; empty: 0, 1, ...
  std::span<const std::int64_t> heads = {};
  // i64 [T] or [B,T]: the ids of all keys that there have been in this layer, for the scores `duplicate` and
  // `induction`; with kind "self".
  OptionalView tokens = {};
  // As SummaryOptions has them, [B,H,n] of the call's last n keys: of those at least that the layer has not got yet.
  // Either all calls of a layer give them, or none.
  OptionalView key_sizes = {};
  Activations activations = Activations::exact;  // of the model; the same in all calls
};

class ATTEND_API Recorder {
 public:
  // Throws bad_value for top < 1, a map without blocks and a budget below 0.
  explicit Recorder(const RecordOptions& options = {});
  Recorder(Recorder&&) noexcept;
  Recorder& operator=(Recorder&&) noexcept;
  ~Recorder();

  // Before the call computes: throws bad_value, and says what would help, where recording it passes the budget.
  void check(const RecordCall& call, const Dims& q, const Dims& k, DType dtype, const AttentionOptions& options) const;
  // q [B,H,Tq,D], k [B,Hkv,Tk,D] and the options of a call to attention(), lse and lse_low [B,H,Tq] as it gave them;
  // query_starts are refused. A layer's first call makes it; a further one is an error, but for a recording that grows.
  // The new rows of a layer of kind "self" follow those that are there: with `offset` query i is level with key
  // i + offset of this call's keys, and so the place of these among all keys is known; without, they begin with the
  // first one. Keys after the last query (a static cache's) are left out if they are hidden. Throws as
  // attention_summary(), as check(), and bad_value for what does not continue. Other layers stay whole then; this one
  // does too, but for an error from within the pass (interrupted, out_of_memory), after which it is not to be added to.
  void add(const RecordCall& call, const View& q, const View& k, const View& lse, const View& lse_low,
           const AttentionOptions& options);

  const RecordOptions& options() const;
  bool has(std::string_view layer) const;  // whether a call to it was added
  std::int64_t bytes() const;              // taken so far
  // What was recorded; the recorder is empty then.
  Recording finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace attend::inline v0
