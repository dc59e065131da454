// Tiles of weights, w = e^(logit - lse), made again from queries, keys and the lse that the forward gave: 64 query rows
// against 48 keys. Every pass that comes after the forward begins with them; the backward is one.
//
// Keys stand in lanes: scores are held [rows][keys], and a stretch of keys stays while all queries pass by.
#pragma once

#include "kernels/quantized.h"
#include "kernels/score.h"
#include "kernels/team.h"

namespace attend::inline v1::kernels {
namespace {

constexpr int weight_rows = backward_tile_rows, weight_keys = backward_tile_keys;
static_assert(weight_keys % width == 0 && weight_keys <= 64, "whole register tiles; a row's keys are bits of 64");
static_assert(weight_rows % height == 0 && height % 2 == 0, "whole strips, in pairs of rows");
static_assert(height % team == 0);
constexpr int key_vectors = weight_keys / lanes;
// An item's keys are read in whole vectors, and their sums made `height` at a time: beyond that nothing needs zeros.
constexpr int key_padding = lanes > height ? lanes : height;
static_assert(weight_keys % key_padding == 0);
constexpr int most_strips = weight_rows / height;

template <int N>
struct Count {
  constexpr int operator()() const { return N; }
};

// For passes that don't look at exponents, in log2 units, beside their weights; `seen` where some of them are hidden.
struct Unseen {
  struct Row {
    void add(F, F) {}
    void add(F, F, Mask) {}
    void end() {}
  };
  Row row(std::int64_t) const { return {}; }
};

template <class Dot>
class WeightTile {
 public:
  // For the keys [keys_begin, keys_end) of a group.
  WeightTile(const Group& group, std::int64_t keys_begin, std::int64_t keys_end)
      : g_(group),
        first_key_(keys_begin),
        item_keys_(max_of<std::int64_t>(0, min_of(keys_end, group.rules.key_length) - keys_begin)),
        q_steps_((group.sizes.D + Dot::pair - 1) / Dot::pair),
        team_steps_(round_up(q_steps_, lanes)),
        late_(group.features.decoded ? late_factor<Dot>(group.rules) : score_factor(group.rules)) {}

  // most_keys: of an item.
  void carve(Scratch& scratch, std::int64_t most_keys) {
    kt_ = scratch.take<float>(most_keys * round_up(q_steps_, 4));
    p = scratch.take<float>(weight_rows * weight_keys);
    lse_ = scratch.take<float>(2 * weight_rows);
    if (Dot::pair == 1) scaled_q_ = scratch.take<float>(weight_rows * q_steps_);
    ranges_.row = scratch.take<KeyRange>(weight_rows);
    bits = scratch.take<std::uint64_t>(weight_rows);
    stage_ = scratch.take<float>(height * width);
    if (g_.features.curve) curve_slopes = scratch.take<float>(weight_rows * weight_keys);
    if (has_biases(g_.features)) bias_ = scratch.take<float>(weight_rows * weight_keys);
    row_stride_ = round_up(max_of(g_.sizes.D, g_.sizes.Dv), lanes) + lanes;
    row_ = scratch.take<float>(4 * row_stride_);
    if (g_.sizes.quantized) wide_ = scratch.take<float>(2 * row_stride_);
    if (!g_.features.decoded) return;
    team_q_ = scratch.take<float>(weight_rows * team_steps_);
    team_keys_ = scratch.take<float>(weight_keys * team_steps_);
    team_scores_ = scratch.take<float>(weight_rows * weight_keys);
  }

  // ---- Places ----

  // Keys of the item that exist.
  std::int64_t item_keys() const { return item_keys_; }
  auto key_at() const {
    return [this](std::int64_t j) { return rows_at(g_.k, first_key_ + j); };
  }
  // One of four rows of D or Dv floats, whole vectors of them.
  float* row_buffer(std::int64_t i) { return row_ + i * row_stride_; }

  // The rows and the tile at hand.
  std::int64_t head = 0, first = 0, rows = 0;  // query rows first, first + 1, ... of a head
  std::int64_t strips = 0;                     // of `height` rows
  std::int64_t at = 0, keys = 0;               // the tile's first key, counted in the item; how many it has
  std::int64_t first_vector[most_strips], last_vector[most_strips];  // of keys that some row of the strip sees
  bool masked[most_strips];                                          // whether `bits` hides some of them
  std::uint64_t* bits = nullptr;                                     // [rows] the keys that each row sees
  float* p = nullptr;             // [rows][weight_keys] the weights, 0 where they are not visible
  float* curve_slopes = nullptr;  // likewise, of the curve; null: there is none

  // ---- Steps ----

  // The item's keys, once.
  void pack_keys() { pack_transposed(g_.k, g_.sizes.D, kt_); }

  // Keys or values as products with rows take them: for each `width` of them [steps][width], zeros beyond the last one
  // in its vector.
  void pack_transposed(const Rows& x, std::int64_t count, float* to) {
    const std::int64_t padded = round_up((count + Dot::pair - 1) / Dot::pair, 4);
    for (std::int64_t j = 0; j < round_up(item_keys_, key_padding); j += 4) {
      for (std::int64_t i = 0; i < 4; ++i) {
        float* row = row_buffer(i);
        if (j + i < item_keys_) {
          load_key(row, x, first_key_ + j + i, count, padded);
        } else {
          for (std::int64_t s = 0; s < padded; ++s) row[s] = 0;
        }
      }
      transpose_rows(row_, row_stride_, padded, to + j / width * width * padded + j % width);
    }
  }

  // One of 8 bits is widened first, as the forward does.
  void load_key(float* to, const Rows& x, std::int64_t key, std::int64_t count, std::int64_t steps) {
    if (x.dtype != DType::i8) return load_operand<Dot>(to, rows_at(x, key), {x.dtype, x.column, count}, steps);
    constexpr DType native = Dot::pair == 2 ? DType::bf16 : DType::f32;
    auto* widened = reinterpret_cast<char*>(wide_ + row_stride_);
    widen_rows(x, key, 1, count, native, widened, wide_);
    load_operand<Dot>(to, widened, {native, 1, count}, steps);
  }

  // Rows [begin, end) of a head, at most weight_rows: what they see.
  void take_rows(std::int64_t of, std::int64_t begin, std::int64_t end) {
    head = of, first = begin, rows = end - begin;
    strips = (rows + height - 1) / height;
    ranges_ = {ranges_.row};
    for (std::int64_t i = 0; i < rows; ++i) ranges_.add(i, visible_keys(g_.rules, first + i));
  }

  // Their lse and lse_low in log2 units: lse(i)[0], lse(i)[1].
  template <class Lse>
  void take_lse(Lse lse) {
    for (std::int64_t i = 0; i < strips * height; ++i) {
      lse_[2 * i] = i < rows ? lse(i)[0] : FLT_MAX;  // no row: weights of 0
      lse_[2 * i + 1] = i < rows ? lse(i)[1] : 0;
    }
  }

  // Their queries [rows][steps] as the products take them, `row` floats apart, zeros up to whole strips. The factor is
  // multiplied in where the forward does it, so that a logit has the bits that it had there: with f32 into the query,
  // with bf16 into the product.
  void take_queries(const float* queries, std::int64_t row) {
    q_ = queries, q_row_ = row;
    if (g_.features.decoded) {
      for (std::int64_t i = 0; i < rows; ++i) {
        load_query<Dot>(g_, head, first + i, team_q_ + i * team_steps_, team_steps_);
      }
      for (std::int64_t i = rows * team_steps_; i < strips * height * team_steps_; ++i) team_q_[i] = 0;
    } else if (Dot::pair == 1) {
      q_ = scaled_q_, q_row_ = q_steps_;
      for (std::int64_t i = 0; i < strips * height; ++i, queries += row) {
        const auto* from = reinterpret_cast<const char*>(queries);
        load_row(scaled_q_ + i * q_steps_, from, {DType::f32, 1, q_steps_}, score_factor(g_.rules));
      }
    }
  }

  // Which pairs of the rows and the tile at key `from` of the item are visible; false: none.
  bool look(std::int64_t from) {
    at = from, keys = min_of<std::int64_t>(weight_keys, item_keys_ - from);
    if (!ranges_.meet(start(), start() + keys)) return false;
    const bool hides = g_.features.mask || has_biases(g_.features);
    for (int b = 0; b < most_strips; ++b) first_vector[b] = 0, last_vector[b] = key_vectors, masked[b] = false;
    if (!hides && keys == weight_keys && ranges_.hold(start(), start() + keys)) return true;
    bool some = false;
    for (std::int64_t b = 0; b < strips; ++b) some |= look_at_strip(b);
    return some;
  }

  // The weights of the tile. then(n, s, i, v): the weights s of rows i, ... and n vectors of keys from v on, in
  // registers; clear(b, v, end): vectors that strip b does not see. `exponents` is shown each row's exponents and
  // weights, as Unseen says.
  template <class Then, class Clear, class Exponents = Unseen>
  void weigh(Then then, Clear clear, Exponents exponents = {}) {
    if (g_.features.decoded) score_team();
    for (std::int64_t b = 0; b < strips; ++b) {
      const auto clear_all = [&](std::int64_t v, std::int64_t end) {
        for (std::int64_t i = b * height; i < (b + 1) * height; ++i) {
          for (std::int64_t j = v * lanes; j < end * lanes; j += lanes)
            Simd::store(p + i * weight_keys + j, Simd::zero());
        }
        clear(b, v, end);
      };
      each_panel(b, kt_, q_steps_, clear_all,
                 [&](auto n, std::int64_t v, const float* operand) { score<n()>(b, v, operand, then, exponents); });
    }
  }

  // body(vectors, vector, operand) for the register tiles of a strip's visible vectors; clear(begin, end) for the
  // others.
  template <class Clear, class Body>
  void each_panel(std::int64_t b, const float* transposed, std::int64_t steps, Clear clear, Body body) {
    const std::int64_t panel = width * round_up(steps, 4);
    for (std::int64_t v = 0; v < key_vectors; v += vectors) {
      const std::int64_t begin = max_of<std::int64_t>(v, first_vector[b]);
      const std::int64_t end = min_of<std::int64_t>(v + vectors, last_vector[b]);
      clear(v, min_of(begin, v + vectors));
      clear(max_of(begin, max_of(end, v)), v + vectors);
      const float* operand = transposed + (at / width + v / vectors) * panel + (begin - v) * lanes;
      if (end - begin == 1) body(Count<1>(), begin, operand);
      if (end - begin == 2) body(Count<2>(), begin, operand);
      if constexpr (vectors == 3) {
        if (end - begin == 3) body(Count<3>(), begin, operand);
      }
    }
  }

  // The lanes whose bit is set, of the vector v of a tile.
  static Mask lanes_of(std::uint64_t row_bits, std::int64_t v) {
    return Simd::lanes_of(static_cast<std::uint32_t>(row_bits >> v * lanes));
  }

  // The keys of row i that were computed and that it sees.
  std::uint64_t seen(std::int64_t i) const {
    const std::int64_t b = i / height;
    return masked[b] ? bits[i] : between(first_vector[b] * lanes, last_vector[b] * lanes);
  }

  // |i + offset - j| of a row and a vector of keys.
  F distance(std::int64_t i, std::int64_t v) const {
    const std::int64_t level = first + i + g_.rules.offset - start() - v * lanes;
    return Simd::abs(Simd::sub(Simd::set1(static_cast<float>(level)), lane_numbers()));
  }

 private:
  std::int64_t start() const { return first_key_ + at; }

  bool look_at_strip(std::int64_t b) {
    std::uint64_t any = 0, all = ~std::uint64_t{0};
    for (std::int64_t i = b * height; i < (b + 1) * height; ++i) {
      bits[i] = i < rows ? bits_of(i) : 0;
      // No row: what scratch happens to hold could be NaN, and its weight must be 0.
      for (std::int64_t j = 0; bias_ && i >= rows && j < weight_keys; ++j) bias_[i * weight_keys + j] = 0;
      any |= bits[i];
      all &= i < rows ? bits[i] : all;
    }
    first_vector[b] = any == 0 ? 0 : __builtin_ctzll(any) / lanes;
    last_vector[b] = any == 0 ? 0 : (63 - __builtin_clzll(any)) / lanes + 1;
    const std::uint64_t computed = between(first_vector[b] * lanes, last_vector[b] * lanes);
    masked[b] = (all & computed) != computed;
    return any != 0;
  }

  // Which keys of the tile a row sees. Also loads its biases.
  std::uint64_t bits_of(std::int64_t i) {
    const char* mask = g_.features.mask ? operand_at(g_.mask, head, first + i) : nullptr;
    std::uint64_t row_bits = visible_bits(g_, ranges_.row[i], mask, start()) & below(keys);
    if (!bias_) return row_bits;
    const BiasRow row = bias_row(g_, head, first + i);
    return row_bits & ~load_biases(g_, row, start(), keys, weight_keys, bias_ + i * weight_keys);
  }

  // A strip and N vectors of keys.
  template <int N, class Then, class Exponents>
  __attribute__((noinline)) void score(std::int64_t b, std::int64_t v, const float* operand, Then then,
                                       Exponents exponents) {
    F s[height][N];
    const std::int64_t i = b * height;
    if (g_.features.decoded) [[unlikely]] {
#pragma GCC unroll 8
      for (int r = 0; r < height; ++r) {
#pragma GCC unroll 4
        for (int n = 0; n < N; ++n) s[r][n] = Simd::load(team_scores_ + (i + r) * weight_keys + (v + n) * lanes);
      }
    } else {
#pragma GCC unroll 8
      for (int r = 0; r < height; ++r) {
#pragma GCC unroll 4
        for (int n = 0; n < N; ++n) s[r][n] = Simd::zero();
      }
      multiply<Dot, height, 0, N, N>(s, q_ + i * q_row_, q_row_, 1, operand, q_steps_);
    }
    if (Dot::pair == 2) {
      const F late = Simd::set1(late_);
#pragma GCC unroll 8
      for (int r = 0; r < height; ++r) {
#pragma GCC unroll 4
        for (int n = 0; n < N; ++n) s[r][n] = Simd::mul(s[r][n], late);
      }
    }
    if (adjusts(g_.features)) adjust<N>(s, i, v);
    if (masked[b])
      exponentiate<N, true>(s, i, v, exponents);
    else
      exponentiate<N, false>(s, i, v, exponents);
    then(Count<N>(), s, i, v);
  }

  template <int N, bool Hidden, class Exponents>
  inline __attribute__((always_inline)) void exponentiate(F (&s)[height][N], std::int64_t i, std::int64_t v,
                                                          Exponents exponents) {
#pragma GCC unroll 8
    for (int r = 0; r < height; ++r) {
      const F lse = Simd::set1(lse_[2 * (i + r)]), lse_low = Simd::set1(lse_[2 * (i + r) + 1]);
      auto row = exponents.row(i + r);
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) {
        const F exponent = Simd::sub(Simd::sub(s[r][n], lse), lse_low);
        s[r][n] = exp2<Dot::degree>(exponent);
        if (Hidden) {
          const Mask seen = lanes_of(bits[i + r], v + n);
          s[r][n] = Simd::select(seen, s[r][n], Simd::zero());
          row.add(exponent, s[r][n], seen);
        } else {
          row.add(exponent, s[r][n]);
        }
        Simd::store(p + (i + r) * weight_keys + (v + n) * lanes, s[r][n]);
      }
      row.end();
    }
  }

  // What make_logits() asks of the rows i, ... and the vectors v, ... of the tile.
  template <bool OneRounding>
  struct Pairs {
    static constexpr bool one_rounding = OneRounding;
    const WeightTile& tile;
    std::int64_t i, v;
    const Features& features = tile.g_.features;
    const Rules& rules = tile.g_.rules;
    float* stage = tile.stage_;
    float alibi_slope = features.alibi_slopes ? slope_of(tile.g_, tile.head) : 0;

    std::int64_t at(int r, int n) const { return (i + r) * weight_keys + (v + n) * lanes; }
    float* slopes(int r) const { return tile.curve_slopes + at(r, 0); }
    F bias(int r, int n) const { return Simd::load(tile.bias_ + at(r, n)); }
    F distance(int r, int n) const { return tile.distance(i + r, v + n); }
    F slope(int, int) const { return Simd::set1(alibi_slope); }
  };

  template <int N>
  __attribute__((noinline)) void adjust(F (&s)[height][N], std::int64_t i, std::int64_t v) {
    if (g_.features.decoded) return make_logits<height, N, 0, N>(s, Pairs<false>{*this, i, v});
    make_logits<height, N, 0, N>(s, Pairs<true>{*this, i, v});
  }

  // ---- Few rows ----

  // The tile's scores, as decode makes them.
  void score_team() {
    for (std::int64_t j = 0; j < keys; ++j) {
      load_operand<Dot>(team_keys_ + j * team_steps_, key_at()(at + j), {g_.k.dtype, g_.k.column, g_.sizes.D},
                        team_steps_);
    }
    for (std::int64_t i = 0; i < strips * height; i += team) {
      constexpr int keys_at_once = lanes / team;
      for (std::int64_t j = 0; j < keys; j += keys_at_once) {
        const char* line[keys_at_once];
        for (int n = 0; n < keys_at_once; ++n) {
          line[n] = reinterpret_cast<const char*>(team_keys_ + min_of(j + n, keys - 1) * team_steps_);
        }
        float products[lanes];
        dot_rows<Dot, ReadF32, team>(team_q_ + i * team_steps_, team_steps_, line, products, [](int, std::int64_t) {});
        for (int n = 0; n < lanes; ++n) {
          team_scores_[(i + n / keys_at_once) * weight_keys + j + n % keys_at_once] = products[n];
        }
      }
    }
  }

  const Group& g_;
  std::int64_t first_key_, item_keys_, q_steps_, team_steps_, row_stride_ = 0;
  Ranges ranges_;
  float late_;                // what the product of bf16 is multiplied by
  const float* q_ = nullptr;  // as take_queries() says
  std::int64_t q_row_ = 0;
  float *kt_ = nullptr, *scaled_q_ = nullptr, *lse_ = nullptr, *stage_ = nullptr, *bias_ = nullptr, *row_ = nullptr;
  float* wide_ = nullptr;  // two rows, where keys have 8 bits
  // Where decode made the logits: queries [rows][steps], keys [keys][steps] and scores [rows][keys].
  float *team_q_ = nullptr, *team_keys_ = nullptr, *team_scores_ = nullptr;
};

}  // namespace
}  // namespace attend::inline v1::kernels
