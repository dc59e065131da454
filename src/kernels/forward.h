// Attention of many queries: the forward. docs/kernels.md explains the loop nest.
//
// Queries stand in lanes: scores are held transposed, [keys][queries], so that a row's maximum and sum are vertical
// operations, and keys and values are read row by row, each element broadcast to the lanes.
#pragma once

#include "kernels/ahead.h"
#include "kernels/forward_results.h"
#include "kernels/quantized.h"

namespace attend::inline v1::kernels {
namespace {

template <class Dot>
class Forward : ForwardRows {
 public:
  Forward(const Group& group, const Results& to, std::int64_t first, std::int64_t last, char* scratch)
      : Forward(group, to, first, last, group.sizes.G * (last - first), scratch) {}

  static std::size_t scratch_bytes(const Sizes& sizes, const Features& features, std::int64_t rows) {
    const Group group{.sizes = sizes, .features = features};
    return static_cast<std::size_t>(Forward(group, {}, 0, 0, rows, nullptr).bytes_);
  }

  void run(const ForwardItem* next) {
    prepare<Dot>(steps_);
    std::int64_t begin = INT64_MAX, end = 0;
    for (std::int64_t p = 0; p < panels_; ++p) {
      const Ranges& ranges = panel_[p].ranges;
      if (ranges.max_hi == 0) continue;
      begin = min_of(begin, ranges.min_lo);
      end = max_of(end, ranges.max_hi);
    }
    for (std::int64_t start = begin / tile_keys * tile_keys; start < end; start += tile_keys) {
      if (next && blocks_from(start) <= panels_ * last_blocks) {
        ahead_.begin(*next, g_, {begin, end}, blocks_from(start));
        next = nullptr;
      }
      Tile tile;
      tile.start = start;
      tile.keys = min_of(tile_keys, g_.rules.key_length - start);
      for (std::int64_t p = 0; p < panels_; ++p) meet(panel_[p], tile);
    }
    for (std::int64_t p = 0; p < panels_; ++p) finish(panel_[p]);
  }

 private:
  Forward(const Group& group, const Results& to, std::int64_t first, std::int64_t last, std::int64_t rows,
          char* scratch)
      : ForwardRows(group, to, first, last, rows), steps_((group.sizes.D + Dot::pair - 1) / Dot::pair) {
    const Features& f = group.features;
    adjusts_ = adjusts(f);
    Scratch pieces{scratch};
    carve(pieces, steps_, Dot::pair == 2);
    weights_ = pieces.take<float>(has_biases(f) ? tile_keys * width : tile_keys / Dot::pair * width);
    // A pair's bias has been read where its weight is written: both tiles beside each other, and the packed queries,
    // are more than an L1 cache of 32 KiB.
    if (has_biases(f)) bias_ = weights_;
    k_copy_ = pieces.take<float>(tile_keys * steps_);
    v_copy_ = pieces.take<float>(tile_keys / Dot::pair * g_.sizes.Dv);
    stage_ = pieces.take<float>(height * width);
    if (g_.sizes.quantized) {
      k_wide_ = pieces.take<char>(tile_keys * g_.sizes.D * bytes_of(native));
      v_wide_ = pieces.take<char>(tile_keys * g_.sizes.Dv * bytes_of(native));
    }
    bytes_ = pieces.used;
  }

  // How many blocks of `height` keys are left to the panels.
  std::int64_t blocks_from(std::int64_t start) const {
    std::int64_t blocks = 0;
    for (std::int64_t p = 0; p < panels_; ++p) {
      const Ranges& ranges = panel_[p].ranges;
      const std::int64_t keys = ranges.max_hi - max_of(start, ranges.min_lo);
      if (keys > 0) blocks += (keys + height - 1) / height;
    }
    return blocks;
  }

  // ---- A panel and a tile ----

  void meet(Panel& panel, Tile& tile) {
    Meeting meeting;
    if (!look(panel, tile.start, tile.keys, meeting)) return;
    if (!tile.ready) fetch(tile);
    if ((meeting.masked || kept_) && !tile.checked) check_values(tile);
    if (slopes_) load_levels(panel, tile.start);
    if (kept_) draw_dropout(panel, tile.start);
    switch (panel.count) {
      case 1:
        return work<1>(panel, tile, meeting);
      case 2:
        return work<2>(panel, tile, meeting);
      default:
        return work<vectors>(panel, tile, meeting);
    }
  }

  template <int N>
  void work(Panel& panel, const Tile& tile, const Meeting& meeting) {
    for (std::int64_t key = meeting.begin; key < meeting.end; key += height) {
      ahead_.ask();
      constexpr int second = min_of(1, N - 1);
      if (N > 1 && key < meeting.first[second]) {
        score<N, 0, 1>(panel, tile, meeting, key);
      } else if (N > 2 && key < meeting.first[N - 1]) {
        score<N, 0, min_of(2, N)>(panel, tile, meeting, key);
      } else if (key < meeting.limit[0]) {
        score<N, 0, N>(panel, tile, meeting, key);
      } else if (N > 1 && key < meeting.limit[second]) {
        score<N, second, N>(panel, tile, meeting, key);
      } else {
        score<N, N - 1, N>(panel, tile, meeting, key);
      }
    }
    mix<N>(panel, tile, meeting);
    panel.summed = true;
    if (!tile.finite) repair(panel, tile, meeting);  // masked or not: an earlier panel may have taken values out
  }

  // ---- Keys and values ----

  // Points to keys and values where they can be read as they are, else copies them: other dtypes, other strides, and a
  // last tile whose register tile would read beyond the end.
  void fetch(Tile& tile) {
    tile.ready = true;
    const Elements k = elements(g_.k, g_.sizes.D);
    const char* keys = g_.sizes.quantized ? widen(g_.k, tile, k.count, k_wide_, k_copy_) : rows_at(g_.k, tile.start);
    tile.values = g_.sizes.quantized ? widen(g_.v, tile, g_.sizes.Dv, v_wide_, v_copy_) : rows_at(g_.v, tile.start);
    tile.value_bytes = g_.v.row * bytes_of(values().dtype);
    if (k.dtype == native && k.stride == 1 && tile.keys % height == 0 && k.count % Dot::pair == 0 &&
        g_.k.row % Dot::pair == 0) {
      tile.k = reinterpret_cast<const float*>(keys);
      tile.k_row = g_.k.row / Dot::pair;
    } else {
      tile.k = k_copy_;
      tile.k_row = steps_;
      const std::int64_t row = g_.k.row * bytes_of(k.dtype);
      if constexpr (Dot::pair == 1) {
        load_rows(k_copy_, keys, row, tile.keys, k);
      } else {
        for (std::int64_t j = 0; j < tile.keys; ++j) load_operand<Dot>(k_copy_ + j * steps_, keys + j * row, k, steps_);
      }
      for (std::int64_t i = tile.keys * steps_; i < round_up(tile.keys, height) * steps_; ++i) k_copy_[i] = 0;
    }
    if (Dot::pair == 1 && values().dtype == native && g_.v.column == 1) {
      tile.v = reinterpret_cast<const float*>(tile.values);
      tile.v_row = g_.v.row;
    } else {
      copy_values(tile, false);
    }
  }

  // Keys and values of 8 bits are widened first, to rows of the same number of elements.
  static const char* widen(const Rows& rows, const Tile& tile, std::int64_t columns, char* to, float* buffer) {
    widen_rows(rows, tile.start, tile.keys, columns, native, to, buffer);
    return to;
  }

  Elements elements(const Rows& rows, std::int64_t count) const {
    return {g_.sizes.quantized ? native : rows.dtype, rows.column, count};
  }
  Elements values() const { return elements(g_.v, g_.sizes.Dv); }
  static auto values_at(const Tile& tile) {
    return [&tile](std::int64_t j) { return tile.values + j * tile.value_bytes; };
  }

  void copy_values(Tile& tile, bool careful) {
    tile.v = v_copy_;
    tile.v_row = g_.sizes.Dv;
    if (Dot::pair == 1 && !careful) return load_rows(v_copy_, tile.values, tile.value_bytes, tile.keys, values());
    pack_rows<Dot>(v_copy_, values_at(tile), tile.keys, values(), g_.sizes.Dv, tile.keys, careful);
  }

  void check_values(Tile& tile) {
    tile.checked = true;
    tile.finite = are_finite(values_at(tile), tile.keys, values(), row_buffer(0));
    if (!tile.finite) copy_values(tile, true);
  }

  float weight_at(std::int64_t key, std::int64_t lane) const {
    std::uint32_t bits;
    __builtin_memcpy(&bits, weights_ + key / Dot::pair * width + lane, 4);
    if (Dot::pair == 2) bits = key % 2 == 0 ? bits << 16 : bits & 0xFFFF0000u;
    float weight;
    __builtin_memcpy(&weight, &bits, 4);
    return weight;
  }

  // The non-finite values of the tile, for the rows that attend to them: -0 is the weight of the others.
  void repair(Panel& panel, const Tile& tile, const Meeting& meeting) {
    for_each_not_finite(values_at(tile), tile.keys, values(), [&](std::int64_t j, std::int64_t d, float value) {
      for (std::int64_t lane = 0; lane < panel.count * lanes; ++lane) {
        if (j < meeting.first[lane / lanes] || j >= meeting.limit[lane / lanes]) continue;
        const float weight = weight_at(j, lane);
        if (!__builtin_signbit(weight)) panel.o[d * width + lane] += weight * value;
      }
    });
  }

  // ---- Scores to weights ----

  // What make_logits() asks of the keys `key`, ... of a tile.
  struct Pairs {
    static constexpr bool one_rounding = true;
    const Forward& forward;
    const Panel& panel;
    std::int64_t key;
    const Features& features = forward.g_.features;
    const Rules& rules = forward.g_.rules;
    float* stage = forward.stage_;

    float* slopes(int) const { return nullptr; }
    F bias(int r, int v) const { return Simd::load(forward.bias_ + (key + r) * width + v * lanes); }
    F distance(int r, int v) const {
      return Simd::abs(Simd::sub(Simd::load(forward.level_ + v * lanes), Simd::set1(static_cast<float>(key + r))));
    }
    F slope(int, int v) const { return Simd::load(forward.slopes_ + panel.first + v * lanes); }
  };

  // `height` keys against vectors First to Last of the panel, up to the weights.
  template <int N, int First, int Last>
  __attribute__((noinline)) void score(Panel& panel, const Tile& tile, const Meeting& meeting, std::int64_t key) {
    F s[height][N];
#pragma GCC unroll 8
    for (int r = 0; r < height; ++r) {
#pragma GCC unroll 4
      for (int v = First; v < Last; ++v) s[r][v] = Simd::zero();
    }
    multiply<Dot, height, First, Last, N>(s, tile.k + key * tile.k_row, tile.k_row, 1, panel.q, steps_);
    if (adjusts_) adjust<N, First, Last>(s, panel, meeting, key);
#pragma GCC unroll 4
    for (int v = First; v < Last; ++v) {
      // Ranges cut few blocks of a vector: two of 34 on each edge of a window of 256.
      if (meeting.masked && (~meeting.all[v] & between(key, key + height)) != 0) {
        hide<N>(s, v, key, bits_, Simd::set1(-infinity));
      }
    }
    if (Dot::pair == 1 || adjusts_) {
      weigh<N, First, Last, false>(panel, tile, meeting, s, key);
    } else {
      weigh<N, First, Last, true>(panel, tile, meeting, s, key);
    }
  }

  template <int N, int First, int Last>
  inline __attribute__((always_inline)) void adjust(F (&s)[height][N], const Panel& panel, const Meeting& meeting,
                                                    std::int64_t key) {
    if (Dot::pair == 2) {
      const F late = Simd::set1(late_factor<Dot>(g_.rules));
#pragma GCC unroll 8
      for (int r = 0; r < height; ++r) {
#pragma GCC unroll 4
        for (int v = First; v < Last; ++v) s[r][v] = Simd::mul(s[r][v], late);
      }
    }
    if (bias_) ask_for_bias(panel, meeting.start, key);
    make_logits<height, N, First, Last>(s, Pairs{*this, panel, key});
  }

  // `hidden` for every pair of vector v whose bit, of the tile's, is 0.
  template <int N>
  inline __attribute__((always_inline)) void hide(F (&s)[height][N], int v, std::int64_t key, const std::uint32_t* bits,
                                                  F hidden) {
    bits += key / 32 * width + v * lanes;
#pragma GCC unroll 8
    for (int r = 0; r < height; ++r) {
      s[r][v] = Simd::select(Simd::test(bits, std::uint32_t{1} << (key + r) % 32), s[r][v], hidden);
    }
  }

  // Scores, in registers, to weights in weights_; maximum and sum of each row. `Late`: the scores are products still.
  template <int N, int First, int Last, bool Late>
  inline __attribute__((always_inline)) void weigh(Panel& panel, const Tile& tile, const Meeting& meeting,
                                                   F (&s)[height][N], std::int64_t key) {
    const F factor = Simd::set1(late_factor<Dot>(g_.rules));
    const bool hides = meeting.masked && !tile.finite;
    F top[N];
#pragma GCC unroll 4
    for (int v = First; v < Last; ++v) {
      top[v] = s[0][v];
#pragma GCC unroll 8
      for (int r = 1; r < height; ++r) top[v] = Simd::max(s[r][v], top[v]);
      if (Late) top[v] = Simd::mul(top[v], factor);
      const F m = Simd::load(panel.m + v * lanes);
      const Mask grown = Simd::greater(top[v], Simd::add(m, Simd::set1(slack)));
      if (Simd::any(grown)) [[unlikely]] {
        rescale(panel, v, top[v], meeting.begin, key);
      }
    }
#pragma GCC unroll 4
    for (int v = First; v < Last; ++v) {
      const F m = Simd::load(panel.m + v * lanes);
#pragma GCC unroll 8
      for (int r = 0; r < height; ++r) {
        // Not fma: exactly, a score may lie above the rounded m, at 1e10 by more than exp2 takes.
        const F x = Late ? Simd::sub(Simd::mul(s[r][v], factor), m) : Simd::sub(s[r][v], m);
        s[r][v] = exp2<Dot::degree>(x);
      }
      F sum[height / 2];
#pragma GCC unroll 8
      for (int r = 0; r < height / 2; ++r) sum[r] = Simd::add(s[r][v], s[r + height / 2][v]);
#pragma GCC unroll 4
      for (int half = height / 4; half > 0; half /= 2) {
#pragma GCC unroll 4
        for (int r = 0; r < half; ++r) sum[r] = Simd::add(sum[r], sum[r + half]);
      }
      Simd::store(panel.l + v * lanes, Simd::add(Simd::load(panel.l + v * lanes), sum[0]));
      store_weights<N>(s, v, key);
      if (Dot::pair == 2) add_rounded(panel, v, key);
      // -0 marks what is not attended to, for repair(); what is dropped too, but the sums have it.
      if (hides || kept_) [[unlikely]] {
        if (hides) hide<N>(s, v, key, bits_, Simd::set1(-0.0f));
        if (kept_) hide<N>(s, v, key, kept_, Simd::set1(-0.0f));
        store_weights<N>(s, v, key);
      }
    }
  }

  template <int N>
  inline __attribute__((always_inline)) void store_weights(const F (&s)[height][N], int v, std::int64_t key) {
    float* to = weights_ + key / Dot::pair * width + v * lanes;
#pragma GCC unroll 8
    for (int r = 0; r < height; r += Dot::pair) {
      Simd::store(to + r / Dot::pair * width, Dot::step(s[r][v], s[r + Dot::pair - 1][v]));
    }
  }

  // The sum of weights that were rounded for the products. out is divided by it: the weights of a row, as they are
  // used, then sum to 1, and where one or two keys have them all, nothing of their rounding is left in it.
  inline __attribute__((always_inline)) void add_rounded(Panel& panel, int v, std::int64_t key) {
    const F ones = Dot::step(Simd::set1(1), Simd::set1(1));
    const float* weights = weights_ + key / Dot::pair * width + v * lanes;
    F sum = Simd::load(panel.rounded_l + v * lanes);
#pragma GCC unroll 8
    for (int r = 0; r < height / Dot::pair; ++r) sum = Dot::fma(ones, Simd::load(weights + r * width), sum);
    Simd::store(panel.rounded_l + v * lanes, sum);
  }

  // Where a row's largest score has outgrown what its sums are measured from, they are scaled down. Rows beside it are
  // multiplied by 1. bf16 weights are scaled by powers of two, without an error. A call, as in line it takes registers
  // from the weights.
  __attribute__((noinline)) void rescale(Panel& panel, int v, F top, std::int64_t begin, std::int64_t key) {
    float* place = panel.m + v * lanes;
    const F m = Simd::load(place);
    F next = top, change = Simd::sub(m, top);
    if (Dot::pair == 2) {
      const F growth = Simd::sub(top, m), whole = Simd::sub(Simd::fraction(growth), growth);
      // Nothing is left of the sums where there were none, or where m was so far below that m - whole would be coarse.
      const Mask nothing = Simd::greater(growth, Simd::set1(256));
      next = Simd::select(nothing, top, Simd::sub(m, whole));
      change = Simd::select(nothing, Simd::set1(no_maximum), whole);
    }
    const Mask grown = Simd::greater(top, Simd::add(m, Simd::set1(slack)));
    const F higher = Simd::select(grown, next, m);
    const F alpha = Simd::select(grown, exp2<5>(change), Simd::set1(1));
    Simd::store(place, higher);
    Simd::store(panel.l + v * lanes, Simd::mul(Simd::load(panel.l + v * lanes), alpha));
    if (Dot::pair == 2)
      Simd::store(panel.rounded_l + v * lanes, Simd::mul(Simd::load(panel.rounded_l + v * lanes), alpha));
    // The first scores of all outgrow what m begins with, and find nothing but zeros.
    const std::int64_t columns = panel.summed ? g_.sizes.Dv : 0;
    for (std::int64_t d = 0; d < columns; ++d) {
      float* o = panel.o + d * width + v * lanes;
      Simd::store(o, Simd::mul(Simd::load(o), alpha));
    }
    for (std::int64_t j = begin / Dot::pair; j < key / Dot::pair; ++j) {
      float* weights = weights_ + j * width + v * lanes;
      Simd::store(weights, Dot::scale(Simd::load(weights), alpha));
    }
  }

  // ---- Weights times values ----

  template <int N>
  void mix(Panel& panel, const Tile& tile, const Meeting& meeting) {
    const auto step_of = [&](std::int64_t key) {
      return max_of<std::int64_t>(0, min_of(key, tile.keys) - meeting.begin + Dot::pair - 1) / Dot::pair;
    };
    Steps<N> steps;
    for (int i = 0; i < N; ++i) steps.first[i] = step_of(meeting.first[i]), steps.limit[i] = step_of(meeting.limit[i]);
    steps.alike = steps.first[N - 1] == 0 && steps.limit[0] == steps.limit[N - 1];
    const float* weights = weights_ + meeting.begin / Dot::pair * width;
    const float* v = tile.v + meeting.begin / Dot::pair * tile.v_row;
    std::int64_t d = 0;
    for (; d + height <= g_.sizes.Dv; d += height) mix_columns<N, height>(panel, d, weights, v + d, tile.v_row, steps);
    if (height > 4 && d + 4 <= g_.sizes.Dv) {
      mix_columns<N, 4>(panel, d, weights, v + d, tile.v_row, steps);
      d += 4;
    }
    for (; d < g_.sizes.Dv; ++d) mix_columns<N, 1>(panel, d, weights, v + d, tile.v_row, steps);
  }

  // The Meeting's first and limit, counted in steps of the products from its beginning.
  template <int N>
  struct Steps {
    std::int64_t first[N], limit[N];
    bool alike;  // all vectors have all of them
  };

  // R columns of the values, from d on. The tile's own sum begins at 0 and is then added, but for the first tile's:
  // sums of 64 lose less than a sum of all. Vectors join one after another, and leave in that order.
  template <int N, int R>
  __attribute__((noinline)) void mix_columns(const Panel& panel, std::int64_t d, const float* weights, const float* v,
                                             std::int64_t v_row, const Steps<N>& steps) {
    F sums[R][N];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int i = 0; i < N; ++i) sums[r][i] = Simd::zero();
    }
    if (N == 1 || steps.alike) {
      mix_part<R, 0, N>(sums, weights, v, v_row, 0, steps.limit[0]);
    } else {
      if constexpr (N > 1) mix_part<R, 0, 1>(sums, weights, v, v_row, 0, steps.first[1]);
      if constexpr (N > 2) mix_part<R, 0, 2>(sums, weights, v, v_row, steps.first[1], steps.first[2]);
      mix_part<R, 0, N>(sums, weights, v, v_row, steps.first[N - 1], steps.limit[0]);
      if constexpr (N > 1) mix_part<R, 1, N>(sums, weights, v, v_row, steps.limit[0], steps.limit[1]);
      if constexpr (N > 2) mix_part<R, 2, N>(sums, weights, v, v_row, steps.limit[1], steps.limit[2]);
    }
    float* const o = panel.o + d * width;
    if (panel.summed) {
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
        for (int i = 0; i < N; ++i) {
          float* place = o + r * width + i * lanes;
          Simd::store(place, Simd::add(Simd::load(place), sums[r][i]));
        }
      }
    } else {
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
        for (int i = 0; i < N; ++i) Simd::store(o + r * width + i * lanes, sums[r][i]);
      }
    }
  }

  template <int R, int First, int Last, int N>
  static inline __attribute__((always_inline)) void mix_part(F (&sums)[R][N], const float* weights, const float* v,
                                                             std::int64_t v_row, std::int64_t begin, std::int64_t end) {
    multiply<Dot, R, First, Last, N>(sums, v + begin * v_row, 1, v_row, weights + begin * width, end - begin);
  }

  static constexpr DType native = Dot::pair == 1 ? DType::f32 : DType::bf16;
  // While each panel meets which the next item is asked for: earlier, what comes could be gone again.
  static constexpr std::int64_t last_blocks = 2 * tile_keys / height;

  std::int64_t steps_, bytes_ = 0;
  bool adjusts_;
  Ahead ahead_;
  char *k_wide_ = nullptr, *v_wide_ = nullptr;  // a tile of keys and values that are kept in 8 bits
  float *weights_ = nullptr, *k_copy_ = nullptr, *v_copy_ = nullptr, *stage_ = nullptr;
};

}  // namespace
}  // namespace attend::inline v1::kernels
