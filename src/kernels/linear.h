// y = x W^T + b: outputs stand in lanes, the weights packed once, x is read through broadcasts.
#pragma once

#include "kernels/operand.h"

namespace attend::kernels {
namespace {

// Inputs whose products are summed before they are added to the rest: with three vectors a step, 24 KiB of packed
// weights, which stay in the L1 cache while 64 rows pass by.
constexpr std::int64_t linear_steps = 128;

// Packed weights: for each panel of `width` outputs, [in or pairs of in][width], zeros beyond the last output.
template <class Dot>
std::int64_t linear_panel(std::int64_t in) {
  return (in + Dot::pair - 1) / Dot::pair * width;
}

// weight [out,in] f32, row-major.
template <class Dot>
void pack_linear(const float* weight, std::int64_t out, std::int64_t in, float* packed) {
  const std::int64_t panel = linear_panel<Dot>(in), panels = (out + width - 1) / width;
  for (std::int64_t i = 0; i < panels * panel; ++i) packed[i] = 0;
  for (std::int64_t o = 0; o < out; ++o) {
    float* column = packed + o / width * panel + o % width;
    for (std::int64_t i = 0; i < in; ++i) {
      if constexpr (Dot::pair == 1) {
        column[i * width] = weight[o * in + i];
      } else {
        store_scalar(DType::bf16, reinterpret_cast<char*>(column + i / 2 * width) + i % 2 * 2, weight[o * in + i]);
      }
    }
  }
}

// One panel of weights [out,in] of the products' own dtype, row-major: outputs [first, last), at most `width` of them.
template <class Dot>
void pack_linear_rows(const void* weight, std::int64_t in, std::int64_t first, std::int64_t last, float* packed) {
  const std::int64_t steps = (in + Dot::pair - 1) / Dot::pair;  // floats of a row: of bf16, pairs, whose number is even
  const auto* rows = static_cast<const float*>(weight) + first * steps;
  for (std::int64_t block = 0; block < width; block += lanes) {
    for (std::int64_t step = 0; step < steps; step += lanes) {
      const std::int64_t count = min_of<std::int64_t>(lanes, steps - step);
      F tile[lanes];
#pragma GCC unroll 16
      for (int i = 0; i < lanes; ++i) {
        const float* from = rows + (block + i) * steps + step;
        const bool there = first + block + i < last;
        tile[i] = !there ? Simd::zero() : count == lanes ? Simd::load(from) : Simd::load_first(from, count);
      }
      Simd::transpose(tile);
      float* to = packed + step * width + block;
      if (count == lanes) {
#pragma GCC unroll 16
        for (int i = 0; i < lanes; ++i) Simd::store(to + i * width, tile[i]);
      } else {
#pragma GCC unroll 16
        for (int i = 0; i < lanes; ++i)
          if (i < count) Simd::store(to + i * width, tile[i]);
      }
    }
  }
}

template <class Dot>
class LinearPanel {
 public:
  LinearPanel(const LinearOperands& a, std::int64_t first, std::int64_t last, std::int64_t panel)
      : a_(a), first_(first), rows_(last - first), panel_(panel) {}

  void run() {
    const std::int64_t steps = (a_.in + Dot::pair - 1) / Dot::pair;
    const float* weights = a_.packed + panel_ * linear_panel<Dot>(a_.in);
    const std::int64_t outs = min_of<std::int64_t>(width, a_.out - panel_ * width);
    for (std::int64_t step = 0; step < steps; step += linear_steps) {
      const std::int64_t count = min_of(linear_steps, steps - step);
      std::int64_t r = 0;
      for (; r + height <= rows_; r += height) rows<height>(r, step, count, weights + step * width);
      for (; r + 4 <= rows_; r += 4) rows<4>(r, step, count, weights + step * width);
      for (; r < rows_; ++r) rows<1>(r, step, count, weights + step * width);
    }
    for (std::int64_t r = 0; r < rows_; ++r) {
      const std::int64_t at_y = (first_ + r) * a_.y_stride + panel_ * width;
      char* y = static_cast<char*>(a_.y) + at_y * bytes_of(a_.y_dtype);
      for (std::int64_t i = 0; a_.bias && i < outs; ++i) sums_[r * width + i] += a_.bias[panel_ * width + i];
      store_row(sums_ + r * width, y, {a_.y_dtype, 1, outs});
    }
  }

 private:
  template <int R>
  __attribute__((noinline)) void rows(std::int64_t r, std::int64_t step, std::int64_t count, const float* weights) {
    F sums[R][vectors];
#pragma GCC unroll 8
    for (int i = 0; i < R; ++i) {
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) sums[i][v] = Simd::zero();
    }
    const std::int64_t bytes = a_.x_stride * bytes_of(a_.dtype);
    const char* x = static_cast<const char*>(a_.x) + (first_ + r) * bytes + step * 4;
    multiply<Dot, R, 0, vectors, vectors>(sums, reinterpret_cast<const float*>(x), bytes / 4, 1, weights, count);
#pragma GCC unroll 8
    for (int i = 0; i < R; ++i) {
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) {
        float* to = sums_ + (r + i) * width + v * lanes;
        Simd::store(to, step == 0 ? sums[i][v] : Simd::add(Simd::load(to), sums[i][v]));
      }
    }
  }

  const LinearOperands& a_;
  std::int64_t first_, rows_, panel_;
  alignas(64) float sums_[linear_rows * width];
};

}  // namespace
}  // namespace attend::kernels
