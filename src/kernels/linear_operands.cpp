#include "kernels/linear_operands.h"

#include <algorithm>
#include <cstring>

namespace attend::inline v1::kernels {

namespace {

constexpr std::int64_t tile = 16;  // 16 floats: a line of the cache

// Two inputs to a lane, the earlier one at the lower address.
void pack_pairs(const std::uint16_t* columns, std::int64_t in, std::int64_t out, std::int64_t first, std::int64_t outs,
                std::int64_t width, float* packed) {
  const auto high = std::uint32_t{1} << 16;
  for (std::int64_t i = 0; i < in; i += 2, packed += width) {
    const std::uint16_t* a = columns + i * out + first;
    const std::uint16_t* b = a + out;
    for (std::int64_t o = 0; o < outs; ++o) {
      const std::uint32_t pair = a[o] + (i + 1 < in ? b[o] * high : 0);
      std::memcpy(packed + o, &pair, sizeof pair);
    }
    std::fill(packed + outs, packed + width, 0.0f);
  }
}

template <class T>
void transpose(const T* x, std::int64_t rows, std::int64_t columns, std::int64_t first, std::int64_t last,
               std::int64_t stride, T* to) {
  for (std::int64_t c = first; c < last; c += tile) {
    const std::int64_t wide = std::min(tile, last - c);
    for (std::int64_t r = 0; r < rows; r += tile) {
      const std::int64_t high = std::min(tile, rows - r);
      T turned[tile * tile];  // whole lines are written, however the rows of `to` fall on the sets of the cache
      for (std::int64_t i = 0; i < high; ++i) {
        for (std::int64_t j = 0; j < wide; ++j) turned[j * tile + i] = x[(r + i) * columns + c + j];
      }
      for (std::int64_t j = 0; j < wide; ++j) std::copy_n(turned + j * tile, high, to + (c + j) * stride + r);
    }
    for (std::int64_t j = c; j < c + wide; ++j) std::fill(to + j * stride + rows, to + (j + 1) * stride, T{0});
  }
}

}  // namespace

void linear_pack_columns(DType product, const void* columns, std::int64_t in, std::int64_t out, std::int64_t first,
                         std::int64_t last, std::int64_t panel_rows, float* packed) {
  const std::int64_t outs = last - first;
  if (product == DType::bf16) {
    return pack_pairs(static_cast<const std::uint16_t*>(columns), in, out, first, outs, panel_rows, packed);
  }
  const auto* single = static_cast<const float*>(columns);
  for (std::int64_t i = 0; i < in; ++i, packed += panel_rows) {
    std::copy_n(single + i * out + first, outs, packed);
    std::fill(packed + outs, packed + panel_rows, 0.0f);
  }
}

void transpose_columns(DType dtype, const void* x, std::int64_t rows, std::int64_t columns, std::int64_t first,
                       std::int64_t last, std::int64_t stride, void* to) {
  if (dtype == DType::bf16) {
    return transpose(static_cast<const std::uint16_t*>(x), rows, columns, first, last, stride,
                     static_cast<std::uint16_t*>(to));
  }
  transpose(static_cast<const float*>(x), rows, columns, first, last, stride, static_cast<float*>(to));
}

}  // namespace attend::inline v1::kernels
