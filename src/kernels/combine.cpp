#include "kernels/combine.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/element.h"

namespace attend::kernels {

namespace {

constexpr double log2_e = 1.44269504088896340736;
constexpr double infinity = std::numeric_limits<double>::infinity();

std::byte* place(const Operand& x, std::int64_t head, std::int64_t row) {
  return static_cast<std::byte*>(const_cast<void*>(x.data)) + (head * x.head + row * x.row) * size_of(x.dtype);
}

void store(const Operand& x, std::byte* row, std::int64_t first, const double* from, std::int64_t count) {
  if (x.dtype == DType::f32 && x.column == 1) {  // most often, and a fifth of the time of a call with 6 tokens
    for (std::int64_t i = 0; i < count; ++i) attend::store(row + (first + i) * 4, static_cast<float>(from[i]));
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    store_element(x.dtype, row + (first + i) * x.column * size_of(x.dtype), from[i]);
  }
}

// The parts of one row: part n at first + n * stride.
struct Parts {
  const float* first;
  std::int64_t stride, count;
  double m(std::int64_t n) const { return static_cast<double>(first[n * stride]); }
  double l(std::int64_t n) const { return static_cast<double>(first[n * stride + 1]); }
  double o(std::int64_t n, std::int64_t d) const { return static_cast<double>(first[n * stride + 2 + d]); }
};

// 2^x; most often there is one part, and x is 0.
double weight_of(double x) {
  return x == 0 ? 1 : std::exp2(x);
}

void combine_row(const Group& g, std::int64_t head, std::int64_t row, const Parts& parts) {
  const double sink = g.sinks ? g.sinks[head] * log2_e : -infinity;
  double m = sink, l = 0;
  for (std::int64_t n = 0; n < parts.count; ++n) {
    if (parts.l(n) != 0) m = std::max(m, parts.m(n));
  }
  if (g.sinks) l = std::exp2(sink - m);
  for (std::int64_t n = 0; n < parts.count; ++n) {
    if (parts.l(n) != 0) l += parts.l(n) * weight_of(parts.m(n) - m);
  }
  constexpr std::int64_t piece = 64;
  for (std::int64_t d = 0; d < g.Dv; d += piece) {
    const std::int64_t count = std::min(piece, g.Dv - d);
    double sums[piece] = {};
    for (std::int64_t n = 0; n < parts.count; ++n) {
      // A part that saw nothing is left out: its sums are 0, and 0 * 2^(m - m) might be NaN.
      if (parts.l(n) == 0) continue;
      const double share = weight_of(parts.m(n) - m) / l;
      for (std::int64_t i = 0; i < count; ++i) sums[i] += parts.o(n, d + i) * share;
    }
    store(g.out, place(g.out, head, row), d, sums, count);
  }
  if (g.lse.data) store_element(g.lse.dtype, place(g.lse, head, row), l == 0 ? -infinity : m / log2_e + std::log(l));
}

}  // namespace

void combine(const Group& g, std::int64_t first, std::int64_t last, const float* partials, std::int64_t stride,
             std::int64_t ranges) {
  const std::int64_t queries = last - first;
  for (std::int64_t row = 0; row < g.G * queries; ++row) {
    combine_row(g, row / queries, first + row % queries, {partials + row * (2 + g.Dv), stride, ranges});
  }
}

}  // namespace attend::kernels
