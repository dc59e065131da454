// A pass over one text, layer by layer, and copies of it that go on from a layer in another way.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "analysis/watchers.h"
#include "models/model.h"

namespace attend::analysis {

class Stream {
 public:
  // Before the first layer. Throws as Model::forward().
  Stream(const Model& model, std::span<const std::int64_t> ids);

  std::int64_t layer() const { return layer_; }  // the one that comes next
  // Runs that layer; the watcher, or null, sees it.
  void advance(models::Watcher* watcher = nullptr);

  // So many copies go together: more rows at a time would not be faster.
  std::int64_t together() const;
  // What `copies` of the stream come to from this layer on, one after another in one pass, that the edits are of: the
  // last hidden states [copies * P,E] of the `rows` [P] of each. Throws as Model::forward().
  Tensor branch(std::int64_t copies, std::span<const Edit> edits, std::span<const std::int64_t> rows) const;
  // The same of the stream as it is.
  Tensor rest(std::span<const std::int64_t> rows) const { return branch(1, {}, rows); }

  // The rows of a copy, for its edits.
  std::vector<std::int64_t> rows_of_copy(std::int64_t copy) const;

 private:
  const Model::Parts& parts_;
  std::vector<std::int64_t> ids_;
  std::int64_t layer_ = 0;
  Tensor x_;
};

// Shares of a work that is done layer by layer, told to `progress`: what is above a layer is run for each of its parts.
class LayerProgress {
 public:
  LayerProgress(std::int64_t layers, const std::function<void(double)>& progress)
      : layers_(layers), progress_(progress) {}
  // `share` of the parts of that layer are done, and all of the layers before.
  void tell(std::int64_t layer, double share);

 private:
  std::int64_t layers_;
  const std::function<void(double)>& progress_;
};

}  // namespace attend::analysis
