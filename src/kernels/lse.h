// The lse that a pass after the forward takes for a row: what it was given, or the row's own sum. Also read by the
// files that are compiled for a target: no headers with inline code.
#pragma once

#include <cfloat>

namespace attend::inline v1::kernels {

// From here on two floats don't hold the logarithm of a row's sum well enough: weights would be 4e-6 off.
inline constexpr float coarse_lse = 0x1p31f;

namespace {

// In log2 units, in two f32: weights are 2^((logit - high) - low).
struct BinaryLse {
  float high, low;
};

// A number in two f32, as far as they reach: of magnitudes beyond the largest one, it and the rest.
inline BinaryLse split(double x) {
  const double within = x < -FLT_MAX ? -FLT_MAX : x > FLT_MAX ? FLT_MAX : x;
  const auto high = static_cast<float>(x - x == 0 ? within : x);
  return {high, high - high == 0 ? static_cast<float>(x - static_cast<double>(high)) : 0};
}

// The share of a row that its sink takes, both in log2 units. What two f32 don't tell apart from the sink is the sink:
// at most all, also where lse was rounded down.
inline double sink_share(double sink, BinaryLse lse) {
  const double low = static_cast<double>(lse.low), logit = (sink - static_cast<double>(lse.high)) - low;
  const double untold = 0x1p-24 * __builtin_fabs(low) + 0x1p-51 * __builtin_fabs(sink);
  return logit > -untold ? 1 : __builtin_exp2(logit);
}

// lse and lse_low as they were given (`low` null: not given). `own`: the sum that this call's keys give, or null. It is
// taken in place of an lse of magnitude `trusted` or more where it is, as well as lse tells, the sum that lse was
// computed from: then it is exact where f32 is not. Else lse is of more keys than these, as merge() gives it.
inline BinaryLse binary_lse(float lse, const float* low, const BinaryLse* own, float trusted) {
  constexpr double per_nat = 1.44269504088896340736;
  const double given = (static_cast<double>(lse) + static_cast<double>(low ? *low : 0)) * per_nat;
  if (own && !(__builtin_fabsf(lse) < trusted)) {
    const double sum = static_cast<double>(own->high) + static_cast<double>(own->low);
    const double step = low ? 0x1p-40 : 0x1p-22, unit = __builtin_fabs(given) > 1 ? __builtin_fabs(given) : 1;
    if (__builtin_fabs(sum - given) <= step * unit) return *own;
  }
  BinaryLse taken = split(given);
  // A row with nothing to attend to: its weights are 2^(score - FLT_MAX) = 0.
  if (lse == -__builtin_inff()) taken.high = FLT_MAX;
  return taken;
}

}  // namespace
}  // namespace attend::inline v1::kernels
