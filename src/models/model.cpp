#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "core/message.h"
#include "core/tensor_memory.h"
#include "models/edits.h"
#include "models/model.h"
#include "models/sampling.h"

namespace attend {

using models::Batch;
using models::output_of;

void ModelCache::truncate(std::int64_t length) {
  if (length < 0 || length > this->length())
    fail(ErrorCode::bad_value, "ModelCache.truncate", "length is {}, expected 0 to {}", length, this->length());
  for (KvCache& layer : layers_) layer.truncate(length);
  ids_.resize(static_cast<std::size_t>(length));
}

const ModelInfo& Model::info() const {
  return parts_->info;
}

namespace {

constexpr const char* function = "Model";

void check_ids(std::span<const std::int64_t> ids, const ModelInfo& info) {
  if (ids.empty()) fail(ErrorCode::bad_value, function, "there are no ids, expected at least one");
  for (std::size_t n = 0; n < ids.size(); ++n) {
    if (ids[n] < 0 || ids[n] >= info.vocabulary)
      fail(ErrorCode::bad_value, function, "ids[{}] is {}, expected 0 to {}", n, ids[n], info.vocabulary - 1);
  }
}

void check_decoder(const ModelInfo& info, std::string_view what) {
  if (info.decoder()) return;
  fail(ErrorCode::bad_value, function, "{} need a decoder, the model is of type {}", what, info.type);
}

void check_caches(const ModelCall& call, const Batch& batch, const ModelInfo& info) {
  check_decoder(info, "caches");
  if (std::ssize(call.caches) != batch.sequences()) {
    fail(ErrorCode::bad_value, function, "{} caches, expected one for each of {} sequences", call.caches.size(),
         batch.sequences());
  }
  for (std::size_t s = 0; s < call.caches.size(); ++s) {
    if (!call.caches[s]) fail(ErrorCode::bad_value, function, "caches[{}] is null", s);
    if (std::ranges::count(call.caches, call.caches[s]) > 1)
      fail(ErrorCode::bad_value, function, "caches[{}] comes twice", s);
  }
}

// How long the sequence was before this call.
std::int64_t length_before(const ModelCall& call, std::int64_t sequence) {
  return call.caches.empty() ? 0 : call.caches[static_cast<std::size_t>(sequence)]->length();
}

// After how many tokens a text that grows is computed again from its beginning; 0: never.
std::int64_t computed_again_after(const Model::Parts& parts) {
  return std::visit(
      [](const auto& of) -> std::int64_t {
        if constexpr (requires { of.computed_again_after(); }) return of.computed_again_after();
        return 0;
      },
      parts.family);
}

// A call's edits, and then who asked to be shown what is there.
class Shown : public models::Edits {
 public:
  Shown(const ModelCall& call, const Batch& batch, const ModelInfo& info)
      : Edits(call.edits, batch, info), observe_(call.observe) {}
  void at(ModelPlace place, std::int64_t layer, const MutableView& values) override {
    Edits::at(place, layer, values);
    if (observe_) observe_(place, layer, values);
  }

 private:
  const std::function<void(ModelPlace, std::int64_t, const View&)>& observe_;
};

}  // namespace

namespace models {

std::vector<std::int64_t> checked_starts(std::span<const std::int64_t> starts, std::int64_t count) {
  if (starts.empty()) return {0, count};
  const bool rises = std::ranges::adjacent_find(starts, std::greater_equal<>()) == starts.end();
  if (starts.size() < 2 || starts.front() != 0 || starts.back() != count || !rises)
    fail(ErrorCode::bad_value, function, "starts must rise from 0 to the number of ids, {}", count);
  return {starts.begin(), starts.end()};
}

void check_finite(const Tensor& hidden) {
  const float* values = hidden.data<float>();
  if (std::all_of(values, values + hidden.count(), [](float value) { return std::isfinite(value); })) return;
  fail(ErrorCode::bad_value, function, "the hidden states have NaN or infinity: do the weights?");
}

std::vector<double> mean_direction(const Tensor& hidden, std::int64_t begin, std::int64_t end) {
  const std::int64_t E = hidden.size(1);
  std::vector<double> sums(static_cast<std::size_t>(E));
  for (std::int64_t n = begin; n < end; ++n)
    for (std::int64_t e = 0; e < E; ++e) sums[static_cast<std::size_t>(e)] += double(hidden.data<float>()[n * E + e]);
  double squares = 0;
  for (const double sum : sums) squares += sum * sum;
  const double length = squares > 0 ? std::sqrt(squares) : 1;  // the mean's factor 1 / T falls out
  for (double& sum : sums) sum /= length;
  return sums;
}

const Output& output_of(const Model::Parts& parts, std::string_view what) {
  check_decoder(parts.info, what);
  const Output* output = std::visit(
      [](const auto& of) -> const Output* {
        if constexpr (requires { of.output(); }) return of.output() ? &*of.output() : nullptr;
        return nullptr;
      },
      parts.family);
  if (!output)
    fail(ErrorCode::bad_value, function, "{} need an output layer, and the model is a bare one: no lm_head.weight",
         what);
  return *output;
}

Batch batch_of(std::span<const std::int64_t> ids, const ModelCall& call, const ModelInfo& info) {
  check_ids(ids, info);
  Batch batch{.ids = ids,
              .starts = checked_starts(call.starts, std::ssize(ids)),
              .positions = {},
              .types = call.types,
              .layers = {},
              .recorder = call.recorder,
              .recorded_ids = {}};
  if (!call.types.empty() && call.types.size() != ids.size())
    fail(ErrorCode::bad_value, function, "{} types for {} ids", call.types.size(), ids.size());
  if (!call.types.empty() && info.decoder())
    fail(ErrorCode::bad_value, function, "types are BERT's, the model is of type {}", info.type);
  if (call.recorder && batch.sequences() > 1)
    fail(ErrorCode::bad_value, function, "{} sequences, a recorder takes one", batch.sequences());
  if (!call.caches.empty()) check_caches(call, batch, info);
  for (std::int64_t s = 0; s < batch.sequences(); ++s) {
    const std::int64_t count =
        batch.starts[static_cast<std::size_t>(s) + 1] - batch.starts[static_cast<std::size_t>(s)];
    const std::int64_t before = length_before(call, s);
    if (before + count > info.longest) {
      fail(ErrorCode::bad_value, function, "a sequence of {} tokens, the model takes at most {}", before + count,
           info.longest);
    }
    for (std::int64_t n = 0; n < count; ++n) batch.positions.push_back(before + n);
  }
  return batch;
}

}  // namespace models

Tensor ModelAccess::forward(const Model& model, std::span<const std::int64_t> ids, const ModelCall& call,
                            models::Watcher* watcher) {
  const ModelInfo& info = model.info();
  Batch batch = models::batch_of(ids, call, info);
  Shown shown(call, batch, info);
  batch.watcher = watcher;
  if (!call.edits.empty() || call.observe) batch.watcher = &shown;
  std::vector<std::int64_t> lengths;  // of the caches before
  if (!call.caches.empty()) {
    batch.layers.resize(static_cast<std::size_t>(info.layers));
    for (ModelCache* cache : call.caches) {
      if (std::ssize(cache->layers_) != info.layers)
        fail(ErrorCode::bad_value, function, "a cache of {} layers, expected {}", cache->layers_.size(), info.layers);
      for (std::size_t l = 0; l < batch.layers.size(); ++l) batch.layers[l].push_back(&cache->layers_[l]);
      lengths.push_back(cache->length());
    }
  }
  if (call.recorder) {
    if (!call.caches.empty()) batch.recorded_ids = call.caches[0]->ids_;
    batch.recorded_ids.insert(batch.recorded_ids.end(), ids.begin(), ids.end());
  }
  const MemoryReuse reuse;  // one layer's tensors are as large as the next one's
  try {
    Tensor hidden = std::visit(
        [&](const auto& family) {
          Tensor x = family.embed(batch);
          family.run(batch, x, 0, info.layers);
          batch.at(ModelPlace::residual, static_cast<std::size_t>(info.layers), x);
          return family.finish(std::move(x));
        },
        model.parts_->family);
    models::check_finite(hidden);
    for (std::size_t s = 0; s < call.caches.size(); ++s) {
      const auto own = ids.subspan(static_cast<std::size_t>(batch.starts[s]),
                                   static_cast<std::size_t>(batch.starts[s + 1] - batch.starts[s]));
      call.caches[s]->ids_.insert(call.caches[s]->ids_.end(), own.begin(), own.end());
    }
    return hidden;
  } catch (...) {  // what the layers so far have added to the caches is taken back
    for (const auto& layer : batch.layers) {
      for (std::size_t s = 0; s < layer.size(); ++s) layer[s]->truncate(std::min(lengths[s], layer[s]->length()));
    }
    for (std::size_t s = 0; s < lengths.size(); ++s)
      call.caches[s]->ids_.resize(static_cast<std::size_t>(std::min(lengths[s], std::ssize(call.caches[s]->ids_))));
    throw;
  }
}

Tensor Model::forward(std::span<const std::int64_t> ids, const ModelCall& call) const {
  return ModelAccess::forward(*this, ids, call, nullptr);
}

Tensor Model::logits(const View& hidden) const {
  return output_of(*parts_, "logits").logits(hidden);
}

ModelCache Model::cache(std::optional<DType> dtype) const {
  const ModelInfo& info = parts_->info;
  check_decoder(info, "caches");
  if (dtype && *dtype != info.dtype && *dtype != DType::i8)
    fail(ErrorCode::bad_dtype, function, "a cache in {}, expected {} or i8", *dtype, info.dtype);
  ModelCache cache;
  for (std::int64_t l = 0; l < info.layers; ++l)
    cache.layers_.emplace_back(1, info.kv_heads, info.head_size, info.head_size, dtype.value_or(info.dtype));
  return cache;
}

std::vector<std::int64_t> Model::generate(std::span<const std::int64_t> ids, const GenerateOptions& options) const {
  output_of(*parts_, "generate()");
  models::Sampler sampler(options);
  const std::vector<std::int64_t>& end = options.end ? *options.end : parts_->info.end;
  ModelCache cache = this->cache();
  ModelCache* const caches[] = {&cache};
  ModelCall call{.caches = caches, .recorder = options.recorder, .edits = options.edits};
  std::vector<Edit> lasting;  // the edits of every token
  std::ranges::copy_if(options.edits, std::back_inserter(lasting), [](const Edit& edit) { return !edit.rows; });
  const std::int64_t again = computed_again_after(*parts_);
  std::vector<std::int64_t> made, text;
  std::span<const std::int64_t> given = ids;
  while (std::ssize(made) < options.max_new_tokens) {
    if (!made.empty() && cache.length() == parts_->info.longest) break;
    if (!made.empty() && cache.length() == again) {
      if (options.recorder)
        fail(ErrorCode::bad_value, function,
             "a recorder can't follow a text beyond {} tokens: all is computed again there", again);
      text.assign(ids.begin(), ids.end());
      text.insert(text.end(), made.begin(), made.end());
      cache.truncate(0);
      given = text;
      call.edits = options.edits;
    }
    const Tensor hidden = forward(given, call);
    const Tensor logits = this->logits(hidden.view().select(0, hidden.size(0) - 1));
    const std::int64_t next = sampler.choose({logits.data<float>(), static_cast<std::size_t>(logits.count())});
    if (std::ranges::find(end, next) != end.end()) break;
    made.push_back(next);
    if (options.on_token && !options.on_token(next)) break;
    given = {&made.back(), 1};
    call.edits = lasting;
  }
  return made;
}

}  // namespace attend
