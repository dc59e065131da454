// The next token from its logits.
#pragma once

#include <cstdint>
#include <span>

#include "attend/random.h"
#include "models/settings.h"

namespace attend::inline v1::models {

class Sampler {
 public:
  Sampler(const Settings& settings, std::uint64_t seed);
  // Throws bad_value for NaN and infinity, and where every logit is -inf: no token may come.
  std::int64_t choose(std::span<const float> logits);

 private:
  double uniform();
  double share(float logit, float largest) const;
  std::int64_t draw_of_all(std::span<const float> logits, float largest);
  std::int64_t draw_of_part(std::span<const float> logits, float largest);

  double temperature_, top_p_, min_p_;
  std::int64_t top_k_;
  Generator generator_;
};

}  // namespace attend::inline v1::models
