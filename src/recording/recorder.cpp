#include <algorithm>
#include <map>

#include "attend/recording.h"
#include "attention/compute.h"
#include "core/message.h"
#include "core/utf8.h"
#include "io/file.h"
#include "recording/layer_recorder.h"

namespace attend::inline v1 {

namespace {

constexpr const char* recorder_function = "Recorder::add";

std::string mebibytes(std::int64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

void check_call(const RecordCall& call, const Dims& q, const Dims& k, const AttentionOptions& options) {
  if (q.rank() != 4 || k.rank() != 4) {
    fail(ErrorCode::bad_shape, recorder_function, "q has shape {} and k {}, expected [B,H,Tq,D] and [B,Hkv,Tk,D]", q,
         k);
  }
  if (options.query_starts) {
    fail(ErrorCode::bad_value, recorder_function,
         "query_starts are given: a recording has batches, so pad the sequences");
  }
  if (call.kind != "self" && call.kind != "cross") {
    fail(ErrorCode::bad_value, recorder_function, "kind is {}, expected self or cross", quote(call.kind));
  }
  if (call.layer.empty()) fail(ErrorCode::bad_value, recorder_function, "the layer's name is empty");
  decode_utf8(call.layer, {recorder_function, "the layer's name"});
  if (call.tokens && call.kind != "self") {
    fail(ErrorCode::bad_value, recorder_function, "tokens are given for a layer whose keys are not the queries' own");
  }
  const auto& heads = call.heads;
  const bool rising = std::adjacent_find(heads.begin(), heads.end(), std::greater_equal()) == heads.end();
  if (!heads.empty() && (std::ssize(heads) != q[1] || heads.front() < 0 || !rising)) {
    fail(ErrorCode::bad_value, recorder_function,
         "heads are {} numbers for {} query heads, expected as many, rising from 0 on", heads.size(), q[1]);
  }
  const bool bottom_right = options.offset && options.offset->resolve(0, 1) != options.offset->resolve(0, 0);
  if (bottom_right && options.key_lengths) {
    fail(ErrorCode::bad_value, recorder_function, "offset is bottom_right with key_lengths, expected a number");
  }
}

}  // namespace

struct Recorder::State {
  RecordOptions options;
  std::vector<LayerRecorder> layers = {};
  std::map<std::string, std::size_t, std::less<>> places = {};  // of the names in layers
  std::int64_t bytes = 0;
  Activations activations = Activations::exact;  // of the layers' calls

  LayerRecorder* find(std::string_view name) {
    const auto found = places.find(name);
    return found == places.end() ? nullptr : &layers[found->second];
  }

  // layer: as it is, or new.
  void check(const RecordCall& call, const LayerRecorder& layer, const Dims& q, const Dims& k,
             const AttentionOptions& attention) const {
    const std::int64_t more = layer.bytes_with(layer.place(q, k, attention), attention) - layer.bytes();
    if (bytes + more > options.budget) {
      fail(
          ErrorCode::bad_value, recorder_function,
          "layer {} [{},{},{}] needs {} more, and {} of the budget of {} are taken by {} layers: expected fewer layers "
          "or heads, a smaller top or map, {}a shorter text, or a larger budget",
          quote(call.layer), q[0], q[1], q[2], mebibytes(more), mebibytes(bytes), mebibytes(options.budget),
          layers.size(), options.keep_qk ? "not to keep q and k, " : "");
    }
  }
};

Recorder::Recorder(const RecordOptions& options) : state_(new State{options}) {
  constexpr const char* where = "Recorder";
  if (options.top < 1) fail(ErrorCode::bad_value, where, "top is {}, expected at least 1", options.top);
  if (options.map.rows < 1 || options.map.columns < 1) {
    fail(ErrorCode::bad_value, where, "map of {} x {} blocks, expected at least 1 x 1", options.map.rows,
         options.map.columns);
  }
  if (options.budget < 0) fail(ErrorCode::bad_value, where, "budget is {} bytes, expected 0 or more", options.budget);
}
Recorder::Recorder(Recorder&&) noexcept = default;
Recorder& Recorder::operator=(Recorder&&) noexcept = default;
Recorder::~Recorder() = default;

void Recorder::check(const RecordCall& call, const Dims& q, const Dims& k, DType dtype,
                     const AttentionOptions& options) const {
  check_call(call, q, k, options);
  if (!state_->layers.empty() && call.activations != state_->activations)
    fail(ErrorCode::bad_value, recorder_function, "activations are {}, and the layers that are there have {}",
         name_of(call.activations), name_of(state_->activations));
  const LayerRecorder* layer = state_->find(call.layer);
  if (layer && !state_->options.grows) {
    fail(ErrorCode::bad_value, recorder_function, "layer {} is there already: a recording is of one forward pass",
         quote(call.layer));
  }
  if (layer) {
    state_->check(call, *layer, q, k, options);
  } else {
    state_->check(call, LayerRecorder(state_->options, call, q, k, dtype, options), q, k, options);
  }
}

void Recorder::add(const RecordCall& call, const View& q, const View& k, const View& lse, const View& lse_low,
                   const AttentionOptions& options) {
  with_memory(recorder_function, q, k, [&] {
    check(call, q.shape(), k.shape(), q.dtype(), options);
    LayerRecorder* layer = state_->find(call.layer);
    std::optional<LayerRecorder> made;
    if (!layer) layer = &made.emplace(state_->options, call, q.shape(), k.shape(), q.dtype(), options);
    const std::int64_t before = layer->bytes();
    layer->add(layer->place(q.shape(), k.shape(), options), q, k, lse, lse_low, options, call);
    state_->bytes += layer->bytes() - before;
    state_->activations = call.activations;
    if (!made) return;
    state_->places.emplace(call.layer, state_->layers.size());
    state_->layers.push_back(std::move(*made));
  });
}

const RecordOptions& Recorder::options() const {
  return state_->options;
}

bool Recorder::has(std::string_view layer) const {
  return state_->find(layer) != nullptr;
}

std::int64_t Recorder::bytes() const {
  return state_->bytes;
}

Recording Recorder::finish() {
  Recording recording;
  const RecordOptions options = state_->options;
  recording.activations = state_->activations;
  for (LayerRecorder& layer : state_->layers) layer.close();
  for (std::size_t n = 0; n < state_->layers.size(); ++n) {
    recording.layers_.push_back(state_->layers[n].finish(fmt::format("layers.{}", n), recording.tensors_));
  }
  *state_ = State{options};
  return recording;
}

}  // namespace attend::inline v1
