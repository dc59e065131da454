// The products of the backward: rows that are read in both directions, and sums over rows or keys in the register tile.
#pragma once

#include "kernels/operand.h"

namespace attend::inline v1::kernels {
namespace {

// ---- Rows ----

// Rows of q or dout, in the forms of the products over columns and of those over rows.
struct RowPanel {
  const float* rows;  // each row's elements or pairs of elements; not finite where they are not
  std::int64_t row;
  const float* columns;  // [rows or pairs of rows][columns], with 0 for what is not finite
  std::int64_t column_row;
  bool finite;
};

// Whether rows can be multiplied where they are: side by side as they are needed, and near each other, since rows far
// apart fall into the same few places of the L1 cache.
template <class Dot>
bool near(Elements of, std::int64_t row) {
  const DType native = Dot::pair == 1 ? DType::f32 : DType::bf16;
  return of.dtype == native && of.stride == 1 && row > 0 && row <= 2 * of.count && of.count % Dot::pair == 0 &&
         row % Dot::pair == 0;
}

// Rows that begin at row_at(0), ..., `row` elements apart, as they are or copied, filled up with zeros to whole strips
// of `height`. `careful`: something may be hidden, so that what is not finite must not be multiplied. Each copy has
// room for the strips' rows of whole vectors.
template <class Dot, class RowAt>
RowPanel fetch_panel(RowAt row_at, std::int64_t rows, std::int64_t row, Elements of, bool careful, float* copy,
                     float* columns_copy) {
  const std::int64_t columns = round_up(of.count, lanes), padded = round_up(rows, height);
  const std::int64_t steps = Dot::pair == 1 ? columns : (of.count + 1) / 2;
  RowPanel panel{copy, steps, columns_copy, columns, true};
  const bool in_place = near<Dot>(of, row) && rows == padded;
  if (in_place) {
    panel.rows = reinterpret_cast<const float*>(row_at(0)), panel.row = row / Dot::pair;
  } else {
    for (std::int64_t i = 0; i < rows; ++i) load_operand<Dot>(copy + i * steps, row_at(i), of, steps);
    for (std::int64_t i = rows * steps; i < padded * steps; ++i) copy[i] = 0;
  }
  if (Dot::pair == 1 && (!in_place || of.count % lanes == 0)) {
    panel.finite = !careful || are_finite(panel.rows, panel.row, rows, of.count);
    if (panel.finite) {
      panel.columns = panel.rows, panel.column_row = panel.row;
      return panel;
    }
  }
  panel.finite = pack_rows<Dot>(columns_copy, row_at, rows, of, columns, padded, careful);
  return panel;
}

// ---- Sums ----

// c[r][n] += factor * (sum over the steps s of a[r * a_row + s * a_step] * b[s * b_row + n * lanes ...]) for the first
// `rows` of R rows. The steps' own sum begins at 0: sums of 64 lose less than a sum of all.
struct Product {
  float* c;
  std::int64_t c_row;
  const float* a;
  std::int64_t a_row, a_step;
  const float* b;
  std::int64_t b_row;
  std::int64_t steps;
  float factor = 1;
  std::int64_t rows = height;
};

template <class Dot, int N>
__attribute__((noinline)) void add_product(const Product& x) {
  F sums[height][N];
#pragma GCC unroll 8
  for (int r = 0; r < height; ++r) {
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) sums[r][n] = Simd::zero();
  }
  multiply<Dot, height, 0, N, N>(sums, x.a, x.a_row, x.a_step, x.b, x.steps, x.b_row);
  const F f = Simd::set1(x.factor);
  // Not through x: after each store it would be read again.
  float* const c = x.c;
  const std::int64_t c_row = x.c_row, rows = x.rows;
#pragma GCC unroll 8
  for (int r = 0; r < height; ++r) {
    if (r >= rows) return;
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
      float* place = c + r * c_row + n * lanes;
      Simd::store(place, Simd::fma(sums[r][n], f, Simd::load(place)));
    }
  }
}

// The same of n vectors, at most those of the register tile.
template <class Dot>
void add_product(std::int64_t n, const Product& x) {
  if (n == 1) return add_product<Dot, 1>(x);
  if (n == 2) return add_product<Dot, 2>(x);
  if constexpr (vectors == 3) add_product<Dot, 3>(x);
}

// body(column, vectors) for columns in groups of at most `vectors` vectors; two of two rather than one of three and a
// single one, which would not keep the multipliers busy.
template <class Body>
void for_each_group(std::int64_t columns, Body body) {
  std::int64_t left = columns / lanes;
  for (std::int64_t at = 0; left > 0;) {
    const std::int64_t take = left == vectors + 1 ? 2 : min_of<std::int64_t>(vectors, left);
    body(at * lanes, take);
    at += take, left -= take;
  }
}

}  // namespace
}  // namespace attend::inline v1::kernels
