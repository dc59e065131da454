// Edits of a pass, checked, and applied where the pass comes to their places.
#pragma once

#include <span>
#include <vector>

#include "models/batch.h"

namespace attend::inline v0::models {

bool is_of_encoder(ModelPlace place);

class Edits : public Watcher {
 public:
  // Those of the batch's stack, for a pass over it, whose ids, starts and positions are there. Throws bad_value,
  // bad_shape, bad_dtype.
  Edits(std::span<const Edit> edits, const Batch& batch, const ModelInfo& info);

  void at(ModelPlace place, std::int64_t layer, const MutableView& values) override;

 private:
  std::vector<Edit> edits_;  // their places counted from 0
  const Batch& batch_;
  const ModelInfo& info_;
};

}  // namespace attend::inline v0::models
