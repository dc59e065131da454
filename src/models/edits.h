// Edits of a pass, checked, and applied where the pass comes to their places.
#pragma once

#include <span>
#include <vector>

#include "models/batch.h"

namespace attend::inline v1::models {

bool is_of_encoder(ModelPlace place);
// Of the encoder's text as a decoder reads it: where that is in a cache, no pass comes there.
bool is_read_once(ModelPlace place);
// What stands at a place of the model's: [rows, columns], and of heads how many. Throws bad_value where the model has
// no such place; function: what a message begins with.
struct PlaceShape {
  std::int64_t columns, heads = 0, layers;
};
PlaceShape shape_of(const char* function, ModelPlace place, const ModelInfo& info);

class Edits : public Watcher {
 public:
  // Those of the batch's stack, for a pass over it, whose ids, starts and positions are there. Throws bad_value,
  // bad_shape, bad_dtype.
  Edits(std::span<const Edit> edits, const Batch& batch, const ModelInfo& info);

  void at(ModelPlace place, std::int64_t layer, const MutableView& values) override;
  // d [rows,columns], f32, the gradient of what at() left there, becomes that of what it found.
  void back(ModelPlace place, std::int64_t layer, const MutableView& d) const;

 private:
  std::vector<Edit> edits_;  // their places counted from 0
  const Batch& batch_;
  const ModelInfo& info_;
};

}  // namespace attend::inline v1::models
