// The gradients of attention: the fused backward. A file that includes this has included a vector layer `Simd` before.
//
// Keys stand in lanes: scores are held [queries][keys], and a stretch of keys stays while all queries pass by, so that
// its dk and dv are summed in one place. docs/backward.md explains the loop nest.
#pragma once

#include "kernels/common_kernels.h"

namespace attend::kernels {
namespace {

constexpr int pair_keys = backward_tile_keys;
static_assert(pair_keys % width == 0 && backward_tile_rows % block == 0 && block % 2 == 0);
constexpr int key_vectors = pair_keys / lanes;
constexpr int row_blocks = backward_tile_rows / block;

// c[r][n] += factor * (sum over the steps s of a[r * a_row + s * a_step] * b[s * b_row + n * lanes ...]) for the first
// `rows` of R rows. The steps' own sum begins at 0: sums of 64 lose less than a sum of all.
template <class Dot, int R, int N>
__attribute__((noinline)) void add_product(float* c, std::int64_t c_row, const float* a, std::int64_t a_row,
                                           std::int64_t a_step, const float* b, std::int64_t b_row, std::int64_t steps,
                                           float factor, std::int64_t rows) {
  F sums[R][N];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) sums[r][n] = Simd::zero();
  }
  multiply<Dot, R, 0, N, N>(sums, a, a_row, a_step, b, steps, b_row);
  const F f = Simd::set1(factor);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    if (r >= rows) return;
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
      float* place = c + r * c_row + n * lanes;
      Simd::store(place, Simd::fma(sums[r][n], f, Simd::load(place)));
    }
  }
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

// Keys, values and their sums in 512 KiB: they stay in the L2 cache, with room beside them for the rows that pass.
std::int64_t backward_keys(const Sizes& sizes) {
  const std::int64_t floats = 512 * 1024 / 4 / (3 * sizes.D + 2 * sizes.Dv);
  return min_of<std::int64_t>(8, max_of<std::int64_t>(1, floats / pair_keys)) * pair_keys;
}

// The work of one item: the keys [keys_begin, keys_end) of one key head. It lives at the beginning of its scratch.
template <class Dot>
class Backward : public BackwardItem {
 public:
  static Backward& make(const BackwardGroup& group, void* scratch) {
    return *new (scratch) Backward(group, static_cast<char*>(scratch));
  }

  static std::size_t scratch_bytes(const Sizes& sizes, const Features& features) {
    Backward x({.forward = {.sizes = sizes, .features = features}}, nullptr);
    return static_cast<std::size_t>(x.carve({}));
  }

  Backward(const BackwardGroup& of, char* scratch) : BackwardItem{of} {
    q_steps_ = (g_.sizes.D + Dot::pair - 1) / Dot::pair;
    v_steps_ = (g_.sizes.Dv + Dot::pair - 1) / Dot::pair;
    q_columns_ = round_up(g_.sizes.D, lanes);
    v_columns_ = round_up(g_.sizes.Dv, lanes);
    hides_ = g_.rules.causal || g_.rules.window_left >= 0 || g_.rules.window_right >= 0 || g_.features.mask ||
             g_.features.bias;
    keeps_logits_ = g_.features.dlogits;
    carve({scratch});
  }

  // ---- 1. Keys and values of the item ----

  void begin() {
    const std::int64_t keys = round_up(keys_here(), pair_keys);
    const std::int64_t given = round_up(keys_given(), pair_keys);
    for (std::int64_t i = 0; i < given * q_columns_; ++i) dk_[i] = 0;
    for (std::int64_t i = 0; i < given * v_columns_; ++i) dv_[i] = 0;
    // Scores of f32 get their factor with the keys; those of bf16 products are multiplied later, in f32.
    pack_transposed(g_.k, g_.sizes.D, q_steps_, Dot::pair == 1 ? late_scale() : 1, kt_);
    pack_transposed(g_.v, g_.sizes.Dv, v_steps_, 1, vt_);
    copied_ = !keys_in_place();
    if (copied_) pack_columns(key_at(), g_.k.dtype, g_.k.column, g_.sizes.D, q_columns_, keys_here(), keys, k_copy_);
  }

  // ---- 2. Query rows, before the first item that meets them ----

  // What every key needs to know of them, and dq = 0.
  void start_rows(std::int64_t head, std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      float lse, dlse = 0;
      __builtin_memcpy(&lse, operand_at(b_.lse, head, i), 4);
      if (b_.dlse.data) __builtin_memcpy(&dlse, operand_at(b_.dlse, head, i), 4);
      float* statistics = statistics_of(head, i);
      // A row with nothing to attend to: its weights are 2^(score - FLT_MAX) = 0.
      statistics[0] = lse == -infinity ? FLT_MAX : static_cast<float>(static_cast<double>(lse) / ln_2);
      statistics[1] = dot(head, i) - dlse;
      float* dq = dq_row(head, i);
      for (std::int64_t d = 0; d < q_columns_; ++d) dq[d] = 0;
    }
  }

  // ---- 3. Query rows against the keys of the item ----

  // Rows [first, last) of one head, at most backward_tile_rows: dq, dk, dv and the gradients of bias and ALiBi grow.
  void rows(std::int64_t head, std::int64_t first, std::int64_t last) {
    head_ = head, first_ = first, rows_ = last - first;
    blocks_ = (rows_ + block - 1) / block;
    k_ = copied_ ? k_copy_ : reinterpret_cast<const float*>(key_at()(0));
    k_row_ = copied_ ? q_columns_ : g_.k.row;
    find_ranges();
    bool fetched = false;
    for (std::int64_t at = 0; at < keys_here(); at += pair_keys) {
      at_ = at, start_ = b_.keys_begin + at, keys_ = min_of<std::int64_t>(pair_keys, keys_here() - at);
      if (max_hi_ <= start_ || min_lo_ >= start_ + keys_ || !look()) continue;
      if (!fetched) fetch_rows();
      fetched = true;
      meet();
    }
  }

  // dq as it is wanted, after the last item.
  void finish_rows(std::int64_t head, std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      store_row(dq_row(head, i), b_.dq_out.dtype, operand_at(b_.dq_out, head, i), b_.dq_out.column, g_.sizes.D);
    }
  }

  // ---- 4. dk and dv of the item ----

  void end() {
    const F factor = Simd::set1(static_cast<float>(g_.rules.scale));
    for (std::int64_t j = 0; j < keys_given(); ++j) {
      float* dk = dk_ + j * q_columns_;
      for (std::int64_t d = 0; d < q_columns_; d += lanes) Simd::store(dk + d, Simd::mul(Simd::load(dk + d), factor));
      const std::int64_t key = b_.keys_begin + j;
      store_row(dk, b_.dk.dtype, rows_at(b_.dk, key), b_.dk.column, g_.sizes.D);
      store_row(dv_ + j * v_columns_, b_.dv.dtype, rows_at(b_.dv, key), b_.dv.column, g_.sizes.Dv);
    }
  }

 private:
  // Query rows, or rows of dout, as the products take them.
  struct Panel {
    const float* rows;  // each row's elements or pairs of elements; not finite where they are not
    std::int64_t row;
    const float* columns;  // [rows or pairs of rows][columns], with 0 for what is not finite
    std::int64_t column_row;
    bool finite;
  };

  // ---- Scratch ----

  std::int64_t carve(Scratch scratch) {
    const std::int64_t keys = backward_keys(g_.sizes), rows = backward_tile_rows;
    scratch.take<Backward>(1);
    kt_ = scratch.take<float>(keys * round_up(q_steps_, 4));
    vt_ = scratch.take<float>(keys * round_up(v_steps_, 4));
    k_copy_ = scratch.take<float>(keys / Dot::pair * q_columns_);
    dk_ = scratch.take<float>(keys * q_columns_);
    dv_ = scratch.take<float>(keys * v_columns_);
    q_copy_ = scratch.take<float>(rows * q_columns_);
    q_columns_copy_ = scratch.take<float>(rows * q_columns_);
    o_copy_ = scratch.take<float>(rows * v_columns_);
    o_columns_copy_ = scratch.take<float>(rows * v_columns_);
    p_ = scratch.take<float>(rows * pair_keys);
    weights_ = Dot::pair == 1 && !g_.features.dropout ? p_ : scratch.take<float>(rows * pair_keys);
    ds_ = scratch.take<float>(rows * pair_keys);
    ds_rows_ = Dot::pair == 1 ? ds_ : scratch.take<float>(rows / 2 * pair_keys);
    lse_ = scratch.take<float>(rows);
    delta_ = scratch.take<float>(rows);
    if (g_.features.softcap) slope_ = scratch.take<float>(rows * pair_keys);
    if (g_.features.bias) bias_ = scratch.take<float>(rows * pair_keys);
    if (keeps_logits_) dlogits_ = scratch.take<float>(rows * pair_keys);
    row_stride_ = round_up(max_of(q_columns_, v_columns_), 16) + 16;
    row_ = scratch.take<float>(4 * row_stride_);
    lo_ = scratch.take<std::int64_t>(rows);
    hi_ = scratch.take<std::int64_t>(rows);
    bits_ = scratch.take<std::uint64_t>(rows);
    kept_ = scratch.take<std::uint64_t>(rows);
    return scratch.used;
  }

  // One of the four rows at row_.
  float* row_buffer(std::int64_t i) { return row_ + i * row_stride_; }

  // ---- Places ----

  float late_scale() const { return static_cast<float>(g_.rules.scale * 1.44269504088896340736); }
  std::int64_t keys_given() const { return b_.keys_end - b_.keys_begin; }
  std::int64_t keys_here() const {
    return max_of<std::int64_t>(0, min_of(b_.keys_end, g_.rules.key_length) - b_.keys_begin);
  }
  auto key_at() const {
    return [this](std::int64_t j) { return rows_at(g_.k, b_.keys_begin + j); };
  }
  float* statistics_of(std::int64_t head, std::int64_t i) const { return b_.statistics + (head * b_.queries + i) * 2; }
  float* dq_row(std::int64_t head, std::int64_t i) const { return b_.dq + head * b_.dq_head + i * b_.dq_row; }

  // dout . out of one row.
  float dot(std::int64_t head, std::int64_t i) {
    float *a = row_buffer(0), *c = row_buffer(1), lane[lanes];
    for (std::int64_t d = v_columns_ - lanes; d < v_columns_; ++d) a[d] = c[d] = 0;
    load_row(a, b_.dout.dtype, operand_at(b_.dout, head, i), b_.dout.column, g_.sizes.Dv);
    load_row(c, b_.out.dtype, operand_at(b_.out, head, i), b_.out.column, g_.sizes.Dv);
    F sum = Simd::zero();
    for (std::int64_t d = 0; d < v_columns_; d += lanes) sum = Simd::fma(Simd::load(a + d), Simd::load(c + d), sum);
    Simd::store(lane, sum);
    for (int half = lanes / 2; half > 0; half /= 2) {
      for (int n = 0; n < half; ++n) lane[n] += lane[n + half];
    }
    return lane[0];
  }

  // ---- Operands ----

  // One row as the products take it, into `to` [steps * pair]; zeros beyond the last element.
  static void load_operand(const char* from, DType dtype, std::int64_t column, std::int64_t count, std::int64_t steps,
                           float factor, float* to) {
    if constexpr (Dot::pair == 1) {
      load_row(to, dtype, from, column, count, factor);
      for (std::int64_t d = count; d < steps; ++d) to[d] = 0;
    } else {
      copy_halves(reinterpret_cast<std::uint16_t*>(to), from, column, count, 2 * steps);
    }
  }

  // Keys as the scores take them: for each `width` keys [steps][width], zeros beyond the last key.
  void pack_transposed(const Rows& x, std::int64_t count, std::int64_t steps, float factor, float* to) {
    const std::int64_t padded = round_up(steps, 4);
    for (std::int64_t j = 0; j < round_up(keys_here(), pair_keys); j += 4) {
      for (std::int64_t i = 0; i < 4; ++i) {
        float* row = row_buffer(i);
        if (j + i < keys_here()) {
          load_operand(rows_at(x, b_.keys_begin + j + i), x.dtype, x.column, count, padded, factor, row);
        } else {
          for (std::int64_t s = 0; s < padded; ++s) row[s] = 0;
        }
      }
      float* panel = to + j / width * width * padded + j % width;
      for (std::int64_t s = 0; s < padded; s += 4) {
        transpose4(row_buffer(0) + s, row_buffer(1) + s, row_buffer(2) + s, row_buffer(3) + s, panel + s * width,
                   width);
      }
    }
  }

  // Whether all elements of some rows of f32 are finite.
  static bool are_finite(const float* rows, std::int64_t row, std::int64_t count_rows, std::int64_t count) {
    F sum = Simd::zero();
    float last = 0;
    for (std::int64_t i = 0; i < count_rows; ++i, rows += row) {
      std::int64_t d = 0;
      for (; d + lanes <= count; d += lanes) {
        const F x = Simd::load(rows + d);
        sum = Simd::add(sum, Simd::sub(x, x));  // 0, or NaN
      }
      for (; d < count; ++d) last += rows[d] - rows[d];
    }
    return last == 0 && is_zero(sum);
  }

  // Two rows of bf16 side by side, as they are; false: something must be 0.
  bool pack_pairs(const char* low, const char* high, std::int64_t count, std::int64_t columns, float* to) const {
    const auto *a = reinterpret_cast<const std::uint16_t*>(low), *b = reinterpret_cast<const std::uint16_t*>(high);
    if (hides_) {
      F sum = Simd::zero();
      for_each_vector(count, [&](std::int64_t d) {
        const F x = Simd::load_bf16(a + d), y = Simd::load_bf16(b + d);
        sum = Simd::add(sum, Simd::add(Simd::sub(x, x), Simd::sub(y, y)));  // 0, or NaN
      });
      if (!is_zero(sum)) return false;
    }
    for (std::int64_t d = columns - lanes; d < columns; ++d) to[d] = 0;
    for_each_vector(count, [&](std::int64_t d) { Simd::store(to + d, Dot::pair_rows(a + d, b + d)); });
    return true;
  }

  static bool is_zero(F x) {
    float lane[lanes], sum = 0;
    Simd::store(lane, x);
    for (const float value : lane) sum += value;
    return sum == 0;
  }

  // Rows as the products over rows take them: [rows or pairs of rows][columns], with 0 for what is not finite where
  // some pairs are masked (0 * NaN is NaN), beyond the last column, and up to `padded` rows. Whether all was finite.
  template <class RowAt>
  bool pack_columns(RowAt row_at, DType dtype, std::int64_t column, std::int64_t count, std::int64_t columns,
                    std::int64_t rows, std::int64_t padded, float* to) {
    bool all = true;
    for (std::int64_t j = 0; j < padded; j += Dot::pair) {
      if constexpr (Dot::pair == 2) {
        if (column == 1 && count >= lanes && j + 1 < rows &&
            pack_pairs(row_at(j), row_at(j + 1), count, columns, to + j / 2 * columns)) {
          continue;
        }
      }
      for (std::int64_t i = 0; i < Dot::pair; ++i) {
        float* row = Dot::pair == 1 ? to + j * columns : row_buffer(i);
        for (std::int64_t d = j + i < rows ? count : 0; d < columns; ++d) row[d] = 0;
        if (j + i >= rows) continue;
        load_row(row, dtype, row_at(j + i), column, count);
        if (!hides_ || are_finite(row, 0, 1, count)) continue;
        all = false;
        for (std::int64_t d = 0; d < count; ++d) row[d] = row[d] - row[d] == 0 ? row[d] : 0;
      }
      if constexpr (Dot::pair == 2) {
        for (std::int64_t d = 0; d < columns; d += lanes) {
          Simd::store(to + j / 2 * columns + d,
                      Dot::step(Simd::load(row_buffer(0) + d), Simd::load(row_buffer(1) + d)));
        }
      }
    }
    return all;
  }

  // Whether rows can be multiplied where they are: side by side as they are needed, and near each other, since rows far
  // apart fall into the same few places of the L1 cache.
  static bool near(DType dtype, std::int64_t column, std::int64_t row, std::int64_t count) {
    const DType native = Dot::pair == 1 ? DType::f32 : DType::bf16;
    return dtype == native && column == 1 && row > 0 && row <= 2 * count && count % Dot::pair == 0 &&
           row % Dot::pair == 0;
  }

  // Whether the keys are read where they are; else from k_copy_.
  bool keys_in_place() const {
    if (Dot::pair == 2 || !near(g_.k.dtype, g_.k.column, g_.k.row, g_.sizes.D) || g_.sizes.D % lanes != 0) return false;
    return !hides_ || are_finite(reinterpret_cast<const float*>(key_at()(0)), g_.k.row, keys_here(), g_.sizes.D);
  }

  Panel fetch(const Operand& x, std::int64_t count, std::int64_t columns, float* copy, float* columns_copy) {
    const auto row_at = [&](std::int64_t i) { return operand_at(x, head_, first_ + i); };
    const std::int64_t steps = Dot::pair == 1 ? columns : (count + 1) / 2;
    Panel panel{copy, steps, columns_copy, columns, true};
    const bool in_place = near(x.dtype, x.column, x.row, count) && rows_ % block == 0;
    if (in_place) {
      panel.rows = reinterpret_cast<const float*>(row_at(0)), panel.row = x.row / Dot::pair;
    } else {
      for (std::int64_t i = 0; i < rows_; ++i)
        load_operand(row_at(i), x.dtype, x.column, count, steps, 1, copy + i * steps);
      for (std::int64_t i = rows_ * steps; i < blocks_ * block * steps; ++i) copy[i] = 0;
    }
    if (Dot::pair == 1 && (!in_place || count % lanes == 0)) {
      panel.finite = !hides_ || are_finite(panel.rows, panel.row, rows_, count);
      if (panel.finite) {
        panel.columns = panel.rows, panel.column_row = panel.row;
        return panel;
      }
    }
    panel.finite = pack_columns(row_at, x.dtype, x.column, count, columns, rows_, blocks_ * block, columns_copy);
    return panel;
  }

  void fetch_rows() {
    q_ = fetch(g_.q, g_.sizes.D, q_columns_, q_copy_, q_columns_copy_);
    o_ = fetch(b_.dout, g_.sizes.Dv, v_columns_, o_copy_, o_columns_copy_);
    for (std::int64_t i = 0; i < blocks_ * block; ++i) {
      lse_[i] = i < rows_ ? statistics_of(head_, first_ + i)[0] : FLT_MAX;  // no row: weights of 0
      delta_[i] = i < rows_ ? statistics_of(head_, first_ + i)[1] : 0;
    }
  }

  // ---- What is visible ----

  void find_ranges() {
    min_lo_ = min_hi_ = INT64_MAX;
    max_lo_ = max_hi_ = 0;
    for (std::int64_t i = 0; i < rows_; ++i) {
      const auto [lo, hi] = visible_keys(g_.rules, first_ + i);
      lo_[i] = lo, hi_[i] = hi;
      if (hi > 0) min_lo_ = min_of(min_lo_, lo);
      max_lo_ = max_of(max_lo_, lo);
      min_hi_ = min_of(min_hi_, hi);
      max_hi_ = max_of(max_hi_, hi);
    }
  }

  // Which pairs of the rows and the tile are visible; false: none.
  bool look() {
    const bool whole = max_lo_ <= start_ && min_hi_ >= start_ + pair_keys && !g_.features.mask && !g_.features.bias;
    for (std::int64_t b = 0; b < row_blocks; ++b)
      first_vector_[b] = 0, last_vector_[b] = key_vectors, masked_[b] = false;
    if (whole && keys_ == pair_keys) return true;
    bool some = false;
    for (std::int64_t b = 0; b < blocks_; ++b) {
      std::uint64_t any = 0, all = ~std::uint64_t{0};
      for (std::int64_t i = b * block; i < (b + 1) * block; ++i) {
        bits_[i] = i < rows_ ? bits_of(i) : 0;
        // No row: what scratch happens to hold could be NaN, and its weight must be 0.
        for (std::int64_t j = 0; bias_ && i >= rows_ && j < pair_keys; ++j) bias_[i * pair_keys + j] = 0;
        any |= bits_[i];
        all &= i < rows_ ? bits_[i] : all;
      }
      some |= any != 0;
      first_vector_[b] = any == 0 ? 0 : __builtin_ctzll(any) / lanes;
      last_vector_[b] = any == 0 ? 0 : (63 - __builtin_clzll(any)) / lanes + 1;
      const std::uint64_t computed = below(last_vector_[b] * lanes) & ~below(first_vector_[b] * lanes);
      masked_[b] = (all & computed) != computed;
    }
    return some;
  }

  // Of one row. Also loads its bias: the pairs that a bias of -infinity closes are masked.
  std::uint64_t bits_of(std::int64_t i) {
    std::uint64_t bits = below(hi_[i] - start_) & ~below(lo_[i] - start_) & below(keys_);
    if (g_.features.mask) {
      const char* row = operand_at(g_.mask, head_, first_ + i);
      // Whole 64 bytes where the row has them.
      const bool wide = start_ + tile_keys <= g_.rules.key_length;
      bits &= mask_bits(row, g_.mask.column, start_, wide ? tile_keys : keys_);
    }
    if (g_.features.bias) {
      float* row = bias_ + i * pair_keys;
      const char* from = operand_at(g_.bias, head_, first_ + i) + start_ * g_.bias.column * bytes_of(g_.bias.dtype);
      load_row(row, g_.bias.dtype, from, g_.bias.column, keys_);
      for (std::int64_t j = keys_; j < pair_keys; ++j) row[j] = 0;
      std::uint64_t closed = 0;
      for (std::int64_t j = 0; j < pair_keys; ++j) closed |= static_cast<std::uint64_t>(row[j] == -infinity) << j;
      bits &= ~closed;
    }
    return bits;
  }

  // Lanes whose bit is set, of the vector v of a tile.
  static Mask lanes_of(std::uint64_t bits, std::int64_t v) {
    return Simd::lanes_of(static_cast<std::uint32_t>(bits >> v * lanes));
  }

  void draw_dropout() {
    const std::uint32_t threshold = dropout_threshold(g_.rules.dropout.p);
    for (std::int64_t i = 0; i < rows_; ++i) {
      const std::uint64_t row = dropout_row(g_.rules.dropout, head_, first_ + i);
      kept_[i] = dropout_bits(row, threshold, g_.rules.dropout.key + start_);
    }
    for (std::int64_t i = rows_; i < blocks_ * block; ++i) kept_[i] = 0;
  }

  // ---- A tile ----

  // Steps as docs/backward.md counts them: a. weights again, b. dv, c. gradients of the scores, d. dk, e. dq.
  void meet() {
    if (g_.features.dropout) draw_dropout();
    for (std::int64_t b = 0; b < blocks_; ++b)
      each_panel(b, kt_, q_steps_, [this](auto n, auto... at) { this->template score<n()>(at...); });
    add_over_rows(dv_ + at_ * v_columns_, weights_, o_, v_columns_);
    if (!o_.finite) repair_values();
    for (std::int64_t b = 0; b < blocks_; ++b)
      each_panel(b, vt_, v_steps_, [this](auto n, auto... at) { this->template gradient<n()>(at...); });
    if (b_.dbias) add_bias();
    if (b_.dalibi_slopes) add_slopes();
    add_over_rows(dk_ + at_ * q_columns_, ds_, q_, q_columns_);
    add_over_keys();
  }

  template <int N>
  struct Count {
    constexpr int operator()() const { return N; }
  };

  // body(vectors, block, vector, operand) for the register tiles of a block's visible vectors; zeros for the others.
  template <class Body>
  void each_panel(std::int64_t b, const float* transposed, std::int64_t steps, Body body) {
    const std::int64_t panel = width * round_up(steps, 4);
    for (std::int64_t v = 0; v < key_vectors; v += vectors) {
      const std::int64_t first = max_of<std::int64_t>(v, first_vector_[b]);
      const std::int64_t last = min_of<std::int64_t>(v + vectors, last_vector_[b]);
      clear(b, v, min_of(first, v + vectors));
      clear(b, max_of(first, max_of(last, v)), v + vectors);
      const float* operand = transposed + (at_ / width + v / vectors) * panel + (first - v) * lanes;
      if (last - first == 1) body(Count<1>(), b, first, operand);
      if (last - first == 2) body(Count<2>(), b, first, operand);
      if constexpr (vectors == 3) {
        if (last - first == 3) body(Count<3>(), b, first, operand);
      }
    }
  }

  // What is not computed of a block counts nothing.
  void clear(std::int64_t b, std::int64_t first, std::int64_t last) {
    for (std::int64_t v = first; v < last; ++v) {
      for (std::int64_t i = b * block; i < (b + 1) * block; ++i) {
        const std::int64_t at = i / Dot::pair * pair_keys + v * lanes;
        Simd::store(weights_ + at, Simd::zero());
        Simd::store(ds_ + at, Simd::zero());
        if constexpr (Dot::pair == 2) Dot::store_half(halves_of(i, v), Simd::zero());
        if (keeps_logits_) Simd::store(dlogits_ + i * pair_keys + v * lanes, Simd::zero());
      }
    }
  }

  std::uint16_t* halves_of(std::int64_t i, std::int64_t v) {
    return reinterpret_cast<std::uint16_t*>(ds_rows_) + i * pair_keys + v * lanes;
  }

  // a. Scores of a block and N vectors of keys, up to the weights.
  template <int N>
  __attribute__((noinline)) void score(std::int64_t b, std::int64_t v, const float* operand) {
    F s[block][N];
    const std::int64_t i = b * block;
#pragma GCC unroll 8
    for (int r = 0; r < block; ++r) {
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) s[r][n] = Simd::zero();
    }
    multiply<Dot, block, 0, N, N>(s, q_.rows + i * q_.row, q_.row, 1, operand, q_steps_);
    if (Dot::pair == 2) {
      const F late = Simd::set1(late_scale());
#pragma GCC unroll 8
      for (int r = 0; r < block; ++r) {
#pragma GCC unroll 4
        for (int n = 0; n < N; ++n) s[r][n] = Simd::mul(s[r][n], late);
      }
    }
    if (slope_ || bias_ || g_.features.alibi_slopes) adjust<N>(s, i, v);
    if (masked_[b])
      weigh<N, true>(s, i, v);
    else
      weigh<N, false>(s, i, v);
    if (g_.features.dropout) drop<N>(i, v);
  }

  template <int N, bool Hidden>
  inline __attribute__((always_inline)) void weigh(F (&s)[block][N], std::int64_t i, std::int64_t v) {
#pragma GCC unroll 8
    for (int r = 0; r < block; ++r) {
      const F lse = Simd::set1(lse_[i + r]);
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) {
        s[r][n] = exp2<Dot::degree>(Simd::sub(s[r][n], lse));
        if (Hidden) s[r][n] = Simd::select(lanes_of(bits_[i + r], v + n), s[r][n], Simd::zero());
        Simd::store(p_ + (i + r) * pair_keys + (v + n) * lanes, s[r][n]);
      }
    }
    if constexpr (Dot::pair == 2) store_pairs<N>(weights_, s, i, v);
  }

  // Rows i and i + 1, ... side by side, as sums over rows take them.
  template <int N>
  static inline __attribute__((always_inline)) void store_pairs(float* to, const F (&s)[block][N], std::int64_t i,
                                                                std::int64_t v) {
#pragma GCC unroll 4
    for (int r = 0; r < block; r += 2) {
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) {
        Simd::store(to + (i + r) / 2 * pair_keys + (v + n) * lanes, Dot::step(s[r][n], s[r + 1][n]));
      }
    }
  }

  // The weights that dropout leaves; p_ stays whole.
  template <int N>
  void drop(std::int64_t i, std::int64_t v) {
    F s[block][N];
    for (int r = 0; r < block; ++r) {
      for (int n = 0; n < N; ++n) {
        s[r][n] = kept(Simd::load(p_ + (i + r) * pair_keys + (v + n) * lanes), i + r, v + n);
        if (Dot::pair == 1) Simd::store(weights_ + (i + r) * pair_keys + (v + n) * lanes, s[r][n]);
      }
    }
    if constexpr (Dot::pair == 2) store_pairs<N>(weights_, s, i, v);
  }

  F kept(F x, std::int64_t i, std::int64_t v) const {
    return Simd::select(lanes_of(kept_[i], v), Simd::mul(x, Simd::set1(dropout_factor(g_))), Simd::zero());
  }

  // c. Gradients of the scores, of a block and N vectors of keys.
  template <int N>
  __attribute__((noinline)) void gradient(std::int64_t b, std::int64_t v, const float* operand) {
    F s[block][N];
    const std::int64_t i = b * block;
#pragma GCC unroll 8
    for (int r = 0; r < block; ++r) {
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) s[r][n] = Simd::zero();
    }
    multiply<Dot, block, 0, N, N>(s, o_.rows + i * o_.row, o_.row, 1, operand, v_steps_);
    if (masked_[b] || g_.features.dropout)
      differentiate<N, true>(s, b, v);
    else
      differentiate<N, false>(s, b, v);
  }

  template <int N, bool Careful>
  inline __attribute__((always_inline)) void differentiate(F (&s)[block][N], std::int64_t b, std::int64_t v) {
    const std::int64_t i = b * block;
#pragma GCC unroll 8
    for (int r = 0; r < block; ++r) {
      const F delta = Simd::set1(delta_[i + r]);
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) {
        const std::int64_t at = (i + r) * pair_keys + (v + n) * lanes;
        if (Careful && g_.features.dropout) s[r][n] = kept(s[r][n], i + r, v + n);
        s[r][n] = Simd::mul(Simd::load(p_ + at), Simd::sub(s[r][n], delta));
        // The value of a masked key may be NaN.
        if (Careful && masked_[b]) s[r][n] = Simd::select(lanes_of(bits_[i + r], v + n), s[r][n], Simd::zero());
        if (keeps_logits_) Simd::store(dlogits_ + at, s[r][n]);
        if (slope_) {
          s[r][n] = Simd::mul(s[r][n], Simd::load(slope_ + at));
          // So may its slope.
          if (Careful && masked_[b]) s[r][n] = Simd::select(lanes_of(bits_[i + r], v + n), s[r][n], Simd::zero());
        }
        if (Dot::pair == 1) Simd::store(ds_ + at, s[r][n]);
        if constexpr (Dot::pair == 2) Dot::store_half(halves_of(i + r, v + n), s[r][n]);
      }
    }
    if constexpr (Dot::pair == 2) store_pairs<N>(ds_, s, i, v);
  }

  // ---- What changes a score ----

  // Softcap, bias and ALiBi, in log2 units.
  template <int N>
  __attribute__((noinline)) void adjust(F (&s)[block][N], std::int64_t i, std::int64_t v) {
    const F most = Simd::set1(cap_of(g_)), inverse = Simd::set1(1 / cap_of(g_)), one = Simd::set1(1);
    const F unit = Simd::set1(log2_e), least = Simd::set1(no_maximum);
    for (int r = 0; r < block; ++r) {
      for (int n = 0; n < N; ++n) {
        const std::int64_t at = (i + r) * pair_keys + (v + n) * lanes;
        if (slope_) {
          const F capped = tanh(Simd::mul(s[r][n], inverse));
          Simd::store(slope_ + at, Simd::sub(one, Simd::mul(capped, capped)));
          s[r][n] = Simd::mul(capped, most);
        }
        if (bias_) s[r][n] = Simd::max(least, Simd::fma(Simd::load(bias_ + at), unit, s[r][n]));
        if (g_.features.alibi_slopes) {
          const F slope = Simd::set1(static_cast<float>(-g_.alibi_slopes[head_] * 1.44269504088896340736));
          s[r][n] = Simd::fma(distance(i + r, v + n), slope, s[r][n]);
        }
      }
    }
  }

  // |i + offset - j| of a row and a vector of keys.
  F distance(std::int64_t i, std::int64_t v) const {
    static constexpr float lane[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const std::int64_t level = first_ + i + g_.rules.offset - start_ - v * lanes;
    return Simd::abs(Simd::sub(Simd::set1(static_cast<float>(level)), Simd::load(lane)));
  }

  // ---- Sums ----

  template <int N>
  static void add(std::int64_t n, float* c, std::int64_t c_row, const float* a, std::int64_t a_row, std::int64_t a_step,
                  const float* b, std::int64_t b_row, std::int64_t steps, float factor, std::int64_t rows) {
    if (n == N) return add_product<Dot, block, N>(c, c_row, a, a_row, a_step, b, b_row, steps, factor, rows);
    if constexpr (N > 1) add<N - 1>(n, c, c_row, a, a_row, a_step, b, b_row, steps, factor, rows);
  }

  // b. and d.: sums[key] += sum over the rows of a[row][key] * x[row]; sums [pair_keys][columns].
  void add_over_rows(float* sums, const float* a, const Panel& x, std::int64_t columns) {
    for_each_group(columns, [&](std::int64_t column, std::int64_t n) {
      for (std::int64_t key = 0; key < keys_; key += block) {
        std::int64_t begin = blocks_, end = 0;  // blocks that see some of these keys
        for (std::int64_t b = 0; b < blocks_; ++b) {
          if (first_vector_[b] * lanes >= key + block || last_vector_[b] * lanes <= key) continue;
          begin = min_of(begin, b), end = b + 1;
        }
        if (begin >= end) continue;
        const std::int64_t step = begin * block / Dot::pair, steps = (end - begin) * block / Dot::pair;
        add<vectors>(n, sums + key * columns + column, columns, a + step * pair_keys + key, 1, pair_keys,
                     x.columns + step * x.column_row + column, x.column_row, steps, 1, block);
      }
    });
  }

  // e. dq[row] += scale * sum over the keys of ds[row][key] * k[key].
  void add_over_keys() {
    const float scale = static_cast<float>(g_.rules.scale);
    for_each_group(q_columns_, [&](std::int64_t column, std::int64_t n) {
      for (std::int64_t b = 0; b < blocks_; ++b) {
        const std::int64_t begin = first_vector_[b] * lanes;
        const std::int64_t end = min_of<std::int64_t>(last_vector_[b] * lanes, round_up(keys_, Dot::pair));
        if (begin >= end) continue;
        add<vectors>(n, dq_row(head_, first_ + b * block) + column, b_.dq_row,
                     ds_rows_ + (b * block * pair_keys + begin) / Dot::pair, pair_keys / Dot::pair, 1,
                     k_ + (at_ + begin) / Dot::pair * k_row_ + column, k_row_, (end - begin) / Dot::pair, scale,
                     min_of<std::int64_t>(block, rows_ - b * block));
      }
    });
  }

  // What is not finite of dout was left out of dv: for the keys that the row sees.
  void repair_values() {
    for (std::int64_t i = 0; i < rows_; ++i) {
      const std::int64_t b = i / block;
      const std::uint64_t computed = below(last_vector_[b] * lanes) & ~below(first_vector_[b] * lanes);
      const std::uint64_t seen = masked_[b] ? bits_[i] : computed;
      for (std::int64_t d = 0; d < g_.sizes.Dv; ++d) {
        const char* row = operand_at(b_.dout, head_, first_ + i);
        const float value = load_scalar(b_.dout.dtype, row + d * b_.dout.column * bytes_of(b_.dout.dtype));
        if (value - value == 0) continue;
        for (std::int64_t j = 0; j < keys_; ++j) {
          if ((seen >> j & 1) == 0 || (g_.features.dropout && (kept_[i] >> j & 1) == 0)) continue;
          dv_[(at_ + j) * v_columns_ + d] += p_[i * pair_keys + j] * value;
        }
      }
    }
  }

  // ---- Gradients of options ----

  // Sums along an axis of a tile first, where the bias was broadcast along it.
  void add_bias() {
    const std::int64_t row = b_.dbias_row, column = b_.dbias_column;
    float* to = b_.dbias + head_ * b_.dbias_head + first_ * row + (start_ - b_.dbias_key) * column;
    if (row == 0) {
      float sums[pair_keys] = {};
      for (std::int64_t i = 0; i < rows_; ++i) {
        for (std::int64_t j = 0; j < pair_keys; ++j) sums[j] += dlogits_[i * pair_keys + j];
      }
      return add_bias_row(to, sums, column);
    }
    for (std::int64_t i = 0; i < rows_; ++i) add_bias_row(to + i * row, dlogits_ + i * pair_keys, column);
  }

  void add_bias_row(float* to, const float* from, std::int64_t column) const {
    if (column != 0) {
      for (std::int64_t j = 0; j < keys_; ++j) to[j * column] += from[j];
      return;
    }
    float sum = 0;
    for (std::int64_t j = 0; j < keys_; ++j) sum += from[j];
    *to += sum;
  }

  void add_slopes() {
    for (std::int64_t i = 0; i < rows_; ++i) {
      F sum = Simd::zero();
      for (std::int64_t v = 0; v < key_vectors; ++v) {
        sum = Simd::fma(distance(i, v), Simd::load(dlogits_ + i * pair_keys + v * lanes), sum);
      }
      float lane[lanes];
      Simd::store(lane, sum);
      for (const float x : lane) b_.dalibi_slopes[head_] -= static_cast<double>(x);
    }
  }

  // Without <new>, whose operator is an inline function that other files would see.
  static void* operator new(std::size_t, void* place) {
    return place;
  }

  const BackwardGroup& b_ = group;
  const Group& g_ = group.forward;
  std::int64_t q_steps_, v_steps_, q_columns_, v_columns_, row_stride_ = 0;
  bool hides_, keeps_logits_;
  float *kt_ = nullptr, *vt_ = nullptr, *k_copy_ = nullptr, *dk_ = nullptr, *dv_ = nullptr;
  float *q_copy_ = nullptr, *q_columns_copy_ = nullptr, *o_copy_ = nullptr, *o_columns_copy_ = nullptr;
  float *p_ = nullptr, *weights_ = nullptr, *ds_ = nullptr, *ds_rows_ = nullptr, *slope_ = nullptr, *bias_ = nullptr,
        *dlogits_ = nullptr, *lse_ = nullptr, *delta_ = nullptr, *row_ = nullptr;
  std::int64_t *lo_ = nullptr, *hi_ = nullptr;
  bool copied_ = false;  // whether k_copy_ holds the keys of the item
  std::uint64_t *bits_ = nullptr, *kept_ = nullptr;
  const float* k_ = nullptr;  // rows of keys, as dq takes them
  std::int64_t k_row_ = 0;
  // The rows and the tile at hand.
  std::int64_t head_ = 0, first_ = 0, rows_ = 0, blocks_ = 0, at_ = 0, start_ = 0, keys_ = 0;
  std::int64_t min_lo_ = 0, max_lo_ = 0, min_hi_ = 0, max_hi_ = 0;
  std::int64_t first_vector_[row_blocks], last_vector_[row_blocks];  // of keys that some row of the block sees
  bool masked_[row_blocks];
  Panel q_{}, o_{};
};

}  // namespace
}  // namespace attend::kernels
