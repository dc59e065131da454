// One layer of a recording that is being made.
#pragma once

#include <optional>
#include <vector>

#include "attend/recording.h"
#include "attention/head_scores.h"
#include "recording/calls.h"
#include "recording/growing.h"

namespace attend {

// Where a call's queries and keys stand among those of its layer.
struct CallPlace {
  Range queries, keys;
  std::int64_t key_count = 0;               // of the call's keys, those that are recorded
  std::optional<std::int64_t> offset = {};  // in the call
};

// Of a head in the tensor "scores" [B,H,8]: sink, sink_key, previous, duplicate, induction, local, entropy, distance;
// NaN for what is not known.
constexpr std::int64_t score_count = 8;

class LayerRecorder {
 public:
  LayerRecorder(const RecordOptions& options, const RecordCall& call, const Dims& q, const Dims& k, DType dtype,
                const AttentionOptions& attention);

  // Throws bad_value for a call that does not continue this layer, bad_shape for one of another shape.
  CallPlace place(const Dims& q, const Dims& k, const AttentionOptions& options) const;
  // Taken once a call at that place has been added.
  std::int64_t bytes_with(const CallPlace& place, const AttentionOptions& options) const;
  std::int64_t bytes() const { return bytes_; }
  const RecordedLayer& layer() const { return layer_; }

  void add(const CallPlace& place, const View& q, const View& k, const View& lse, const View& lse_low,
           const AttentionOptions& options, const std::optional<View>& tokens);

  // The layer, and its numbers by "PREFIX.name".
  RecordedLayer finish(const std::string& prefix, TensorMap& to);

 private:
  void take_rows(SummaryProblem& x, AttentionSummary& summary, const CallPlace& place);
  void take_keys(const AttentionSummary& summary, const View& uniform, const View& seen_by, const CallPlace& place);
  void take_probes(const SummaryProblem& x, const View& seen);
  void keep(const CallPlace& place, const View& q, const View& k, const AttentionOptions& options, double scale);
  void take_seeing(const View& seen, const CallPlace& place);
  void make_room(const CallPlace& place, const AttentionOptions& attention);
  void double_rows();
  void double_columns();
  void divide_map();
  Tensor scores();

  RecordOptions options_;
  RecordedLayer layer_;
  std::int64_t H_ = 0, calls_ = 0, bytes_ = 0;
  std::int64_t level_ = 0;  // query 0 is level with key 0 + level_
  DType numbers_dtype_ = DType::f32;
  Growing lse_, lse_low_, top_keys_, top_weights_, entropy_, distance_, sink_weights_, seen_;  // [B,H,Tq,...]
  Growing received_, uniform_, seen_by_;                                                       // [B,H,Tk], f64
  Growing q_, k_;
  Tensor lift_;           // of the first call
  Tensor map_, map_max_;  // [B,H,R,C]; sums where the recording grows
  Tensor seeing_;         // [B,H,R] f64: how many queries of a map's row see a key
  std::vector<kernels::Probes> probes_;
  std::vector<double> with_previous_;
  std::vector<KeptCall> kept_;
};

}  // namespace attend
