// `plan --ranks`: what each of several processes would hold, send and compute.
#pragma once

#include <string>

#include "attend/ring.h"

namespace attend::cli {

struct RanksArguments {
  int ranks = 1;
  bool zigzag = false, backward = false;
  RingCosts costs = {};
};

// As text, or as one JSON object. Shapes are of the whole.
std::string plan_on_ranks(const RanksArguments& arguments, const Dims& q, const Dims& k, const Dims& v, DType dtype,
                          const AttentionOptions& options, bool json);

}  // namespace attend::cli
