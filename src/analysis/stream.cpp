#include "analysis/stream.h"

#include <algorithm>
#include <numeric>

#include "analysis/answers.h"
#include "core/tensor_memory.h"
#include "models/edits.h"

namespace attend::analysis {

namespace {

// A layer's tensors of so many rows are some 64 MB where E is 576.
constexpr std::int64_t rows_at_once = 2048;

// `copies` of a text, one after another.
struct Copies {
  Copies(std::span<const std::int64_t> text, std::int64_t copies) {
    ids.reserve(text.size() * static_cast<std::size_t>(copies));
    for (std::int64_t copy = 0; copy <= copies; ++copy) {
      starts.push_back(copy * std::ssize(text));
      if (copy < copies) ids.insert(ids.end(), text.begin(), text.end());
    }
  }
  models::Batch batch(const ModelInfo& info) const { return models::batch_of(ids, {.starts = starts}, info); }

  std::vector<std::int64_t> ids, starts;
};

}  // namespace

Stream::Stream(const Model& model, std::span<const std::int64_t> ids)
    : parts_(ModelAccess::parts(model)), ids_(ids.begin(), ids.end()) {
  const models::Batch batch = models::batch_of(ids_, {}, parts_.info);
  x_ = std::visit([&](const auto& family) { return family.embed(batch); }, parts_.family);
}

void Stream::advance(models::Watcher* watcher) {
  models::Batch batch = models::batch_of(ids_, {}, parts_.info);
  batch.watcher = watcher;
  std::visit([&](const auto& family) { family.run(batch, x_, layer_, layer_ + 1); }, parts_.family);
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
  const std::int64_t T = x_.size(0), E = x_.size(1), L = parts_.info.layers;
  const Copies all(ids_, copies);
  models::Batch batch = all.batch(parts_.info);
  models::Edits watcher(edits, batch, parts_.info);
  batch.watcher = &watcher;
  Tensor x = Tensor::uninitialized({copies * T, E}, DType::f32);
  for (std::int64_t copy = 0; copy < copies; ++copy) x.view().slice(0, copy * T, (copy + 1) * T).copy_from(x_);
  const MemoryReuse reuse;
  std::visit([&](const auto& family) { family.run(batch, x, layer_, L); }, parts_.family);
  std::vector<std::int64_t> wanted;
  wanted.reserve(rows.size() * static_cast<std::size_t>(copies));
  for (std::int64_t copy = 0; copy < copies; ++copy)
    for (const std::int64_t row : rows) wanted.push_back(copy * T + row);
  Tensor hidden = finished(parts_, rows_of(x, wanted));
  models::check_finite(hidden);
  return hidden;
}

void LayerProgress::tell(std::int64_t layer, double share) {
  if (!progress_) return;
  const auto steps = [](std::int64_t above) { return static_cast<double>(above) * static_cast<double>(above + 1); };
  const double left = steps(layers_ - layer) - share * 2 * static_cast<double>(layers_ - layer);
  progress_(1 - left / steps(layers_));
}

}  // namespace attend::analysis
