// What the sums of the forward's rows come to.
#pragma once

#include "kernels/forward_meeting.h"

namespace attend::inline v1::kernels {
namespace {

inline void ForwardRows::finish(Panel& panel) {
  if (to_.sums.data && !to_.out.data) return store_sums(panel);
  for (std::int64_t i = 0; !panel.summed && i < g_.sizes.Dv * width; ++i) panel.o[i] = 0;
  float inverse[width];
  const float factor = dropout_factor(g_.rules);
  for (int lane = 0; lane < width; lane += lanes) {
    const Mask none = Simd::equal(Simd::load(panel.l + lane), Simd::zero());
    const F each = Simd::div(Simd::set1(factor), Simd::load(panel.rounded_l + lane));
    Simd::store(inverse + lane, Simd::select(none, Simd::zero(), each));
  }
  if (to_.lse.data) store_lse_of(panel);
  if (to_.out.column == 1 && g_.sizes.Dv >= lanes) {
    switch (to_.out.dtype) {
      case DType::f32:
        return store_squares<float>(panel, inverse, [](float* p, F x) { Simd::store(p, x); });
      case DType::bf16:
        if (are_pairs(g_.sizes.Dv)) return store_pairs(panel, inverse);
        return store_squares<std::uint16_t>(panel, inverse, [](std::uint16_t* p, F x) { Simd::store_bf16(p, x); });
      case DType::f16:
        return store_squares<std::uint16_t>(panel, inverse, [](std::uint16_t* p, F x) { Simd::store_f16(p, x); });
      case DType::f64:
      case DType::i64:
      case DType::i8:
      case DType::u8:
      case DType::boolean:
        break;  // by way of rows of f32
    }
  }
  for (std::int64_t d = 0; d < g_.sizes.Dv; ++d) {
    for (int v = 0; v < panel.count; ++v) {
      float* place = panel.o + d * width + v * lanes;
      Simd::store(place, result(place, Simd::load(inverse + v * lanes)));
    }
  }
  for (std::int64_t lane = 0; lane < panel.rows; lane += 4) store_rows(panel, lane);
}

inline F ForwardRows::result(const float* sums, F inverse) {
  // + 0: a sum that underflowed to -0 would depend on how many masked keys came after it.
  return Simd::add(Simd::mul(Simd::load(sums), inverse), Simd::zero());
}

// Rows that lie side by side, a square of vectors at a time. Lanes beyond the last row write it again.
template <class Element, class Store>
inline __attribute__((always_inline)) void ForwardRows::store_squares(const Panel& panel, const float* inverse,
                                                                      Store store) {
  for (std::int64_t lane = 0; lane < panel.count * lanes; lane += lanes) {
    Element* rows[lanes];
    find_lanes(to_.out, panel, lane, rows);
    const F factor = Simd::load(inverse + lane);
    for_each_vector(g_.sizes.Dv, [&](std::int64_t d) {
      F x[lanes];
#pragma GCC unroll 16
      for (int i = 0; i < lanes; ++i) x[i] = result(panel.o + (d + i) * width + lane, factor);
      Simd::transpose(x);
#pragma GCC unroll 16
      for (int i = 0; i < lanes; ++i) store(rows[i] + d, x[i]);
    });
  }
}

// The same of bf16: two columns are rounded to words before they are transposed, which halves that.
inline void ForwardRows::store_pairs(const Panel& panel, const float* inverse) {
  for (std::int64_t lane = 0; lane < panel.count * lanes; lane += lanes) {
    char* rows[lanes];
    find_lanes(to_.out, panel, lane, rows);
    const F factor = Simd::load(inverse + lane);
    const auto pair = [&](std::int64_t d) {
      const float* sums = panel.o + 2 * d * width + lane;
      return round_pair(result(sums, factor), result(sums + width, factor));
    };
    for_each_square(
        g_.sizes.Dv / 2,
        [&](std::int64_t d) {
          F x[lanes];
#pragma GCC unroll 16
          for (int i = 0; i < lanes; ++i) x[i] = pair(d + i);
          Simd::transpose(x);
#pragma GCC unroll 16
          for (int i = 0; i < lanes; ++i) __builtin_memcpy(rows[i] + 4 * d, &x[i], sizeof x[i]);
        },
        [&](std::int64_t d) {
          float columns[4][lanes], row[4][4];
#pragma GCC unroll 4
          for (int i = 0; i < 4; ++i) Simd::store(columns[i], pair(d + i));
          for (int i = 0; i < lanes; i += 4) {
            transpose4(columns[0] + i, columns[1] + i, columns[2] + i, columns[3] + i, row[0], 4);
            for (int j = 0; j < 4; ++j) __builtin_memcpy(rows[i + j] + 4 * d, row[j], sizeof row[j]);
          }
        });
  }
}

// Whether every sum is a number above 0.
inline bool ForwardRows::are_ordinary(const Panel& panel) {
  for (int lane = 0; lane < width; lane += lanes) {
    const F l = Simd::load(panel.l + lane);
    const F finite = Simd::select(Simd::equal(Simd::sub(l, l), Simd::zero()), l, Simd::zero());
    if (Simd::bits(Simd::greater(finite, Simd::zero())) != below(lanes)) return false;
  }
  return true;
}

inline bool ForwardRows::has_far_sink(const Panel& panel) const {
  for (std::int64_t lane = 0; g_.sinks && lane < panel.rows; ++lane)
    if (is_far(sink_of(panel, lane))) return true;
  return false;
}

inline void ForwardRows::store_lse_of(const Panel& panel) {
  float high[width], low[width];  // in a loop of their own, which becomes vectors
  for (int lane = 0; lane < width; ++lane) {
    const Lse lse = lse_of(to_, static_cast<double>(panel.m[lane]), logarithm(panel.l[lane]));
    high[lane] = lse.high, low[lane] = lse.low;
  }
  // Mostly they lie side by side, and none needs a second look.
  if (to_.lse.row == 1 && !to_.lse_low.data && panel.first + panel.rows <= queries_ && are_ordinary(panel) &&
      !has_far_sink(panel)) {
    char* to = operand_at(to_.lse, 0, query_of(panel.first));
    __builtin_memcpy(to, high, static_cast<std::size_t>(panel.rows) * sizeof *high);
    return;
  }
  for (std::int64_t lane = 0; lane < panel.rows; ++lane) {
    const std::int64_t row = row_at(panel, lane);
    const bool sink = is_far_sink(panel, lane);
    const Lse lse = sink ? lse_of(to_, sink_of(panel, lane), 0) : Lse{high[lane], low[lane]};
    store_lse(to_, head_of(row), query_of(row), lse, sink ? 1 : static_cast<double>(panel.l[lane]));
  }
}

// The sums of four rows, to row_.
inline void ForwardRows::gather_rows(const Panel& panel, std::int64_t lane) {
  const float* from = panel.o + lane;
  for (std::int64_t d = 0; d < g_.sizes.Dv; d += 4) {
    transpose4(from + d * width, from + (d + 1) * width, from + (d + 2) * width, from + (d + 3) * width,
               row_buffer(0) + d, row_stride_);
  }
}

inline void ForwardRows::store_rows(const Panel& panel, std::int64_t lane) {
  gather_rows(panel, lane);
  for (std::int64_t i = 0; i < 4 && lane + i < panel.rows; ++i) {
    const std::int64_t row = row_at(panel, lane + i);
    char* to = operand_at(to_.out, head_of(row), query_of(row));
    store_row(row_buffer(i), to, {to_.out.dtype, to_.out.column, g_.sizes.Dv});
  }
}

}  // namespace
}  // namespace attend::inline v1::kernels
