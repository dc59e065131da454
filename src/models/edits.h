// Edits of a pass, checked, and applied where the pass comes to their places.
#pragma once

#include <span>

#include "models/batch.h"

namespace attend::models {

class Edits : public Watcher {
 public:
  // For a pass over `batch`, whose ids, starts and positions are there. Throws bad_value, bad_shape, bad_dtype.
  Edits(std::span<const Edit> edits, const Batch& batch, const ModelInfo& info);

  void at(ModelPlace place, std::int64_t layer, const MutableView& values) override;

 private:
  std::span<const Edit> edits_;
  const Batch& batch_;
  const ModelInfo& info_;
};

}  // namespace attend::models
