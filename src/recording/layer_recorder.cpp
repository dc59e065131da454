#include "recording/layer_recorder.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "attention/compute.h"
#include "attention/positions.h"
#include "core/divide_up.h"
#include "core/message.h"
#include "core/tensor_memory.h"
#include "recording/recording.h"

namespace attend::inline v1 {

namespace {

constexpr const char* layer_recorder_function = "Recorder::add";

// The smallest of 1, 2, 4, ... that cuts `size` into at most `blocks`.
std::int64_t block_size(std::int64_t size, std::int64_t blocks) {
  std::int64_t block = 1;
  while (block * blocks < size) block *= 2;
  return block;
}

// The call's keys, and what its mask and bias say of them, up to key_count.
View first_keys(const View& x, int axis, std::int64_t count) {
  return x.size(axis) > count ? x.slice(axis, 0, count) : x;
}

bool hides_nothing(const AttentionOptions& options) {
  const auto tensors = tensor_options();
  const Window window = visible_window(options);
  return window.left < 0 && window.right < 0 &&
         std::none_of(tensors.begin(), tensors.end(), [&](const TensorOption& x) { return options.*x.value; });
}

bool all_hidden(const View& mask, std::int64_t from) {
  if (mask.size(-1) <= from) return false;
  const Tensor later = mask.slice(-1, from, mask.size(-1)).clone();
  const bool* sees = later.data<bool>();
  return std::none_of(sees, sees + later.count(), [](bool x) { return x; });
}

}  // namespace

LayerRecorder::LayerRecorder(const RecordOptions& options, const RecordCall& call, const Dims& q, const Dims& k,
                             DType dtype, const AttentionOptions& attention)
    : options_(options), H_(q[1]) {
  layer_.name = call.layer, layer_.kind = call.kind, layer_.dtype = dtype;
  layer_.batch = q[0], layer_.kv_heads = k[1], layer_.head_size = q[3], layer_.top = options.top;
  layer_.has_sinks = attention.sinks.has_value(), layer_.has_tokens = call.tokens.has_value();
  layer_.has_qk = options.keep_qk, layer_.has_key_sizes = call.key_sizes.has_value();
  layer_.heads.assign(call.heads.begin(), call.heads.end());
  if (layer_.heads.empty()) {
    layer_.heads.resize(static_cast<std::size_t>(H_));
    std::iota(layer_.heads.begin(), layer_.heads.end(), 0);
  }
  if (attention.offset && call.kind == "self") level_ = attention.offset->resolve(q[2], k[2]);
  numbers_dtype_ = statistics_dtype(dtype);
  const Dims rows{q[0], q[1], 0};
  const auto make = [&](const Dims& shape, DType of) { return Growing(shape, of, options.grows); };
  lse_ = make(rows, numbers_dtype_), lse_low_ = make(rows, numbers_dtype_);
  seen_ = make(rows, numbers_dtype_);
  for (const SummaryStatistic& statistic : summary_statistics()) {
    const bool top = statistic.shape == SummaryStatistic::Shape::top;
    if (!top && statistic.shape != SummaryStatistic::Shape::rows) continue;
    if (statistic.needs == SummaryStatistic::Needs::sinks && !layer_.has_sinks) continue;
    if (statistic.needs == SummaryStatistic::Needs::key_sizes && !layer_.has_key_sizes) continue;
    const DType of = statistic.is_index() ? DType::i64 : numbers_dtype_;
    rows_[statistic.name] = make(top ? Dims{q[0], q[1], 0, options.top} : rows, of);
  }
  const Dims kinds{q[0], q[1], 0, kernels::Probes::kinds};
  for (Growing* probes : {&probe_weights_, &probe_keys_, &probe_carried_, &probe_sizes_})
    *probes = make(kinds, numbers_dtype_);
  key_sizes_ = make(rows, numbers_dtype_);
  sink_column_ = make(rows, DType::f64);
  received_ = make(rows, DType::f64), uniform_ = make(rows, DType::f64), seen_by_ = make(rows, DType::f64);
  q_ = make({q[0], q[1], 0, q[3]}, dtype), k_ = make({k[0], k[1], 0, k[3]}, dtype);
  layer_.row_blocks = options.grows ? options.map.rows : std::min(options.map.rows, q[2]);
  layer_.column_blocks = options.grows ? options.map.columns : std::min(options.map.columns, k[2]);
  layer_.row_range = layer_.row_blocks, layer_.column_range = layer_.column_blocks;
}

// ---- Where a call stands ----

CallPlace LayerRecorder::place(const Dims& q, const Dims& k, const AttentionOptions& options) const {
  const Dims rows{q[0], q[1], q[3]}, keys{k[0], k[1], k[3]};
  const Dims own_rows{layer_.batch, H_, layer_.head_size}, own_keys{layer_.batch, layer_.kv_heads, layer_.head_size};
  if (rows != own_rows || keys != own_keys) {
    fail(ErrorCode::bad_shape, layer_recorder_function,
         "layer {} continues with q {} and k {}, expected {} items, {} and {} heads of {}", layer_.name, q, k,
         layer_.batch, H_, layer_.kv_heads, layer_.head_size);
  }
  const std::int64_t before = layer_.queries;
  CallPlace place{{before, before + q[2]}, {0, k[2]}, k[2], {}};
  if (options.offset) place.offset = options.offset->resolve(q[2], k[2]);
  if (layer_.kind != "self" || (!options.offset && !options_.grows && q[2] != k[2])) return place;
  const std::int64_t level = before + level_;  // of the first query
  if (!place.offset) place.offset = level;
  place.keys.begin = level - *place.offset;
  const std::int64_t end = options_.grows ? level + q[2] : place.keys.begin + k[2];
  place.keys.end = std::min(place.keys.begin + k[2], end), place.key_count = place.keys.end - place.keys.begin;
  if (place.keys.begin < 0 || place.keys.begin > layer_.keys || place.keys.end < layer_.keys) {
    fail(ErrorCode::bad_value, layer_recorder_function,
         "layer {} has {} queries and {} keys; further ones have keys {} to {}: they do not continue it", layer_.name,
         before, layer_.keys, place.keys.begin, place.keys.begin + k[2]);
  }
  if (place.key_count < k[2] && visible_window(options).right != 0 &&
      !(options.mask && all_hidden(*options.mask, place.key_count)) && !options.key_lengths) {
    fail(ErrorCode::bad_value, layer_recorder_function, "layer {}: keys after the last query's own are visible",
         layer_.name);
  }
  return place;
}

std::int64_t LayerRecorder::bytes_with(const CallPlace& place, const AttentionOptions& options) const {
  const std::int64_t Tq = place.queries.end, Tk = std::max(layer_.keys, place.keys.end);
  std::int64_t bytes = 0;
  for (const Growing* x : {&lse_, &lse_low_, &seen_}) bytes += x->bytes_for(Tq);
  for (const auto& [name, rows] : rows_) bytes += rows.bytes_for(Tq);
  if (options_.grows) {
    for (const Growing* x : {&probe_weights_, &probe_keys_, &sink_column_}) bytes += x->bytes_for(Tq);
    if (layer_.has_key_sizes) bytes += probe_carried_.bytes_for(Tq) + probe_sizes_.bytes_for(Tq);
  }
  if (layer_.has_key_sizes) bytes += key_sizes_.bytes_for(Tk);
  for (const Growing* x : {&received_, &uniform_, &seen_by_}) bytes += x->bytes_for(Tk);
  if (options_.keep_qk) bytes += q_.bytes_for(Tq) + k_.bytes_for(Tk) + kept_bytes(options);
  for (const KeptCall& call : kept_) bytes += bytes_of(call);
  const std::int64_t rows = layer_.batch * H_ * layer_.row_blocks;
  const bool one_map = !options_.grows && layer_.row_blocks == Tq && layer_.column_blocks == Tk;
  const std::int64_t maps = (one_map ? 1 : 2) + (layer_.has_key_sizes ? 2 : 0);
  return bytes + rows * (8 + maps * layer_.column_blocks * size_of(numbers_dtype_));
}

// ---- A call ----

void LayerRecorder::add(const CallPlace& place, const View& q, const View& all_keys, const View& lse,
                        const View& lse_low, const AttentionOptions& given, const RecordCall& call) {
  AttentionOptions options = given;
  if (place.offset) options.offset = Offset(*place.offset);
  const View k = first_keys(all_keys, 2, place.key_count);
  for (const TensorOption& option : tensor_options()) {
    std::optional<View>& x = options.*option.value;
    if (x && option.shape == TensorOption::Shape::pairs) x = first_keys(*x, x->rank() - 1, place.key_count);
  }
  SummaryProblem x = SummaryProblem::check(layer_recorder_function, q, k, lse, lse_low, options);
  std::optional<Tensor> sizes;
  if (layer_.has_key_sizes || call.key_sizes) sizes = sizes_of(place, all_keys.size(2), call.key_sizes);
  x.take_key_sizes(layer_recorder_function, sizes ? std::optional(sizes->view()) : std::nullopt);
  x.want_top(layer_recorder_function, options_.top);
  layer_.has_tokens &= call.tokens.has_value();
  std::optional<View> ids;
  if (layer_.has_tokens) ids = call.tokens->slice(-1, place.keys.begin, place.keys.end);
  ProbeTensors probes = want_probes(layer_recorder_function, x, ids);
  make_room(place, given);

  const Dims rows{layer_.batch, H_, x.forward.Tq}, keys{layer_.batch, H_, x.forward.Tk};
  const auto zeros = [&](const Dims& shape) { return Tensor(shape, numbers_dtype_); };
  AttentionSummary s = x.want_rows_and_keys();
  if (!s.distance) s.distance = zeros(rows);  // a later call may know it
  Tensor seen = zeros(rows), uniform = zeros(keys), seen_by = zeros(keys);
  x.to.uniform = uniform.view(), x.to.seen = seen.view(), x.to.seen_by = seen_by.view();
  if (shows_pairs(layer_) && !options_.grows) {
    x.to.weights = map_.map.view();
  } else {
    x.to.map = map_.map.view(), x.to.map_max = map_.most.view();
  }
  if (sizes) x.to.carried_map = carried_map_.map.view(), x.to.carried_map_max = carried_map_.most.view();
  if (options_.grows) x.grid = {-place.queries.begin, layer_.row_range, -place.keys.begin, layer_.column_range};
  run_summary(x, make_summary_schedule(x));
  mark_nan_rows(x.to);

  // As many queries as keys of another sequence are chance: they are level with nothing unless somebody says so.
  const bool level = layer_.kind == "self" || given.offset;
  layer_.has_distance = x.has_distance && level && (calls_ == 0 || layer_.has_distance);
  take_rows(s, place);
  lse_.append(lse), lse_low_.append(lse_low);
  take_keys(s, uniform, seen_by, place);
  if (sizes) key_sizes_.append(sizes->view().slice(2, key_sizes_.size() - place.keys.begin, place.key_count));
  if (options_.grows) take_seeing(seen, place);
  seen_.append(std::move(seen));
  keep(place, q, k, options, x.forward.common.scale);
  layer_.queries = place.queries.end, layer_.keys = place.keys.end, ++calls_;
  if (calls_ == 1) lift_ = std::move(s.lift);
  take_probes(x, std::move(probes), call.tokens, place);
  bytes_ = bytes_with({{0, layer_.queries}, {0, layer_.keys}, 0, {}}, {});
}

// Of the call's keys [B,H,key_count]: those that earlier calls brought, and then what is given.
Tensor LayerRecorder::sizes_of(const CallPlace& place, std::int64_t keys, const std::optional<View>& given) const {
  const std::int64_t known = std::max<std::int64_t>(0, key_sizes_.size() - place.keys.begin);
  const std::int64_t last = given && given->rank() == 3 ? given->size(2) : 0;
  if (!given || !layer_.has_key_sizes || given->dtype() != numbers_dtype_ ||
      given->shape() != Dims{layer_.batch, H_, last} || last > keys || last < keys - known) {
    fail(ErrorCode::bad_shape, layer_recorder_function,
         "layer {}: key_sizes are {}, expected {}: all calls of a layer give them, or none", layer_.name,
         given ? fmt::format("{} {}", given->dtype(), given->shape()) : "not given",
         layer_.has_key_sizes ? fmt::format("{} [{},{},{} to {}]", numbers_dtype_, layer_.batch, H_,
                                            std::max<std::int64_t>(0, keys - known), keys)
                              : "none");
  }
  Tensor all = Tensor::uninitialized({layer_.batch, H_, place.key_count}, numbers_dtype_);
  const std::int64_t from = std::min(keys - last, place.key_count);
  if (from > 0)
    all.view().slice(2, 0, from).copy_from(key_sizes_.view().slice(2, place.keys.begin, place.keys.begin + from));
  if (from < place.key_count)
    all.view().slice(2, from, place.key_count).copy_from(given->slice(2, 0, place.key_count - from));
  return all;
}

void LayerRecorder::take_rows(AttentionSummary& s, const CallPlace& place) {
  for (Tensor* top : {&s.top_keys, s.carried_top_keys ? &*s.carried_top_keys : nullptr}) {
    auto* keys = top ? top->data<std::int64_t>() : nullptr;
    const std::int64_t count = top && place.keys.begin > 0 ? top->count() : 0;
    for (std::int64_t n = 0; n < count; ++n) keys[n] += keys[n] >= 0 ? place.keys.begin : 0;
  }
  for (auto& [name, all] : rows_) {
    const SummaryStatistic& statistic = *std::ranges::find(summary_statistics(), name, &SummaryStatistic::name);
    if (statistic.value)
      all.append(std::move(s.*statistic.value));
    else if (s.*statistic.optional)
      all.append(std::move(*(s.*statistic.optional)));
  }
}

// Scores are made at once where no rows can follow: what they are made of takes half as much as top keys do.
void LayerRecorder::take_probes(const SummaryProblem& x, ProbeTensors probes, const std::optional<View>& tokens,
                                const CallPlace& place) {
  if (calls_ == 1 && layer_.kind == "cross") level_ = place.offset.value_or(0);
  layer_.has_tokens &= layer_.has_distance;
  tokens_ = layer_.has_tokens ? tokens->slice(-1, 0, layer_.keys).clone() : Tensor();
  if (x.has_distance) probe_weights_.append(std::move(probes.weights)), probe_keys_.append(std::move(probes.keys));
  if (x.has_distance && layer_.has_key_sizes)
    probe_carried_.append(std::move(probes.carried)), probe_sizes_.append(std::move(probes.sizes));
  if (options_.grows) return take_sink(x, place);
  scores_ = scores(pair_weights(x), WeighedBy::weight);
  if (layer_.has_key_sizes) carried_scores_ = scores(pair_weights(x), WeighedBy::norm);
  if (!x.has_distance) return;
  for (Growing* taken : {&probe_weights_, &probe_keys_, &probe_carried_, &probe_sizes_})
    if (taken->size() > 0) taken->take();
}

// The weights that rows give to what may be their sink: later no query will be there to make them of. Another key may
// turn out to be the sink; most rows have that among their top keys.
void LayerRecorder::take_sink(const SummaryProblem& x, const CallPlace& place) {
  if (sink_keys_.empty()) sink_keys_ = sink_keys(sums(WeighedBy::weight));
  const std::int64_t Tq = x.forward.Tq;
  Tensor column({layer_.batch, H_, Tq}, DType::f64);
  const PairWeight weight = pair_weights(x);
  for (std::int64_t at = 0; at < layer_.batch * H_; ++at) {
    const std::int64_t key = sink_keys_[static_cast<std::size_t>(at)] - place.keys.begin;
    for (std::int64_t i = 0; i < Tq; ++i) {
      // A window's cache no longer has it.
      column.data<double>()[at * Tq + i] = key < 0 ? hidden_pair : weight(at / H_, at % H_, i, key);
    }
  }
  sink_column_.append(column.view());
}

double LayerRecorder::sink_weight(std::int64_t batch, std::int64_t head, std::int64_t query, std::int64_t key) const {
  const std::int64_t at = batch * H_ + head;
  if (sink_keys_[static_cast<std::size_t>(at)] != key) return NAN;
  return sink_column_.view().item({batch, head, query});
}

void LayerRecorder::keep(const CallPlace& place, const View& q, const View& k, const AttentionOptions& options,
                         double scale) {
  KeptCall kept = keep_call(options, place.queries, place.keys, scale, options_.keep_qk);
  if (options_.keep_qk) {
    q_.append(q);
    k_.append(k.slice(2, k_.size() - place.keys.begin, place.key_count));
  }
  if (kept_.empty() || !extend(kept_.back(), kept)) kept_.push_back(std::move(kept));
}

void LayerRecorder::take_keys(const AttentionSummary& s, const View& uniform, const View& seen_by,
                              const CallPlace& place) {
  const auto add = [&](Growing& to, const View& from) {
    to.resize(place.keys.end);
    const Tensor more = from.to(DType::f64);
    for (std::int64_t b = 0; b < layer_.batch; ++b) {
      for (std::int64_t h = 0; h < H_; ++h) {
        double* sums = to.view().select(0, b).select(0, h).data<double>() + place.keys.begin;
        const double* own = more.data<double>() + (b * H_ + h) * place.key_count;
        for (std::int64_t j = 0; j < place.key_count; ++j) sums[j] += own[j];
      }
    }
  };
  add(received_, s.received), add(uniform_, uniform), add(seen_by_, seen_by);
}

// ---- The map ----

void LayerRecorder::make_room(const CallPlace& place, const AttentionOptions& attention) {
  const bool first = calls_ == 0;
  const std::int64_t Tq = place.queries.end, Tk = std::max(layer_.keys, place.keys.end);
  if (first) {
    layer_.row_range = options_.grows ? layer_.row_blocks * block_size(Tq, layer_.row_blocks) : Tq;
    layer_.column_range = options_.grows ? layer_.column_blocks * block_size(Tk, layer_.column_blocks) : Tk;
    const Dims shape{layer_.batch, H_, layer_.row_blocks, layer_.column_blocks};
    // Where all is visible, weights are written to all of it.
    const bool written = !options_.grows && shows_pairs(layer_) && hides_nothing(attention);
    map_.map = written ? Tensor::uninitialized(shape, numbers_dtype_) : filled_tensor(shape, numbers_dtype_, 0);
    if (options_.grows || !shows_pairs(layer_)) map_.most = filled_tensor(shape, numbers_dtype_, 0);
    if (layer_.has_key_sizes)
      carried_map_ = {filled_tensor(shape, numbers_dtype_, 0), filled_tensor(shape, numbers_dtype_, 0)};
    seeing_ = Tensor({layer_.batch, H_, layer_.row_blocks}, DType::f64);
  }
  while (layer_.row_range < Tq) double_rows();
  while (layer_.column_range < Tk) double_columns();
}

namespace {

// Pairs of neighbours along an axis of 3 become one by `join`; zeros follow.
template <class T, class Join>
void halve(T* x, std::int64_t outer, std::int64_t size, std::int64_t inner, Join join) {
  for (std::int64_t o = 0; o < outer; ++o) {
    T* at = x + o * size * inner;
    for (std::int64_t n = 0; n < size; ++n) {
      for (std::int64_t i = 0; i < inner; ++i) {
        const T a = 2 * n < size ? at[2 * n * inner + i] : T{0};
        const T b = 2 * n + 1 < size ? at[(2 * n + 1) * inner + i] : T{0};
        at[n * inner + i] = join(a, b);
      }
    }
  }
}

void halve_map(Tensor& map, Tensor& most, std::int64_t outer, std::int64_t size, std::int64_t inner) {
  const auto both = [&](auto* sums, auto* largest) {
    using T = std::remove_pointer_t<decltype(sums)>;
    halve(sums, outer, size, inner, [](T a, T b) { return a + b; });
    halve(largest, outer, size, inner, [](T a, T b) { return std::max(a, b); });
  };
  if (map.dtype() == DType::f64) return both(map.data<double>(), most.data<double>());
  both(map.data<float>(), most.data<float>());
}

}  // namespace

void LayerRecorder::double_rows() {
  const std::int64_t heads = layer_.batch * H_;
  for (BlockMap* of : {&map_, &carried_map_})
    if (of->map.count() > 0) halve_map(of->map, of->most, heads, layer_.row_blocks, layer_.column_blocks);
  halve(seeing_.data<double>(), heads, layer_.row_blocks, 1, [](double a, double b) { return a + b; });
  layer_.row_range *= 2;
}

void LayerRecorder::double_columns() {
  const std::int64_t rows = layer_.batch * H_ * layer_.row_blocks;
  for (BlockMap* of : {&map_, &carried_map_})
    if (of->map.count() > 0) halve_map(of->map, of->most, rows, layer_.column_blocks, 1);
  layer_.column_range *= 2;
}

void LayerRecorder::take_seeing(const View& seen, const CallPlace& place) {
  const Tensor wide = seen.to(DType::f64);
  const double* sees = wide.data<double>();
  double* seeing = seeing_.data<double>();
  const std::int64_t Tq = place.queries.end - place.queries.begin;
  for (std::int64_t at = 0; at < layer_.batch * H_; ++at) {
    for (std::int64_t i = 0; i < Tq; ++i) {
      const std::int64_t row = (place.queries.begin + i) * layer_.row_blocks / layer_.row_range;
      seeing[at * layer_.row_blocks + row] += sees[at * Tq + i] > 0;
    }
  }
}

// ---- The end ----

// Sums become means, and what no query or key has come to is cut off.
void LayerRecorder::cut_maps() {
  const std::int64_t R = divide_up(layer_.queries * layer_.row_blocks, std::max<std::int64_t>(1, layer_.row_range));
  const std::int64_t C = divide_up(layer_.keys * layer_.column_blocks, std::max<std::int64_t>(1, layer_.column_range));
  const double* seeing = seeing_.data<double>();
  const std::int64_t columns = layer_.column_blocks, rows = seeing_.count();
  for (BlockMap* of : {&map_, &carried_map_}) {
    if (of->map.count() == 0) continue;
    Tensor means = of->map.view().to(DType::f64);
    double* cells = means.data<double>();
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t c = 0; c < columns; ++c) cells[row * columns + c] /= std::max(1.0, seeing[row]);
    }
    of->map = means.view().slice(2, 0, R).slice(3, 0, C).to(numbers_dtype_);
    of->most = of->most.view().slice(2, 0, R).slice(3, 0, C).clone();
  }
  layer_.row_range = R * (layer_.row_range / layer_.row_blocks), layer_.row_blocks = R;
  layer_.column_range = C * (layer_.column_range / layer_.column_blocks), layer_.column_blocks = C;
}

HeadSums LayerRecorder::sums(WeighedBy by) const {
  HeadSums sums{seen_.view(),
                rows_.at("entropy").view(),
                rows_.at("distance").view(),
                received_.view(),
                seen_by_.view(),
                uniform_.view(),
                rows_.at("top_keys").view(),
                rows_.at("top_weights").view(),
                {},
                {},
                {},
                layer_.has_distance,
                std::vector<std::int64_t>(static_cast<std::size_t>(layer_.batch), level_),
                {}};
  if (layer_.has_distance) sums.probe_weights = probe_weights_.view(), sums.probe_keys = probe_keys_.view();
  if (layer_.has_sinks) sums.sink_weights = rows_.at("sink_weights").view();
  if (layer_.has_tokens) sums.tokens = tokens_;
  if (by == WeighedBy::weight) return sums;
  sums.key_sizes = key_sizes_.view();
  if (layer_.has_distance) sums.probe_carried = probe_carried_.view(), sums.probe_sizes = probe_sizes_.view();
  return sums;
}

Tensor LayerRecorder::scores(const PairWeight& weight, WeighedBy by) const {
  Tensor table({layer_.batch, H_, score_count}, DType::f64);
  double* to = table.data<double>();
  for (const HeadScores& head : scores_of(sums(by), weight)) write_scores(head, to), to += score_count;
  return table;
}

void LayerRecorder::put_carried(const std::function<void(std::string_view, Tensor)>& put) {
  put("carried_scores", std::move(carried_scores_));
  if (!shows_pairs(layer_)) put("carried_map_max", std::move(carried_map_.most));
  put("carried_map", std::move(carried_map_.map));
  Tensor carried = received_.view().clone();
  const Tensor sizes = key_sizes_.view().to(DType::f64);
  for (std::int64_t n = 0; n < carried.count(); ++n) {
    double& sum = carried.data<double>()[n];
    sum = sum == 0 ? 0 : sum * sizes.data<double>()[n];
  }
  put("carried_received", carried.view().to(numbers_dtype_));
  put("key_sizes", key_sizes_.take());
}

void LayerRecorder::close() {
  if (!options_.grows) return;
  const PairWeight weight = [this](auto b, auto h, auto i, auto j) { return sink_weight(b, h, i, j); };
  scores_ = scores(weight, WeighedBy::weight);
  if (layer_.has_key_sizes) carried_scores_ = scores(weight, WeighedBy::norm);
}

RecordedLayer LayerRecorder::finish(const std::string& prefix, TensorMap& to) {
  const auto put = [&](std::string_view name, Tensor tensor) {
    to.emplace(fmt::format("{}.{}", prefix, name), std::move(tensor));
  };
  if (options_.grows) cut_maps();
  put("scores", std::move(scores_));
  if (!shows_pairs(layer_)) put("map_max", std::move(map_.most));
  put("map", std::move(map_.map));
  if (layer_.has_key_sizes) put_carried(put);
  if (calls_ == 1) {
    put("lift", std::move(lift_));
  } else {
    Tensor lift(received_.view().shape(), DType::f64);
    const Tensor received = received_.view().clone(), uniform = uniform_.view().clone();
    for (std::int64_t n = 0; n < lift.count(); ++n) {
      const double share = uniform.data<double>()[n];
      lift.data<double>()[n] = share > 0 ? received.data<double>()[n] / share : 0;
    }
    put("lift", lift.view().to(numbers_dtype_));
  }
  put("received", received_.view().to(numbers_dtype_));
  put("lse", lse_.take()), put("lse_low", lse_low_.take());
  for (const SummaryStatistic& statistic : summary_statistics()) {
    const auto rows = rows_.find(statistic.name);
    if (rows != rows_.end() && has_statistic(layer_, statistic)) put(statistic.name, rows->second.take());
  }
  if (options_.keep_qk) put("q", q_.take()), put("k", k_.take());
  for (std::size_t n = 0; n < kept_.size(); ++n) {
    for (auto& [name, tensor] : kept_[n].tensors) {
      to.emplace(fmt::format("{}.calls.{}.{}", prefix, n, name), std::move(tensor));
    }
    layer_.calls.push_back(std::move(kept_[n].call));
  }
  return std::move(layer_);
}

}  // namespace attend::inline v1
