#include "analysis/stream.h"

#include <algorithm>
#include <numeric>

#include "analysis/answers.h"
#include "core/tensor_memory.h"
#include "models/edits.h"

namespace attend::inline v0::analysis {

namespace {

// A layer's tensors of so many rows are some 64 MB where E is 576.
constexpr std::int64_t rows_at_once = 2048;

// Calls body(layers) with those of the model, or of its encoder.
template <class Body>
void on_layers(const Model::Parts& parts, bool of_encoder, Body body) {
  std::visit(
      [&](const auto& family) {
        if constexpr (requires { family.encoder(); }) {
          if (of_encoder) return body(family.encoder());
        }
        body(models::layers_of(family));
      },
      parts.family);
}

// Throws bad_value for another text's.
void check_held(std::string_view function, std::string_view name, std::span<const std::int64_t> held,
                std::span<const std::int64_t> ids) {
  for (std::size_t n = 0; n < std::min(held.size(), ids.size()); ++n) {
    if (held[n] != ids[n])
      fail(ErrorCode::bad_value, function, "the cache is of another text: its id {} is {}, {} has {}", n, held[n], name,
           ids[n]);
  }
}

}  // namespace

ModelCache known_before(std::string_view function, const ModelCache& given, const Text& text, std::int64_t position) {
  const std::vector<std::int64_t>&held = ModelAccess::ids(given), &encoder = ModelAccess::encoder_ids(given);
  check_held(function, text.decoder_ids.empty() ? "ids" : "decoder_ids", held, text.answering());
  check_held(function, "ids", encoder, text.ids);
  if (!encoder.empty() && encoder.size() != text.ids.size())
    fail(ErrorCode::bad_value, function, "the cache is of another text: of {} tokens, ids has {}", encoder.size(),
         text.ids.size());
  ModelCache cache = given;
  cache.truncate(std::min<std::int64_t>(std::ssize(held), position));
  return cache;
}

void check_text(const Text& text, const ModelInfo& info) {
  if (info.encoder_decoder()) {
    models::encoder_batch_of(text.ids, {}, info);
    models::decoder_batch_of({.decoder_ids = text.decoder_ids}, info);
  } else {
    models::batch_of(text.ids, {.decoder_ids = text.decoder_ids}, info);
  }
}

Copies::Copies(std::span<const std::int64_t> of, std::int64_t count) {
  ids.reserve(of.size() * static_cast<std::size_t>(count));
  for (std::int64_t copy = 0; copy <= count; ++copy) {
    starts.push_back(copy * std::ssize(of));
    if (copy < count) ids.insert(ids.end(), of.begin(), of.end());
  }
}

Stream::Stream(const Model& model, const Text& text, bool of_encoder, std::optional<ModelCache> before)
    : parts_(ModelAccess::parts(model)),
      text_(text),
      of_encoder_(of_encoder),
      ids_(parts_.info.encoder_decoder() && !of_encoder ? text.decoder_ids : text.ids),
      before_(std::move(before)) {
  check_text(text, parts_.info);
  if (before_) first_ = before_->length(), ids_ = ids_.subspan(static_cast<std::size_t>(first_));
  if (parts_.info.encoder_decoder() && !of_encoder)
    memory_ = {ModelAccess::forward(model, text.ids, {}, nullptr), {0, std::ssize(text.ids)}};
  const Copies one(ids_, 1);
  const models::Batch all = batch(one);
  on_layers(parts_, of_encoder_, [&](const auto& layers) { x_ = layers.embed(all); });
}

models::Batch Stream::batch(const Copies& copies) const {
  const ModelInfo& info = parts_.info;
  if (!info.encoder_decoder()) {
    models::Batch out = models::batch_of(copies.ids, {.starts = copies.starts}, info);
    for (std::int64_t& position : out.positions) position += first_;
    return out;
  }
  if (of_encoder_) return models::encoder_batch_of(copies.ids, {.starts = copies.starts}, info);
  models::Batch out = models::decoder_batch_of({.decoder_ids = copies.ids, .decoder_starts = copies.starts}, info);
  out.memory = &memory_;
  return out;
}

// Of each layer from `first` to before `last`, what the copies' rows see before them: forks, which each goes on with.
Stream::Forks Stream::forks(models::Batch& batch, std::int64_t first, std::int64_t last) const {
  Forks all;
  if (!before_) return all;
  const std::vector<KvCache>& layers = ModelAccess::layers(*before_);
  batch.layers.resize(layers.size());
  for (auto layer = static_cast<std::size_t>(first); layer < static_cast<std::size_t>(last); ++layer) {
    std::vector<KvCache>& own = all.emplace_back();
    for (std::int64_t copy = 0; copy < batch.sequences(); ++copy) own.push_back(layers[layer].fork(first_));
    for (KvCache& each : own) batch.layers[layer].push_back(&each);
  }
  return all;
}

void Stream::advance(models::Watcher* watcher) {
  const Copies one(ids_, 1);
  models::Batch all = batch(one);
  const Forks own = forks(all, layer_, layer_ + 1);
  all.watcher = watcher;
  on_layers(parts_, of_encoder_, [&](const auto& layers) { layers.run(all, x_, layer_, layer_ + 1); });
  ++layer_;
}

std::int64_t Stream::together() const {
  return std::max<std::int64_t>(1, rows_at_once / x_.size(0));
}

std::vector<std::int64_t> Stream::rows_of_copy(std::int64_t copy) const {
  std::vector<std::int64_t> rows(ids_.size());
  std::iota(rows.begin(), rows.end(), copy * std::ssize(ids_));
  return rows;
}

Tensor Stream::branch(std::int64_t copies, std::span<const Edit> edits, std::span<const std::int64_t> rows) const {
  const std::int64_t T = x_.size(0), E = x_.size(1);
  const Copies all(ids_, copies);
  models::Batch batch = this->batch(all);
  const Forks own = forks(batch, layer_, layers());
  models::Edits watcher(edits, batch, parts_.info);
  batch.watcher = &watcher;
  Tensor x = Tensor::uninitialized({copies * T, E}, DType::f32);
  for (std::int64_t copy = 0; copy < copies; ++copy) x.view().slice(0, copy * T, (copy + 1) * T).copy_from(x_);
  const MemoryReuse reuse;
  on_layers(parts_, of_encoder_, [&](const auto& stack) { stack.run(batch, x, layer_, layers()); });
  batch.at(ModelPlace::residual, static_cast<std::size_t>(layers()), x);
  if (of_encoder_) x = decode(std::move(x), all.starts, copies);
  const std::int64_t each = x.size(0) / copies;
  std::vector<std::int64_t> wanted;
  wanted.reserve(rows.size() * static_cast<std::size_t>(copies));
  for (std::int64_t copy = 0; copy < copies; ++copy)
    for (const std::int64_t row : rows) wanted.push_back(copy * each + row);
  Tensor hidden = finished(parts_, rows_of(x, wanted));
  models::check_finite(hidden);
  return hidden;
}

Tensor Stream::decode(Tensor x, const std::vector<std::int64_t>& starts, std::int64_t copies) const {
  models::Memory memory{{}, starts};
  on_layers(parts_, true, [&](const auto& encoder) { memory.states = encoder.finish(std::move(x)); });
  const Copies all(text_.decoder_ids, copies);
  models::Batch batch = models::decoder_batch_of({.decoder_ids = all.ids, .decoder_starts = all.starts}, parts_.info);
  batch.memory = &memory;
  Tensor out;
  on_layers(parts_, false, [&](const auto& decoder) {
    out = decoder.embed(batch);
    decoder.run(batch, out, 0, parts_.info.layers);
  });
  return out;
}

void LayerProgress::tell(std::int64_t layer, double share) {
  if (!progress_) return;
  const auto steps = [](std::int64_t above) { return static_cast<double>(above) * static_cast<double>(above + 1); };
  const double left = steps(layers_ - layer) - share * 2 * static_cast<double>(layers_ - layer);
  progress_(1 - left / steps(layers_));
}

}  // namespace attend::inline v0::analysis
