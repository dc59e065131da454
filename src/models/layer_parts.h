// What a layer is made of, for who looks inside: each family's page says it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "attend/layers.h"
#include "models/batch.h"

namespace attend::inline v1::models {

// A projection of heads, as rows of a layer that may make more: head h has the rows from first + h * step on.
struct HeadRows {
  const Linear* of = nullptr;
  std::int64_t first = 0, step = 0;  // step 0: a head's size
};

struct LayerParts {
  struct Attention {
    HeadRows q, k, v;
    const Linear* output = nullptr;
    std::optional<Norm> reads_by = {};  // the norm that stands before q, k and v; none: they read the stream itself
    const RotaryEmbedding* rotary = nullptr;  // what turns queries and keys, behind norms of their own
  };

  Attention self;
  std::optional<Attention> cross = {};
  // hidden = activation(gate x) * (in x), without a gate activation(in x); the MLP is out hidden.
  const Linear *gate = nullptr, *in = nullptr, *out = nullptr;
  std::optional<Norm> mlp_reads_by = {};                      // as reads_by
  std::optional<Norm> attention_writes_by = {};               // what the output projection gives goes through it
  bool norms_after_sums = false;                              // post-norm: the stream itself goes through norms
  std::vector<std::pair<std::string_view, Norm>> norms = {};  // by what they are of
};

}  // namespace attend::inline v1::models
