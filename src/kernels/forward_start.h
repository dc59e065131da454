// The forward before its first tile: the queries as the products take them, what each row sees, and its sums as earlier
// keys left them.
#pragma once

#include "kernels/forward_rows.h"

namespace attend::inline v1::kernels {
namespace {

template <class Dot>
inline void ForwardRows::prepare(std::int64_t steps) {
  for (std::int64_t p = 0; p < panels_; ++p) {
    Panel& panel = panel_[p];
    panel.first = p * width;
    panel.rows = min_of<std::int64_t>(width, rows_ - panel.first);
    panel.count = static_cast<int>((panel.rows + lanes - 1) / lanes);
    panel.q = q_ + p * round_up(steps, 4) * width;
    panel.o = o_ + p * round_up(g_.sizes.Dv, 4) * width;
    panel.m = m_ + p * width;
    panel.l = l_ + p * width;
    panel.rounded_l = rounded_l_ + p * width;
    panel.ranges = {ranges_ + p * width};
    find_rows(panel);
    pack_queries<Dot>(panel, steps);
    start_sums(panel);
    if (to_.sums.data) load_sums(panel);
  }
}

// Where the elements of a query lie side by side, they are read in squares of vectors.
template <class Dot>
inline void ForwardRows::pack_queries(Panel& panel, std::int64_t steps) {
  if constexpr (Dot::pair == 2) {
    const bool as_they_are = g_.rules.scale > 0;  // else there is a sign to take, or a 0
    if (as_they_are && g_.q.column == 1 && are_pairs(g_.sizes.D)) return load_pairs(panel, steps);
  }
  if (Dot::pair == 1 && g_.q.column == 1 && g_.sizes.D >= lanes) {
    switch (g_.q.dtype) {
      case DType::f32:
        return load_squares<float>(panel, [](const float* p) { return Simd::load(p); });
      case DType::bf16:
        return load_squares<std::uint16_t>(panel, [](const std::uint16_t* p) { return Simd::load_bf16(p); });
      case DType::f16:
        return load_squares<std::uint16_t>(panel, [](const std::uint16_t* p) { return Simd::load_f16(p); });
      case DType::f64:
      case DType::i64:
      case DType::i8:
      case DType::u8:
      case DType::boolean:
        break;  // none of them comes here
    }
  }
  for (std::int64_t lane = 0; lane < panel.count * lanes; lane += 4) {
    for (std::int64_t i = 0; i < 4; ++i) {
      const std::int64_t row = row_at(panel, lane + i);
      load_query<Dot>(g_, head_of(row), query_of(row), row_buffer(i), steps);
    }
    transpose_rows(row_, row_stride_, steps, panel.q + lane);
  }
}

// Whether so many elements of 16 bits are read and written as pairs, a word each.
inline bool ForwardRows::are_pairs(std::int64_t count) {
  return count >= 2 * lanes && count % 2 == 0;
}

inline void ForwardRows::load_pairs(const Panel& panel, std::int64_t steps) {
  for (std::int64_t lane = 0; lane < panel.count * lanes; lane += lanes) {
    const float* rows[lanes];
    find_lanes(g_.q, panel, lane, rows);
    float* to = panel.q + lane;
    for_each_square(
        steps,
        [&](std::int64_t d) {
          F x[lanes];
#pragma GCC unroll 16
          for (int i = 0; i < lanes; ++i) x[i] = Simd::load(rows[i] + d);
          Simd::transpose(x);
#pragma GCC unroll 16
          for (int i = 0; i < lanes; ++i) Simd::store(to + (d + i) * width, x[i]);
        },
        [&](std::int64_t d) {
          for (int i = 0; i < lanes; i += 4)
            transpose4(rows[i] + d, rows[i + 1] + d, rows[i + 2] + d, rows[i + 3] + d, to + d * width + i, width);
        });
  }
}

// square(d) for whole squares of vectors, and four(d) for what is left of `count`: four at a time, as whole squares
// would be mostly done before. Some of the last four may be done twice. count >= lanes.
template <class Square, class Four>
inline __attribute__((always_inline)) void ForwardRows::for_each_square(std::int64_t count, Square square, Four four) {
  std::int64_t d = 0;
  for (; d + lanes <= count; d += lanes) square(d);
  for (; d < count; d += 4) four(min_of(d, count - 4));
}

template <class Element, class Load>
inline __attribute__((always_inline)) void ForwardRows::load_squares(const Panel& panel, Load load) {
  const F factor = Simd::set1(score_factor(g_.rules));
  for (std::int64_t lane = 0; lane < panel.count * lanes; lane += lanes) {
    const Element* rows[lanes];
    find_lanes(g_.q, panel, lane, rows);
    for_each_vector(g_.sizes.D, [&](std::int64_t d) {
      F x[lanes];
#pragma GCC unroll 16
      for (int i = 0; i < lanes; ++i) x[i] = Simd::mul(load(rows[i] + d), factor);
      Simd::transpose(x);
#pragma GCC unroll 16
      for (int i = 0; i < lanes; ++i) Simd::store(panel.q + (d + i) * width + lane, x[i]);
    });
  }
}

// Where the rows of a vector's lanes lie.
template <class Operand, class Element>
inline void ForwardRows::find_lanes(const Operand& of, const Panel& panel, std::int64_t lane,
                                    Element* (&rows)[lanes]) const {
  const std::int64_t first = panel.first + lane;
  if (first + lanes <= min_of(rows_, queries_)) {
    auto* begin = operand_at(of, 0, query_of(first));
    const std::int64_t row = of.row * bytes_of(of.dtype);
    for (int i = 0; i < lanes; ++i) rows[i] = reinterpret_cast<Element*>(begin + i * row);
    return;
  }
  for (int i = 0; i < lanes; ++i) {
    const std::int64_t row = row_at(panel, lane + i);
    rows[i] = reinterpret_cast<Element*>(operand_at(of, head_of(row), query_of(row)));
  }
}

// What each tile asks for again, and finds without a division. Where all rows are alike there is no need of any.
inline void ForwardRows::find_rows(Panel& panel) {
  if (!has_window(g_.rules) && !mask_rows_ && !bias_rows_ && !draws_ && !slopes_) {
    for (std::int64_t lane = 0; lane < width; ++lane) panel.ranges.row[lane] = {0, g_.rules.key_length};
    return panel.ranges.add(0, panel.ranges.row[0]);
  }
  for (std::int64_t lane = 0; lane < width; ++lane) {
    const std::int64_t row = row_at(panel, lane), head = head_of(row), query = query_of(row), i = panel.first + lane;
    panel.ranges.add(lane, visible_keys(g_.rules, query));
    if (mask_rows_) mask_rows_[i] = operand_at(g_.mask, head, query);
    if (bias_rows_) bias_rows_[i] = bias_row(g_, head, query);
    if (draws_) draws_[i] = dropout_row(g_.rules.dropout, head, query);
    if (!slopes_) continue;
    slopes_[i] = slope_of(g_, head);
    places_[i] = query + g_.rules.offset;
  }
}

inline void ForwardRows::start_sums(Panel& panel) {
  panel.summed = false;
  for (std::int64_t lane = 0; lane < width; ++lane) {
    panel.m[lane] = no_maximum;
    panel.l[lane] = panel.rounded_l[lane] = 0;
    if (!g_.sinks) continue;
    const FirstScore first = first_score(sink_of(panel, lane));
    panel.m[lane] = first.m, panel.l[lane] = panel.rounded_l[lane] = first.l;
  }
}

// A row's sink, in log2 units.
inline double ForwardRows::sink_of(const Panel& panel, std::int64_t lane) const {
  return g_.sinks[head_of(row_at(panel, lane))] * log2_e;
}

inline ForwardRows::FirstScore ForwardRows::first_score(double sink) {
  const double within = max_of<double>(-FLT_MAX, min_of<double>(sink, FLT_MAX));
  const auto m = static_cast<float>(within);
  // What m's rounding lost is in l. From 2^30 on that may be more than l holds; half a step of m is then what any
  // logit of this size is known to, and where no logit came to the sink, the row's lse is the sink's own.
  const double lost = sink - static_cast<double>(m);
  return {m, static_cast<float>(__builtin_exp2(within == sink ? max_of(-64.0, min_of(lost, 64.0)) : lost))};
}

inline bool ForwardRows::is_far(double sink) {
  return __builtin_fabs(sink) >= 0x1p30;
}

// Whether a row's sum is still that of its sink, and may have lost a part of it.
inline bool ForwardRows::is_far_sink(const Panel& panel, std::int64_t lane) const {
  if (!g_.sinks || !is_far(sink_of(panel, lane))) return false;
  const FirstScore first = first_score(sink_of(panel, lane));
  return panel.m[lane] == first.m && panel.l[lane] == first.l;
}

inline float* ForwardRows::sums_at(const Panel& panel, std::int64_t lane) {
  const std::int64_t row = row_at(panel, lane);
  return reinterpret_cast<float*>(operand_at(to_.sums, head_of(row), query_of(row)));
}

// As earlier keys left them.
inline void ForwardRows::load_sums(Panel& panel) {
  const std::int64_t Dv = g_.sizes.Dv;
  panel.summed = true;
  for (std::int64_t lane = 0; lane < width; lane += 4) {
    for (std::int64_t i = 0; i < 4; ++i) {
      const float *from = sums_at(panel, lane + i), *numbers = from + Dv;
      const bool begun = !(numbers[1] < 0);
      float* to = row_buffer(i);
      for (std::int64_t d = 0; d < Dv; ++d) to[d] = begun ? from[d] : 0;
      for (std::int64_t d = Dv; d < round_up(Dv, 4); ++d) to[d] = 0;
      if (!begun) continue;
      panel.m[lane + i] = numbers[0], panel.l[lane + i] = numbers[1], panel.rounded_l[lane + i] = numbers[2];
    }
    transpose_rows(row_, row_stride_, Dv, panel.o + lane);
  }
}

// For later keys.
inline void ForwardRows::store_sums(const Panel& panel) {
  const std::int64_t Dv = g_.sizes.Dv;
  for (std::int64_t lane = 0; lane < panel.rows; lane += 4) {
    gather_rows(panel, lane);
    for (std::int64_t i = lane; i < lane + 4 && i < panel.rows; ++i) {
      float *to = sums_at(panel, i), *numbers = to + Dv;
      __builtin_memcpy(to, row_buffer(i - lane), static_cast<std::size_t>(Dv) * sizeof *to);
      numbers[0] = panel.m[i], numbers[1] = panel.l[i], numbers[2] = panel.rounded_l[i];
    }
  }
}

}  // namespace
}  // namespace attend::inline v1::kernels
