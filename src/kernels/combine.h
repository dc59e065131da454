// Adding up what decode found in several ranges of keys: in double, in plain loops that the compiler turns into
// vectors.
#pragma once

#include "kernels/operand.h"

namespace attend::inline v1::kernels {
namespace {

// The parts of one row: part n, m, l and the sums, at first + n * stride.
struct Parts {
  const float* first;
  std::int64_t stride, count;
  const float* part(std::int64_t n) const { return first + n * stride; }
};

// 2^x; most often there is one part, and x is 0.
inline double weight_of(double x) {
  return x == 0 ? 1 : __builtin_exp2(x);
}

void combine_row(const Group& g, const Results& to, std::int64_t head, std::int64_t row, const Parts& parts) {
  double m = g.sinks ? g.sinks[head] * log2_e : -static_cast<double>(infinity), l = g.sinks ? 1 : 0;
  for (std::int64_t n = 0; n < parts.count; ++n) {
    // A part that saw nothing is left out: its sums are 0, and 0 * 2^(m - m) might be NaN.
    const double part_m = static_cast<double>(parts.part(n)[0]), part_l = static_cast<double>(parts.part(n)[1]);
    if (part_l == 0) continue;
    const double higher = max_of(m, part_m);
    l = (l == 0 ? 0 : l * weight_of(m - higher)) + part_l * weight_of(part_m - higher);
    m = higher;
  }
  constexpr std::int64_t piece = 64;
  char* out = operand_at(to.out, head, row);
  for (std::int64_t d = 0; d < g.sizes.Dv; d += piece) {
    const std::int64_t count = min_of(piece, g.sizes.Dv - d);
    float rounded[piece];
    if (parts.count == 1) {  // the sums below, in one loop: few keys give little else to do
      const float* part = parts.part(0);
      const double share = part[1] == 0 ? 0 : weight_of(static_cast<double>(part[0]) - m) / l;
      for (std::int64_t i = 0; i < count; ++i) {
        rounded[i] = static_cast<float>(0 + static_cast<double>(part[2 + d + i]) * share);
      }
    } else {
      double sums[piece];
      for (std::int64_t i = 0; i < count; ++i) sums[i] = 0;
      for (std::int64_t n = 0; n < parts.count; ++n) {
        const float* part = parts.part(n);
        if (part[1] == 0) continue;
        const double share = weight_of(static_cast<double>(part[0]) - m) / l;
        for (std::int64_t i = 0; i < count; ++i) sums[i] += static_cast<double>(part[2 + d + i]) * share;
      }
      for (std::int64_t i = 0; i < count; ++i) rounded[i] = static_cast<float>(sums[i]);
    }
    store_row(rounded, out + d * to.out.column * bytes_of(to.out.dtype), {to.out.dtype, to.out.column, count});
  }
  if (!to.lse.data) return;
  // l may be beyond f32 where m is a sink far below: then the C library's log.
  const double log_l = l < 1e30 ? logarithm(static_cast<float>(l)) : __builtin_log(l);
  store_lse(to, head, row, lse_of(to, m, log_l), l);
}

// Rows of one head that have one part each, `row` floats apart, and no sink: numbers as combine_row() gives them, of
// several rows side by side, since few keys give little else to do.
void combine_alone(const Group& g, const Results& to, std::int64_t head, std::int64_t first, std::int64_t last,
                   const float* parts) {
  constexpr std::int64_t together = 8;
  const std::int64_t row = 2 + g.sizes.Dv;
  const bool direct = to.out.dtype == DType::f32 && to.out.column == 1;
  for (std::int64_t query = first; query < last; query += together, parts += together * row) {
    const std::int64_t rows = min_of(together, last - query);
    double m[together], l[together], share[together], log_l[together];
    for (std::int64_t i = 0; i < together; ++i) {
      const float* part = parts + min_of(i, rows - 1) * row;
      // A row that saw nothing, and one whose maximum is not finite and its sum NaN.
      m[i] = static_cast<double>(part[0]), l[i] = static_cast<double>(part[1]) + (m[i] - m[i]);
    }
    for (std::int64_t i = 0; i < together; ++i) share[i] = l[i] == 0 ? 0 : 1 / l[i];
    for (std::int64_t i = 0; i < rows; ++i) {
      const float* sums = parts + i * row + 2;
      char* out = operand_at(to.out, head, query + i);
      auto* single = reinterpret_cast<float*>(out);
      const auto scaled = [&](std::int64_t d) {
        return static_cast<float>(0 + static_cast<double>(sums[d]) * share[i]);
      };
      if (direct) {
        for (std::int64_t d = 0; d < g.sizes.Dv; ++d) single[d] = scaled(d);
        continue;
      }
      constexpr std::int64_t piece = 64;
      for (std::int64_t d = 0; d < g.sizes.Dv; d += piece) {
        const std::int64_t count = min_of(piece, g.sizes.Dv - d);
        float rounded[piece];
        for (std::int64_t n = 0; n < count; ++n) rounded[n] = scaled(d + n);
        store_row(rounded, out + d * to.out.column * bytes_of(to.out.dtype), {to.out.dtype, to.out.column, count});
      }
    }
    if (!to.lse.data) continue;
    for (std::int64_t i = 0; i < together; ++i) log_l[i] = logarithm(static_cast<float>(l[i]));
    for (std::int64_t i = 0; i < rows; ++i) store_lse(to, head, query + i, lse_of(to, m[i], log_l[i]), l[i]);
  }
}

void combine(const Group& g, const Results& to, std::int64_t first, std::int64_t last, const float* partials,
             std::int64_t stride, std::int64_t ranges) {
  const std::int64_t queries = last - first;
  if (ranges == 1 && !g.sinks && queries > 1) {
    for (std::int64_t head = 0; head < g.sizes.G; ++head, partials += queries * (2 + g.sizes.Dv))
      combine_alone(g, to, head, first, last, partials);
    return;
  }
  for (std::int64_t row = 0; row < g.sizes.G * queries; ++row) {
    combine_row(g, to, row / queries, first + row % queries, {partials + row * (2 + g.sizes.Dv), stride, ranges});
  }
}

}  // namespace
}  // namespace attend::inline v1::kernels
