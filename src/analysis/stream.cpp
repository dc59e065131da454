#include "analysis/stream.h"

#include <algorithm>
#include <numeric>

#include "analysis/answers.h"
#include "core/tensor_memory.h"
#include "layers/rows.h"
#include "models/edits.h"

namespace attend::inline v1::analysis {

namespace {

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

}  // namespace

Stream::Stream(const Model& model, std::span<const Text> texts, bool of_encoder, std::vector<ModelCache> before)
    : parts_(ModelAccess::parts(model)),
      texts_(texts.begin(), texts.end()),
      of_encoder_(of_encoder),
      before_(std::move(before)) {
  const bool decodes = parts_.info.encoder_decoder() && !of_encoder;
  for (std::size_t n = 0; n < texts_.size(); ++n) {
    check_text(texts_[n], parts_.info);
    ids_.push_back((decodes ? texts_[n].decoder_ids : texts_[n].ids).subspan(static_cast<std::size_t>(first(n))));
    begins_.push_back(begins_[n] + length(n));
  }
  if (decodes) memory_ = {ModelAccess::forward(model, texts_[0].ids, {}, nullptr), {0, std::ssize(texts_[0].ids)}};
  const Line whole = line(all());
  const models::Batch each = batch(whole, all());
  on_layers(parts_, of_encoder_, [&](const auto& layers) { x_ = layers.embed(each); });
}

Copies Stream::all() const {
  Copies copies(texts_.size());
  std::iota(copies.begin(), copies.end(), std::size_t{0});
  return copies;
}

Stream::Line Stream::line(const Copies& copies) const {
  Line line{.ids = {}, .starts = {0}};
  for (const std::size_t text : copies) {
    add_types(texts_[text], line.ids.size(), line.types);
    line.ids.insert(line.ids.end(), ids_[text].begin(), ids_[text].end());
    line.starts.push_back(std::ssize(line.ids));
  }
  return line;
}

models::Batch Stream::batch(const Line& line, const Copies& copies) const {
  const ModelInfo& info = parts_.info;
  if (!info.encoder_decoder()) {
    models::Batch out = models::batch_of(line.ids, {.starts = line.starts, .types = line.types}, info);
    for (std::size_t copy = 0; copy < copies.size(); ++copy)
      for (auto row = line.starts[copy]; row < line.starts[copy + 1]; ++row)
        out.positions[static_cast<std::size_t>(row)] += first(copies[copy]);
    return out;
  }
  if (of_encoder_) return models::encoder_batch_of(line.ids, {.starts = line.starts}, info);
  models::Batch out = models::decoder_batch_of({.decoder_ids = line.ids, .decoder_starts = line.starts}, info);
  out.memory = &memory_;
  return out;
}

// Of each layer from `first` to before `last`, what the copies' rows see before them: forks, which each goes on with.
Stream::Forks Stream::forks(models::Batch& batch, const Copies& copies, std::int64_t first, std::int64_t last) const {
  Forks forks;
  if (before_.empty()) return forks;
  batch.layers.resize(static_cast<std::size_t>(layers()));
  for (auto layer = static_cast<std::size_t>(first); layer < static_cast<std::size_t>(last); ++layer) {
    std::vector<KvCache>& own = forks.emplace_back();
    own.reserve(copies.size());
    for (const std::size_t text : copies)
      own.push_back(ModelAccess::layers(before_[text])[layer].fork(before_[text].length()));
    for (KvCache& each : own) batch.layers[layer].push_back(&each);
  }
  return forks;
}

void Stream::advance(models::Watcher* watcher, bool plain) {
  const Copies copies = all();
  const Line whole = line(copies);
  models::Batch each = batch(whole, copies);
  const Forks own = forks(each, copies, layer_, layer_ + 1);
  each.watcher = watcher;
  if (plain) each.stack = models::Stack::only;
  on_layers(parts_, of_encoder_, [&](const auto& layers) { layers.run(each, x_, layer_, layer_ + 1); });
  ++layer_;
}

Tensor Stream::branch(const Copies& copies, std::span<const Edit> edits,
                      std::span<const std::vector<std::int64_t>> rows) const {
  const Line whole = line(copies);
  models::Batch batch = this->batch(whole, copies);
  const Forks own = forks(batch, copies, layer_, layers());
  models::Edits watcher(edits, batch, parts_.info);
  batch.watcher = &watcher;
  Tensor x = Tensor::uninitialized({std::ssize(whole.ids), x_.size(1)}, DType::f32);
  for (std::size_t copy = 0; copy < copies.size(); ++copy) {
    const Range from = this->rows(copies[copy]);
    x.view().slice(0, whole.starts[copy], whole.starts[copy + 1]).copy_from(x_.view().slice(0, from.begin, from.end));
  }
  const MemoryReuse reuse;
  on_layers(parts_, of_encoder_, [&](const auto& stack) { stack.run(batch, x, layer_, layers()); });
  batch.at(ModelPlace::residual, static_cast<std::size_t>(layers()), x);
  const bool decodes = of_encoder_;
  if (decodes) x = decode(std::move(x), whole.starts, std::ssize(copies));
  std::vector<std::int64_t> wanted;
  for (std::size_t copy = 0; copy < copies.size(); ++copy) {
    const std::int64_t begin =
        decodes ? static_cast<std::int64_t>(copy) * std::ssize(texts_[0].decoder_ids) : whole.starts[copy];
    for (const std::int64_t row : rows[copies[copy]]) wanted.push_back(begin + row);
  }
  Tensor hidden = finished(parts_, rows_at(x, wanted));
  models::check_finite(hidden);
  return hidden;
}

Tensor Stream::decode(Tensor x, const std::vector<std::int64_t>& starts, std::int64_t copies) const {
  models::Memory memory{{}, starts};
  on_layers(parts_, true, [&](const auto& encoder) { memory.states = encoder.finish(std::move(x)); });
  const std::span<const std::int64_t> text = texts_[0].decoder_ids;
  Line line{.ids = {}, .starts = {0}};
  for (std::int64_t copy = 0; copy < copies; ++copy) {
    line.ids.insert(line.ids.end(), text.begin(), text.end());
    line.starts.push_back(std::ssize(line.ids));
  }
  models::Batch batch = models::decoder_batch_of({.decoder_ids = line.ids, .decoder_starts = line.starts}, parts_.info);
  batch.memory = &memory;
  Tensor out;
  on_layers(parts_, false, [&](const auto& decoder) {
    out = decoder.embed(batch);
    decoder.run(batch, out, 0, parts_.info.layers);
  });
  return out;
}

void for_each_pass(const Stream& stream, std::span<Part> parts, std::span<const std::vector<std::int64_t>> rows,
                   const std::function<void(const Tensor& hidden, std::size_t first, std::size_t last)>& body) {
  for (std::size_t first = 0, last = 0; first < parts.size(); first = last) {
    Copies copies;
    std::vector<Edit> edits;
    std::int64_t begin = 0;
    for (; last < parts.size(); ++last) {
      const std::int64_t length = stream.length(parts[last].text);
      if (last > first && begin + length > rows_at_once) break;
      for (Edit& edit : parts[last].edits) {
        for (std::int64_t& row : *edit.rows) row += begin;
        edits.push_back(std::move(edit));
      }
      copies.push_back(parts[last].text);
      begin += length;
    }
    body(stream.branch(copies, edits, rows), first, last);
  }
}

void LayerProgress::tell(std::int64_t layer, double share) {
  if (!progress_) return;
  const auto steps = [](std::int64_t above) { return static_cast<double>(above) * static_cast<double>(above + 1); };
  const double left = steps(layers_ - layer) - share * 2 * static_cast<double>(layers_ - layer);
  progress_(1 - left / steps(layers_));
}

}  // namespace attend::inline v1::analysis
