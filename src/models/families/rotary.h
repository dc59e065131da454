// What config.json says of rotary positions, as Transformers reads it.
#pragma once

#include <string>
#include <vector>

#include "attend/layers.h"
#include "models/config.h"

namespace attend::inline v1::models {

// Where a type's class has what its rotary positions are described by, and what it takes where nothing is said.
struct RotaryKeys {
  const char* theta = "rope_theta";
  double usual_theta = 10000;
  const char* share = nullptr;  // of a head's numbers, which share is turned; null: all are
  double usual_share = 1;
  const char* of_layers = nullptr;  // the description is that of a type of layers, as "full_attention"; null: of all
  bool longrope_alone = false;      // Phi-3 has no other scaling, and older names of this one
};

struct Rotary {
  std::int64_t size;  // the first numbers of a head, which are turned
  RotaryOptions options;
};

// longest: tokens of a text, at most. Throws bad_file for what is not known here.
Rotary read_rotary(const Member& config, const RotaryKeys& keys, std::int64_t longest, std::int64_t head_size);

}  // namespace attend::inline v1::models
