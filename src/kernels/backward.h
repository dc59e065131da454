// The gradients of attention: the fused backward. docs/backward.md explains the loop nest.
//
// A stretch of keys stays while all queries pass by, so that its dk and dv are summed in one place.
#pragma once

#include "kernels/backward_rows.h"
#include "kernels/product.h"
#include "kernels/weights.h"

namespace attend::inline v1::kernels {
namespace {

// Keys, values and their sums in 512 KiB: they stay in the L2 cache, with room beside them for the rows that pass.
std::int64_t backward_keys(const Sizes& sizes) {
  const std::int64_t floats = 512 * 1024 / 4 / (3 * sizes.D + 2 * sizes.Dv);
  return min_of<std::int64_t>(8, max_of<std::int64_t>(1, floats / weight_keys)) * weight_keys;
}

// The work of one item: the keys [keys_begin, keys_end) of one key head. It lives at the beginning of its scratch.
template <class Dot>
class Backward : public BackwardRows, public InScratch {
 public:
  static Backward& make(const BackwardGroup& of, void* scratch) {
    return *new (scratch) Backward(of, static_cast<char*>(scratch));
  }

  static std::size_t scratch_bytes(const Sizes& sizes, const Features& features) {
    const BackwardGroup of{.forward = {.sizes = sizes, .features = features}};
    return static_cast<std::size_t>(Backward(of, nullptr).bytes_);
  }

  Backward(const BackwardGroup& of, char* scratch) : BackwardRows(of) { carve({scratch}); }

  // ---- 1. Keys and values of the item ----

  void begin() {
    const std::int64_t keys = tile_.item_keys(), given = round_up(keys_given(), key_padding);
    for (std::int64_t i = 0; i < given * q_columns_; ++i) dk_[i] = 0;
    for (std::int64_t i = 0; i < given * v_columns_; ++i) dv_[i] = 0;
    if (group.dk_sums.data) load_sums();
    if (!g_.features.decoded) tile_.pack_keys();
    tile_.pack_transposed(g_.v, g_.sizes.Dv, vt_);
    if (keys_in_place()) {
      k_ = reinterpret_cast<const float*>(tile_.key_at()(0)), k_row_ = g_.k.row;
    } else {
      k_ = k_copy_, k_row_ = q_columns_;
      pack_rows<Dot>(k_copy_, tile_.key_at(), keys, {g_.k.dtype, g_.k.column, g_.sizes.D}, q_columns_,
                     round_up(keys, key_padding), hides_);
    }
  }

  // ---- 2. Query rows against the keys of the item ----

  // Rows [first, last) of one head, at most backward_tile_rows: dq, dk, dv and the gradients of bias and ALiBi grow.
  void rows(std::int64_t head, std::int64_t first, std::int64_t last) {
    tile_.take_rows(head, first, last);
    bool fetched = false;
    for (std::int64_t key = 0; key < tile_.item_keys(); key += weight_keys) {
      if (!tile_.look(key)) continue;
      if (!fetched) fetch_rows();
      fetched = true;
      meet();
    }
  }

  // ---- 3. dk and dv of the item ----

  void end() {
    if (group.dk_sums.data) return store_sums();
    const F factor = Simd::set1(static_cast<float>(g_.rules.scale));
    const MutableRows &to_k = group.dk, &to_v = group.dv;
    for (std::int64_t j = 0; j < keys_given(); ++j) {
      float* dk = dk_ + j * q_columns_;
      for (std::int64_t d = 0; d < q_columns_; d += lanes) Simd::store(dk + d, Simd::mul(Simd::load(dk + d), factor));
      const std::int64_t key = group.keys_begin + j;
      store_row(dk, rows_at(to_k, key), {to_k.dtype, to_k.column, g_.sizes.D});
      store_row(dv_ + j * v_columns_, rows_at(to_v, key), {to_v.dtype, to_v.column, g_.sizes.Dv});
    }
  }

 private:
  // Of keys that other rows meet too.
  void load_sums() {
    for (std::int64_t j = 0; j < keys_given(); ++j) {
      const std::int64_t key = group.keys_begin + j;
      load_row(dk_ + j * q_columns_, rows_at(group.dk_sums, key), {DType::f32, 1, g_.sizes.D});
      load_row(dv_ + j * v_columns_, rows_at(group.dv_sums, key), {DType::f32, 1, g_.sizes.Dv});
    }
  }

  void store_sums() {
    for (std::int64_t j = 0; j < keys_given(); ++j) {
      const std::int64_t key = group.keys_begin + j;
      store_row(dk_ + j * q_columns_, rows_at(group.dk_sums, key), {DType::f32, 1, g_.sizes.D});
      store_row(dv_ + j * v_columns_, rows_at(group.dv_sums, key), {DType::f32, 1, g_.sizes.Dv});
    }
  }

  // ---- Scratch ----

  void carve(Scratch scratch) {
    const std::int64_t keys = backward_keys(g_.sizes), rows = weight_rows, pairs = weight_rows * weight_keys;
    scratch.take<Backward>(1);
    tile_.carve(scratch, keys);
    vt_ = scratch.take<float>(keys * round_up(v_steps_, 4));
    k_copy_ = scratch.take<float>(keys / Dot::pair * q_columns_);
    dk_ = scratch.take<float>(keys * q_columns_);
    dv_ = scratch.take<float>(keys * v_columns_);
    q_copy_ = scratch.take<float>(rows * q_columns_);
    q_columns_copy_ = scratch.take<float>(rows * q_columns_);
    o_copy_ = scratch.take<float>(rows * v_columns_);
    o_columns_copy_ = scratch.take<float>(rows * v_columns_);
    weights_ = Dot::pair == 1 && !g_.features.dropout ? tile_.p : scratch.take<float>(pairs);
    ds_ = scratch.take<float>(pairs);
    ds_rows_ = Dot::pair == 1 ? ds_ : scratch.take<float>(pairs / 2);
    delta_ = scratch.take<float>(rows);
    two_rows_ = scratch.take<float>(2 * v_columns_);
    if (g_.features.dlogits) dlogits_ = scratch.take<float>(pairs);
    if (g_.features.dropout) kept_ = scratch.take<std::uint64_t>(rows);
    bytes_ = scratch.used;
  }

  // ---- Operands ----

  std::int64_t keys_given() const { return group.keys_end - group.keys_begin; }

  // Whether the keys are read where they are; else from k_copy_.
  bool keys_in_place() const {
    const Elements of{g_.k.dtype, g_.k.column, g_.sizes.D};
    if (Dot::pair == 2 || !near<Dot>(of, g_.k.row) || of.count % lanes != 0) return false;
    const auto* keys = reinterpret_cast<const float*>(tile_.key_at()(0));
    return !hides_ || are_finite(keys, g_.k.row, tile_.item_keys(), of.count);
  }

  void fetch_rows() {
    const auto fetch = [&](const Operand& x, std::int64_t count, float* copy, float* columns_copy) {
      const auto row_at = [&](std::int64_t i) { return operand_at(x, tile_.head, tile_.first + i); };
      return fetch_panel<Dot>(row_at, tile_.rows, x.row, {x.dtype, x.column, count}, hides_, copy, columns_copy);
    };
    q_ = fetch(g_.q, g_.sizes.D, q_copy_, q_columns_copy_);
    o_ = fetch(group.dout, g_.sizes.Dv, o_copy_, o_columns_copy_);
    const auto statistics = [this](std::int64_t i) { return statistics_of(tile_.head, tile_.first + i); };
    tile_.take_queries(q_.rows, q_.row);
    tile_.take_lse(statistics);
    for (std::int64_t i = 0; i < tile_.strips * height; ++i) delta_[i] = i < tile_.rows ? statistics(i)[2] : 0;
  }

  // Which weights each row keeps.
  void draw_dropout() {
    for (std::int64_t i = 0; i < tile_.strips * height; ++i) {
      const std::uint64_t draws = dropout_row(g_.rules.dropout, tile_.head, tile_.first + i);
      kept_[i] = i < tile_.rows ? dropout_bits(g_.rules, draws, group.keys_begin + tile_.at) : 0;
    }
  }

  // ---- A tile ----

  // Steps as docs/backward.md counts them: a. weights again, b. dv, c. gradients of the scores, d. dk, e. dq.
  void meet() {
    if (g_.features.dropout) draw_dropout();
    const auto clear = [this](std::int64_t b, std::int64_t v, std::int64_t end) { clear_strip(b, v, end); };
    tile_.weigh(
        [this](auto n, const auto& s, std::int64_t i, std::int64_t v) {
          if constexpr (Dot::pair == 2) this->template store_pairs<n()>(weights_, s, i, v);
          if (g_.features.dropout) this->template drop<n()>(i, v);
        },
        clear);
    add_over_rows(dv_ + tile_.at * v_columns_, weights_, o_, v_columns_);
    if (!o_.finite) repair_values();
    for (std::int64_t b = 0; b < tile_.strips; ++b) {
      tile_.each_panel(
          b, vt_, v_steps_, [](std::int64_t, std::int64_t) {},
          [this, b](auto n, std::int64_t v, const float* operand) { this->template gradient<n()>(b, v, operand); });
    }
    if (group.dbias) add_bias();
    if (group.ddistance_bias) add_distance_bias();
    if (group.dalibi_slopes) add_slopes();
    add_over_rows(dk_ + tile_.at * q_columns_, ds_, q_, q_columns_);
    add_over_keys();
  }

  // What is not computed of a strip counts nothing.
  void clear_strip(std::int64_t b, std::int64_t v, std::int64_t end) {
    for (; v < end; ++v) {
      for (std::int64_t i = b * height; i < (b + 1) * height; ++i) {
        const std::int64_t place = i / Dot::pair * weight_keys + v * lanes;
        Simd::store(weights_ + place, Simd::zero());
        Simd::store(ds_ + place, Simd::zero());
        if constexpr (Dot::pair == 2) Dot::store_half(halves_of(i, v), Simd::zero());
        if (dlogits_) Simd::store(dlogits_ + i * weight_keys + v * lanes, Simd::zero());
      }
    }
  }

  std::uint16_t* halves_of(std::int64_t i, std::int64_t v) {
    return reinterpret_cast<std::uint16_t*>(ds_rows_) + i * weight_keys + v * lanes;
  }

  // Rows i and i + 1, ... side by side, as sums over rows take them.
  template <int N>
  static inline __attribute__((always_inline)) void store_pairs(float* to, const F (&s)[height][N], std::int64_t i,
                                                                std::int64_t v) {
#pragma GCC unroll 4
    for (int r = 0; r < height; r += 2) {
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) {
        Simd::store(to + (i + r) / 2 * weight_keys + (v + n) * lanes, Dot::step(s[r][n], s[r + 1][n]));
      }
    }
  }

  // The weights that dropout leaves; the tile's stay whole.
  template <int N>
  void drop(std::int64_t i, std::int64_t v) {
    F s[height][N];
    for (int r = 0; r < height; ++r) {
      for (int n = 0; n < N; ++n) {
        const std::int64_t place = (i + r) * weight_keys + (v + n) * lanes;
        s[r][n] = kept(Simd::load(tile_.p + place), i + r, v + n);
        if (Dot::pair == 1) Simd::store(weights_ + place, s[r][n]);
      }
    }
    if constexpr (Dot::pair == 2) store_pairs<N>(weights_, s, i, v);
  }

  F kept(F x, std::int64_t i, std::int64_t v) const {
    return Simd::select(tile_.lanes_of(kept_[i], v), Simd::mul(x, Simd::set1(dropout_factor(g_.rules))), Simd::zero());
  }

  // c. Gradients of the scores, of a strip and N vectors of keys.
  template <int N>
  __attribute__((noinline)) void gradient(std::int64_t b, std::int64_t v, const float* operand) {
    F s[height][N];
#pragma GCC unroll 8
    for (int r = 0; r < height; ++r) {
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) s[r][n] = Simd::zero();
    }
    multiply<Dot, height, 0, N, N>(s, o_.rows + b * height * o_.row, o_.row, 1, operand, v_steps_);
    if (tile_.masked[b] || g_.features.dropout)
      differentiate<N, true>(s, b, v);
    else
      differentiate<N, false>(s, b, v);
  }

  template <int N, bool Careful>
  inline __attribute__((always_inline)) void differentiate(F (&s)[height][N], std::int64_t b, std::int64_t v) {
    const std::int64_t i = b * height;
    // The value of a masked key may be NaN, and so may the slope of its curve.
    const auto seen = [&](F x, int r, int n) {
      if (!Careful || !tile_.masked[b]) return x;
      return Simd::select(tile_.lanes_of(tile_.bits[i + r], v + n), x, Simd::zero());
    };
#pragma GCC unroll 8
    for (int r = 0; r < height; ++r) {
      const F delta = Simd::set1(delta_[i + r]);
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) {
        const std::int64_t at = (i + r) * weight_keys + (v + n) * lanes;
        if (Careful && g_.features.dropout) s[r][n] = kept(s[r][n], i + r, v + n);
        s[r][n] = seen(Simd::mul(Simd::load(tile_.p + at), Simd::sub(s[r][n], delta)), r, n);
        if (dlogits_) Simd::store(dlogits_ + at, s[r][n]);
        if (tile_.curve_slopes) s[r][n] = seen(Simd::mul(s[r][n], Simd::load(tile_.curve_slopes + at)), r, n);
        if (Dot::pair == 1) Simd::store(ds_ + at, s[r][n]);
        if constexpr (Dot::pair == 2) Dot::store_half(halves_of(i + r, v + n), s[r][n]);
      }
    }
    if constexpr (Dot::pair == 2) store_pairs<N>(ds_, s, i, v);
  }

  // ---- Sums ----

  // b. and d.: sums[key] += sum over the rows of a[row][key] * x[row]; sums [weight_keys][columns].
  void add_over_rows(float* sums, const float* a, const RowPanel& x, std::int64_t columns) {
    for_each_group(columns, [&](std::int64_t column, std::int64_t n) {
      for (std::int64_t key = 0; key < tile_.keys; key += height) {
        std::int64_t begin = tile_.strips, end = 0;  // strips that see some of these keys
        for (std::int64_t b = 0; b < tile_.strips; ++b) {
          if (tile_.first_vector[b] * lanes >= key + height || tile_.last_vector[b] * lanes <= key) continue;
          begin = min_of(begin, b), end = b + 1;
        }
        if (begin >= end) continue;
        const std::int64_t step = begin * height / Dot::pair;
        add_product<Dot>(n, {.c = sums + key * columns + column,
                             .c_row = columns,
                             .a = a + step * weight_keys + key,
                             .a_row = 1,
                             .a_step = weight_keys,
                             .b = x.columns + step * x.column_row + column,
                             .b_row = x.column_row,
                             .steps = (end - begin) * height / Dot::pair});
      }
    });
  }

  // e. dq[row] += scale * sum over the keys of ds[row][key] * k[key].
  void add_over_keys() {
    const float scale = static_cast<float>(g_.rules.scale);
    for_each_group(q_columns_, [&](std::int64_t column, std::int64_t n) {
      for (std::int64_t b = 0; b < tile_.strips; ++b) {
        const std::int64_t begin = tile_.first_vector[b] * lanes;
        const std::int64_t end = min_of<std::int64_t>(tile_.last_vector[b] * lanes, round_up(tile_.keys, Dot::pair));
        if (begin >= end) continue;
        add_product<Dot>(n, {.c = dq_row(tile_.head, tile_.first + b * height) + column,
                             .c_row = group.dq_row,
                             .a = ds_rows_ + (b * height * weight_keys + begin) / Dot::pair,
                             .a_row = weight_keys / Dot::pair,
                             .a_step = 1,
                             .b = k_ + (tile_.at + begin) / Dot::pair * k_row_ + column,
                             .b_row = k_row_,
                             .steps = (end - begin) / Dot::pair,
                             .factor = scale,
                             .rows = min_of<std::int64_t>(height, tile_.rows - b * height)});
      }
    });
  }

  // What is not finite of dout was left out of dv: for the keys that the row sees.
  void repair_values() {
    const auto row_at = [&](std::int64_t i) { return operand_at(group.dout, tile_.head, tile_.first + i); };
    const Elements of{group.dout.dtype, group.dout.column, g_.sizes.Dv};
    for_each_not_finite(row_at, tile_.rows, of, [&](std::int64_t i, std::int64_t d, float value) {
      const std::uint64_t seen = tile_.seen(i) & (kept_ ? kept_[i] : ~std::uint64_t{0});
      for (std::int64_t j = 0; j < tile_.keys; ++j) {
        if (seen >> j & 1) dv_[(tile_.at + j) * v_columns_ + d] += tile_.p[i * weight_keys + j] * value;
      }
    });
  }

  // ---- Gradients of options ----

  // Sums along an axis of a tile first, where the bias was broadcast along it.
  void add_bias() {
    const std::int64_t row = group.dbias_row, column = group.dbias_column;
    float* to = group.dbias + tile_.head * group.dbias_head + tile_.first * row +
                (group.keys_begin + tile_.at - group.dbias_key) * column;
    if (row == 0) {
      float sums[weight_keys] = {};
      for (std::int64_t i = 0; i < tile_.rows; ++i) {
        for (std::int64_t j = 0; j < weight_keys; ++j) sums[j] += dlogits_[i * weight_keys + j];
      }
      return add_bias_row(to, sums, column);
    }
    for (std::int64_t i = 0; i < tile_.rows; ++i) add_bias_row(to + i * row, dlogits_ + i * weight_keys, column);
  }

  void add_bias_row(float* to, const float* from, std::int64_t column) const {
    if (column != 0) {
      for (std::int64_t j = 0; j < tile_.keys; ++j) to[j * column] += from[j];
      return;
    }
    float sum = 0;
    for (std::int64_t j = 0; j < tile_.keys; ++j) sum += from[j];
    *to += sum;
  }

  // Keys beyond the reach share the first or the last entry.
  void add_distance_bias() {
    double* to = group.ddistance_bias + tile_.head * (2 * g_.reach + 1);
    for (std::int64_t i = 0; i < tile_.rows; ++i) {
      const float* row = dlogits_ + i * weight_keys;
      const Reach reach = reach_of(g_, tile_.first + i + g_.rules.offset, group.keys_begin + tile_.at, tile_.keys);
      for (std::int64_t j = 0; j < reach.near; ++j) to[0] += static_cast<double>(row[j]);
      for (std::int64_t j = reach.near; j < reach.far; ++j)
        to[reach.first + j - reach.near] += static_cast<double>(row[j]);
      for (std::int64_t j = reach.far; j < tile_.keys; ++j) to[2 * g_.reach] += static_cast<double>(row[j]);
    }
  }

  void add_slopes() {
    for (std::int64_t i = 0; i < tile_.rows; ++i) {
      F sum = Simd::zero();
      for (std::int64_t v = 0; v < key_vectors; ++v) {
        sum = Simd::fma(tile_.distance(i, v), Simd::load(dlogits_ + i * weight_keys + v * lanes), sum);
      }
      float lane[lanes];
      Simd::store(lane, sum);
      for (const float x : lane) group.dalibi_slopes[tile_.head] -= static_cast<double>(x);
    }
  }

  const std::int64_t q_steps_ = (g_.sizes.D + Dot::pair - 1) / Dot::pair;
  const std::int64_t v_steps_ = (g_.sizes.Dv + Dot::pair - 1) / Dot::pair;
  // Whether some pair may be hidden, so that what is not finite needs care.
  const bool hides_ = has_window(g_.rules) || g_.features.mask || has_biases(g_.features);
  WeightTile<Dot> tile_{g_, group.keys_begin, group.keys_end};
  std::int64_t bytes_ = 0;
  float *vt_ = nullptr, *k_copy_ = nullptr, *dk_ = nullptr, *dv_ = nullptr;
  float *q_copy_ = nullptr, *q_columns_copy_ = nullptr, *o_copy_ = nullptr, *o_columns_copy_ = nullptr;
  float *weights_ = nullptr, *ds_ = nullptr, *ds_rows_ = nullptr, *dlogits_ = nullptr, *delta_ = nullptr;
  std::uint64_t* kept_ = nullptr;
  const float* k_ = nullptr;  // rows of keys, as dq takes them: where they are, or k_copy_
  std::int64_t k_row_ = 0;
  RowPanel q_{}, o_{};
};

}  // namespace
}  // namespace attend::inline v1::kernels
