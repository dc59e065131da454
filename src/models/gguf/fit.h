// The search behind all blocks whose scales are not simply the largest number's: which whole numbers (codes), times a
// scale and with something added, come near to given numbers. Two steps take turns, and neither makes the error larger:
// the nearest codes for a scale, and the best scale for these codes (least squares). Where that ends depends on where
// it begins, so there are several starts.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "core/half.h"

namespace attend::inline v1::models {
namespace {

// Sub-blocks are computed four at a time, one in each lane. No sum goes across lanes: a sub-block has the same bits
// whatever stands beside it, on every processor.
using Four = float __attribute__((vector_size(16)));
constexpr std::size_t lanes = 4;

inline Four all(float x) {
  return Four{x, x, x, x};
}
inline Four smaller(Four a, Four b) {
  return a < b ? a : b;
}
inline Four larger(Four a, Four b) {
  return a > b ? a : b;
}
// To the nearest whole number, where magnitudes are below 2^22.
inline Four rounded(Four x) {
  const Four shift = all(0x1.8p23F);
  return (x + shift) - shift;
}
// 0 of what is too small to divide by.
inline Four inverse(Four x) {
  const auto none = x * x < all(1e-30F);
  return none ? all(0) : all(1) / (none ? all(1) : x);
}

// How a type makes numbers of codes: scale * code, and where it has something added, scale * code + added.
struct Coding {
  float low, high;  // codes
  bool adds = false;
  bool adds_above_0 = true;
  bool by_square = false;  // an error counts by the number's square, else by its magnitude
};

// Four sub-blocks, and how much each number's squared error counts.
template <std::size_t Count>
struct Numbers {
  Four x[Count], weight[Count];
  Four weights, of_x;  // sums of the weights, and of them times x

  // Large numbers count more, as they do in products; small ones count too, or all of them would become 0.
  void set(std::size_t lane, const float* from, float by, const Coding& coding) {
    float squares = 0;
    for (std::size_t n = 0; n < Count; ++n) {
      x[n][lane] = from[n] * by;
      squares += x[n][lane] * x[n][lane];
    }
    const float square = squares / static_cast<float>(Count), usual = std::sqrt(square);
    for (std::size_t n = 0; n < Count; ++n) {
      const float own = x[n][lane];
      weight[n][lane] = coding.by_square ? square + own * own : usual + std::fabs(own);
    }
  }
  void sum_up() {
    weights = of_x = all(0);
    for (std::size_t n = 0; n < Count; ++n) {
      weights += weight[n];
      of_x += weight[n] * x[n];
    }
  }
};

struct Line {
  Four scale, added;
};

// Sums of weights over a sub-block, times its codes, their squares, codes times x, and the squares of what they leave.
struct CodeSums {
  Four code, squares, of_x, error;
};

inline Four code_of(Four x, const Line& line, Four inverse_scale, const Coding& coding) {
  return rounded(larger(all(coding.low), smaller(all(coding.high), (x - line.added) * inverse_scale)));
}

template <std::size_t Count>
CodeSums sums_of(const Numbers<Count>& of, const Line& line, const Coding& coding) {
  const Four by = inverse(line.scale);
  CodeSums sums{all(0), all(0), all(0), all(0)};
  for (std::size_t n = 0; n < Count; ++n) {
    const Four code = code_of(of.x[n], line, by, coding), weighted = of.weight[n] * code,
               left = line.scale * code + line.added - of.x[n];
    sums.error += of.weight[n] * left * left;
    sums.code += weighted;
    sums.squares += weighted * code;
    sums.of_x += weighted * of.x[n];
  }
  return sums;
}

// The line that leaves least with the codes of these sums.
template <std::size_t Count>
Line best_line(const Numbers<Count>& of, const CodeSums& sums, const Coding& coding) {
  const Four alone = sums.of_x * inverse(sums.squares);
  if (!coding.adds) return {alone, all(0)};
  const Four by = inverse(of.weights * sums.squares - sums.code * sums.code);
  const Four scale = (of.weights * sums.of_x - of.of_x * sums.code) * by,
             added = (sums.squares * of.of_x - sums.code * sums.of_x) * by;
  const Four most = all(coding.adds_above_0 ? INFINITY : 0), level = smaller(most, of.of_x * inverse(of.weights));
  const auto both = (by > all(0)) & (added <= most), no_codes = sums.squares == all(0);
  return {both ? scale : alone, both ? added : no_codes ? level : all(0)};
}

// The codes spread over `wide` times the range of the sub-block's numbers.
template <std::size_t Count>
Line spread(const Numbers<Count>& of, const Coding& coding, float wide) {
  Four least = of.x[0], most = of.x[0];
  for (std::size_t n = 1; n < Count; ++n) {
    least = smaller(least, of.x[n]);
    most = larger(most, of.x[n]);
  }
  if (!coding.adds) {  // the largest magnitude has the lowest code: there is one more below 0 than above
    const Four largest = -least > most ? least : most;
    return {largest * all(wide / coding.low), all(0)};
  }
  if (!coding.adds_above_0) least = smaller(least, all(0));
  return {larger(most - least, all(0)) * all(wide / coding.high), least};
}

// The line that leaves least of all that are tried.
template <std::size_t Count>
Line find_line(const Numbers<Count>& of, const Coding& coding) {
  // Measured on weights of models and on random numbers: more starts and steps win less than 0.5 % of the error.
  constexpr int starts = 12, steps = 3;
  Line best{all(0), all(0)};
  Four least = all(INFINITY);
  for (int start = 0; start < starts; ++start) {
    Line line = spread(of, coding, 1 / (0.75F + 0.03F * static_cast<float>(start)));
    for (int step = 0; step < steps; ++step) {
      const CodeSums sums = sums_of(of, line, coding);
      const auto better = sums.error < least;
      best = {better ? line.scale : best.scale, better ? line.added : best.added};
      least = better ? sums.error : least;
      line = best_line(of, sums, coding);
    }
  }
  return best;
}

// What a block's numbers are divided by, so that their squares are neither too large nor too small: a power of 2. 0:
// they are so small that their scale is 0 as f16.
inline float unit_of(const float* block, std::size_t count) {
  float largest = 0;
  for (std::size_t n = 0; n < count; ++n) largest = std::max(largest, std::fabs(block[n]));
  return largest < 0x1p-100F ? 0 : std::ldexp(1.0F, std::ilogb(largest));
}

// As a file has it.
inline std::uint16_t half_in_file(float x, float unit) {
  return half_of_float(std::clamp(x * unit, -65504.0F, 65504.0F));
}
inline float as_half(float x, float unit) {
  return unit == 0 ? 0 : float_of_half(half_in_file(x, unit)) / unit;
}

}  // namespace
}  // namespace attend::inline v1::models
