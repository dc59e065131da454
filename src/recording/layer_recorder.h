// One layer of a recording that is being made.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "attend/recording.h"
#include "recording/calls.h"
#include "recording/growing.h"
#include "summary/head_scores.h"

namespace attend::inline v1 {

// Where a call's queries and keys stand among those of its layer.
struct CallPlace {
  Range queries, keys;
  std::int64_t key_count = 0;               // of the call's keys, those that are recorded
  std::optional<std::int64_t> offset = {};  // in the call
};

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
           const AttentionOptions& options, const RecordCall& call);

  // Once the last call was added. It may be interrupted, and is then called again: nothing is lost.
  void close();
  // The layer that was closed, and its numbers by "PREFIX.name".
  RecordedLayer finish(const std::string& prefix, TensorMap& to);

 private:
  void take_rows(AttentionSummary& summary, const CallPlace& place);
  void take_keys(const AttentionSummary& summary, const View& uniform, const View& seen_by, const CallPlace& place);
  void take_probes(const SummaryProblem& x, ProbeTensors probes, const std::optional<View>& tokens,
                   const CallPlace& place);
  void take_sink(const SummaryProblem& x, const CallPlace& place);
  Tensor sizes_of(const CallPlace& place, std::int64_t keys, const std::optional<View>& given) const;
  HeadSums sums(WeighedBy by) const;
  void keep(const CallPlace& place, const View& q, const View& k, const AttentionOptions& options, double scale);
  void take_seeing(const View& seen, const CallPlace& place);
  void make_room(const CallPlace& place, const AttentionOptions& attention);
  void double_rows();
  void double_columns();
  void cut_maps();
  Tensor scores(const PairWeight& weight, WeighedBy by) const;
  void put_carried(const std::function<void(std::string_view, Tensor)>& put);
  double sink_weight(std::int64_t batch, std::int64_t head, std::int64_t query, std::int64_t key) const;

  RecordOptions options_;
  RecordedLayer layer_;
  std::int64_t H_ = 0, calls_ = 0, bytes_ = 0;
  std::int64_t level_ = 0;  // query 0 is level with key 0 + level_
  DType numbers_dtype_ = DType::f32;
  Growing lse_, lse_low_, seen_;              // [B,H,Tq]
  std::map<std::string_view, Growing> rows_;  // the statistics [B,H,Tq,...], by their names
  Growing received_, uniform_, seen_by_;      // [B,H,Tk], f64
  Growing q_, k_;
  Growing key_sizes_;  // [B,H,Tk]
  Tensor lift_;        // of the first call
  struct BlockMap {
    Tensor map, most;  // [B,H,R,C]; sums where the recording grows
  };
  BlockMap map_, carried_map_;  // where pairs are shown, map_ has no `most`
  Tensor seeing_;               // [B,H,R] f64: how many queries of a map's row see a key
  Growing probe_weights_, probe_keys_, probe_carried_, probe_sizes_;  // [B,H,Tq,kinds]
  // Where the recording grows: the keys that were the heads' sinks in the first call, and their weights [B,H,Tq].
  std::vector<std::int64_t> sink_keys_;
  Growing sink_column_;
  Tensor tokens_;                   // the ids of all keys, where they are known
  Tensor scores_, carried_scores_;  // of a recording that does not grow, once its call has come
  std::vector<KeptCall> kept_;
};

}  // namespace attend::inline v1
