// The next token from its logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attend/models.h"
#include "attend/random.h"

namespace attend::inline v0::models {

// Throws bad_value for options outside their ranges.
void check_sampling(const GenerateOptions& options);

class Sampler {
 public:
  Sampler(const GenerateOptions& options, std::uint64_t seed);
  // Throws bad_value for NaN and infinity, and where every logit is -inf: no token may come.
  std::int64_t choose(std::span<const float> logits);

 private:
  double temperature_, top_p_;
  std::int64_t top_k_;
  Generator generator_;
};

}  // namespace attend::inline v0::models
