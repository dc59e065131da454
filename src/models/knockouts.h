// Rows that may not see keys.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "models/batch.h"

namespace attend::inline v1::models {

class Knockouts {
 public:
  // Throws bad_value for a layer or a head that the model does not have, and for a batch that a recorder watches.
  Knockouts(std::span<const Knockout> knockouts, const Batch& batch, const ModelInfo& info);

  // How many of so many rows of a sequence, the first ones, have to be there before apply(), which makes all others.
  std::int64_t rows_before(const AttentionStep& step, std::int64_t rows) const;

  // Rows of one sequence's attention: q [1,H,N,D], whose first is at that position, and out as q. attend(q, options)
  // is attention over that sequence's keys, of which there are so many, for some of its rows.
  using Attend = std::function<AttentionResult(const View& q, const AttentionOptions& options)>;
  void apply(const AttentionStep& step, const View& q, std::int64_t position, std::int64_t keys, const MutableView& out,
             const Attend& attend) const;

 private:
  std::vector<Knockout> all_;  // those of the batch's stack
};

}  // namespace attend::inline v1::models
