// Attention of many queries: the fused kernel. A file that includes this has included a vector layer `Simd` before.
//
// Queries stand in lanes: scores are held transposed, [keys][queries], so that a row's maximum and sum are vertical
// operations, and keys and values are read row by row, each element broadcast to the lanes.
#pragma once

#include "kernels/common_kernels.h"

namespace attend::kernels {
namespace {

// ---- The work of one call ----

// Query rows side by side in the lanes of three vectors.
struct Panel {
  std::int64_t rows;  // of them real; the others repeat the last one
  int count;          // vectors that hold a real row
  float* q;           // [D or pairs of D][width]
  float* o;           // [Dv][width], sums of weights times values
  float* m;           // [width] log2 units, whole: what the scores are measured from
  float* l;           // [width] sums of weights
  std::int64_t* lo;   // [width] the visible keys of each row: lo <= key < hi
  std::int64_t* hi;   // [width]
  std::int64_t min_lo, max_lo, min_hi, max_hi;
};

// 64 keys and values in a form that the kernels read.
struct Tile {
  std::int64_t start;  // its first key
  std::int64_t keys;   // that exist
  bool ready = false;
  const float* k = nullptr;
  std::int64_t k_row = 0;
  const float* v = nullptr;  // [key or pair of keys][Dv]
  std::int64_t v_row = 0;
  bool checked = false;  // whether `finite` is known
  bool finite = true;    // else v has 0 where the value is not finite, and repair() adds what is missing
};

// What of a panel and a tile meets.
struct Meeting {
  std::int64_t begin, end;  // keys of the tile, multiples of `block`
  // The keys that some row of each vector sees: first <= key < limit, both never falling, and every first <= limit[0].
  std::int64_t first[vectors], limit[vectors];
  bool masked;  // some pair within is not visible, and `bits` says which
};

template <class Dot>
class Forward {
 public:
  Forward(const Group& group, const Results& to, std::int64_t first, std::int64_t last, char* scratch)
      : g_(group), to_(to), first_(first), queries_(last - first), rows_(group.sizes.G * (last - first)) {
    steps_ = (g_.sizes.D + Dot::pair - 1) / Dot::pair;
    adjusts_ = g_.features.softcap || g_.features.bias || g_.features.alibi_slopes;
    drops_ = g_.features.dropout;
    carve({scratch});
  }

  static std::size_t scratch_bytes(const Sizes& sizes, const Features& features, std::int64_t rows) {
    const Group group{.sizes = sizes, .features = features};
    Forward f(group, {}, 0, 0, nullptr);
    f.rows_ = rows;
    return static_cast<std::size_t>(f.carve({}));
  }

  void run() {
    prepare();
    std::int64_t begin = INT64_MAX, end = 0;
    for (std::int64_t p = 0; p < panels_; ++p) {
      if (panel_[p].max_hi == 0) continue;
      begin = min_of(begin, panel_[p].min_lo);
      end = max_of(end, panel_[p].max_hi);
    }
    for (std::int64_t start = begin / tile_keys * tile_keys; start < end; start += tile_keys) {
      Tile tile;
      tile.start = start;
      tile.keys = min_of(tile_keys, g_.rules.key_length - start);
      for (std::int64_t p = 0; p < panels_; ++p) meet(panel_[p], p, tile);
    }
    for (std::int64_t p = 0; p < panels_; ++p) finish(panel_[p], p);
  }

 private:
  // ---- Scratch ----

  // Where everything lies; how many bytes that takes.
  std::int64_t carve(Scratch scratch) {
    panels_ = (rows_ + width - 1) / width;
    panel_ = scratch.take<Panel>(panels_);
    q_ = scratch.take<float>(panels_ * round_up(steps_, 4) * width);
    o_ = scratch.take<float>(panels_ * round_up(g_.sizes.Dv, 4) * width);
    m_ = scratch.take<float>(panels_ * width);
    l_ = scratch.take<float>(panels_ * width);
    lo_ = scratch.take<std::int64_t>(panels_ * width);
    hi_ = scratch.take<std::int64_t>(panels_ * width);
    weights_ = scratch.take<float>(tile_keys / Dot::pair * width);
    k_copy_ = scratch.take<float>(tile_keys * steps_);
    v_copy_ = scratch.take<float>(tile_keys / Dot::pair * g_.sizes.Dv);
    stage_ = scratch.take<float>(block * width);
    row_stride_ = round_up(max_of(max_of(g_.sizes.D, g_.sizes.Dv), tile_keys) + 1, lanes);
    row_ = scratch.take<float>(4 * row_stride_);
    bits_ = scratch.take<std::uint32_t>(2 * width);
    mask_rows_ = scratch.take<const char*>(panels_ * width);
    if (g_.features.bias) {
      bias_rows_ = scratch.take<const char*>(panels_ * width);
      bias_ = scratch.take<float>(tile_keys * width);
      closed_ = scratch.take<std::uint64_t>(width);
    }
    if (g_.features.dropout) {
      draws_ = scratch.take<std::uint64_t>(panels_ * width);
      kept_ = scratch.take<std::uint32_t>(2 * width);
    }
    if (g_.features.alibi_slopes) {
      slopes_ = scratch.take<float>(panels_ * width);
      places_ = scratch.take<std::int64_t>(panels_ * width);
      level_ = scratch.take<float>(width);
    }
    return scratch.used;
  }

  // One of the four rows at row_.
  float* row_buffer(std::int64_t i) { return row_ + i * row_stride_; }

  // ---- Rows ----

  std::int64_t head_of(std::int64_t row) const { return row / queries_; }
  std::int64_t query_of(std::int64_t row) const { return first_ + row % queries_; }
  // Lanes beyond the last row repeat it: what they hold is finite and costs nothing to reason about.
  std::int64_t row_at(std::int64_t panel, std::int64_t lane) const { return min_of(panel * width + lane, rows_ - 1); }

  void prepare() {
    for (std::int64_t p = 0; p < panels_; ++p) {
      Panel& panel = panel_[p];
      panel.rows = min_of<std::int64_t>(width, rows_ - p * width);
      panel.count = static_cast<int>((panel.rows + lanes - 1) / lanes);
      panel.q = q_ + p * round_up(steps_, 4) * width;
      panel.o = o_ + p * round_up(g_.sizes.Dv, 4) * width;
      panel.m = m_ + p * width;
      panel.l = l_ + p * width;
      panel.lo = lo_ + p * width;
      panel.hi = hi_ + p * width;
      find_ranges(panel, p);
      if (g_.features.mask || bias_rows_ || slopes_ || drops_) find_rows(p);
      pack_queries(panel, p);
      start_sums(panel, p);
    }
  }

  void find_ranges(Panel& panel, std::int64_t p) {
    panel.min_lo = panel.min_hi = INT64_MAX;
    panel.max_lo = panel.max_hi = 0;
    const bool alike = !g_.rules.causal && g_.rules.window_left < 0 && g_.rules.window_right < 0;
    for (std::int64_t lane = 0; lane < width; ++lane) {
      const auto [lo, hi] =
          alike ? KeyRange{0, g_.rules.key_length} : visible_keys(g_.rules, query_of(row_at(p, lane)));
      panel.lo[lane] = lo;
      panel.hi[lane] = hi;
      // A row that sees nothing does not hold the others' first tile back.
      if (hi > 0) panel.min_lo = min_of(panel.min_lo, lo);
      panel.max_lo = max_of(panel.max_lo, lo);
      panel.min_hi = min_of(panel.min_hi, hi);
      panel.max_hi = max_of(panel.max_hi, hi);
    }
  }

  // What each tile asks for again, and finds without a division.
  void find_rows(std::int64_t p) {
    for (std::int64_t i = p * width; i < (p + 1) * width; ++i) {
      const std::int64_t row = min_of(i, rows_ - 1);
      if (g_.features.mask) mask_rows_[i] = operand_at(g_.mask, head_of(row), query_of(row));
      if (bias_rows_) bias_rows_[i] = operand_at(g_.bias, head_of(row), query_of(row));
      if (drops_) draws_[i] = dropout_row(g_.rules.dropout, head_of(row), query_of(row));
      if (!slopes_) continue;
      slopes_[i] = static_cast<float>(-g_.alibi_slopes[head_of(row)] * 1.44269504088896340736);
      places_[i] = query_of(row) + g_.rules.offset;
    }
  }

  void pack_queries(Panel& panel, std::int64_t p) {
    for (std::int64_t lane = 0; lane < panel.count * lanes; lane += 4) {
      for (int i = 0; i < 4; ++i) {
        const std::int64_t row = row_at(p, lane + i);
        load_query<Dot>(g_, head_of(row), query_of(row), row_buffer(i), steps_);
      }
      transpose_in(panel.q + lane, steps_);
    }
  }

  // The four row buffers, `count` floats each, into columns of a [count][width] panel; there is room for four more.
  void transpose_in(float* to, std::int64_t count) {
    for (std::int64_t d = 0; d < count; d += 4) {
      transpose4(row_buffer(0) + d, row_buffer(1) + d, row_buffer(2) + d, row_buffer(3) + d, to + d * width, width);
    }
  }

  void start_sums(Panel& panel, std::int64_t p) {
    for (std::int64_t i = 0; i < g_.sizes.Dv * width; ++i) panel.o[i] = 0;
    for (std::int64_t lane = 0; lane < width; ++lane) {
      panel.m[lane] = no_maximum;
      panel.l[lane] = 0;
      if (!g_.sinks) continue;
      // The sink is the first score of the row.
      const double sink = g_.sinks[head_of(row_at(p, lane))] * 1.44269504088896340736;
      panel.m[lane] = static_cast<float>(max_of<double>(-FLT_MAX, min_of<double>(sink, FLT_MAX)));
      panel.l[lane] = static_cast<float>(__builtin_exp2(sink - static_cast<double>(panel.m[lane])));
    }
  }

  // ---- A panel and a tile ----

  void meet(Panel& panel, std::int64_t p, Tile& tile) {
    if (panel.max_hi <= tile.start || panel.min_lo >= tile.start + tile.keys) return;
    if (g_.features.bias) load_bias(panel, p, tile);
    Meeting meeting;
    if (!look(panel, p, tile, meeting)) return;
    if (!tile.ready) fetch(tile);
    if ((meeting.masked || drops_) && !tile.checked) check_values(tile);
    if (slopes_) load_levels(p, tile);
    if (drops_) draw_dropout(p, tile);
    start_ = tile.start;
    switch (panel.count) {
      case 1:
        return work<1>(panel, p, tile, meeting);
      case 2:
        return work<2>(panel, p, tile, meeting);
      default:
        return work<vectors>(panel, p, tile, meeting);
    }
  }

  // Which keys of the tile the panel sees; false: none.
  bool look(const Panel& panel, std::int64_t p, const Tile& tile, Meeting& meeting) {
    const std::int64_t begin = max_of<std::int64_t>(0, panel.min_lo - tile.start);
    const std::int64_t end = min_of(tile.keys, panel.max_hi - tile.start);
    meeting.begin = begin / block * block;
    meeting.end = round_up(end, block);
    for (std::int64_t& first : meeting.first) first = meeting.begin;
    for (std::int64_t& limit : meeting.limit) limit = meeting.end;
    const bool whole = panel.max_lo <= tile.start + meeting.begin && panel.min_hi >= tile.start + meeting.end;
    meeting.masked = !whole || g_.features.mask || bias_closes_;
    return !meeting.masked || find_bits(panel, p, tile, meeting);
  }

  bool find_bits(const Panel& panel, std::int64_t p, const Tile& tile, Meeting& meeting) {
    std::uint64_t some = 0, all = ~std::uint64_t{0};
    std::int64_t limit = 0;
    for (int v = 0; v < panel.count; ++v) {
      std::uint64_t vector_some = 0;
      for (std::int64_t lane = v * lanes; lane < (v + 1) * lanes; ++lane) {
        std::uint64_t bits = below(panel.hi[lane] - tile.start) & ~below(panel.lo[lane] - tile.start);
        if (g_.features.mask) bits &= mask_bits(mask_rows_[p * width + lane], g_.mask.column, tile.start, tile.keys);
        if (bias_closes_) bits &= ~closed_[lane];
        bits_[lane] = static_cast<std::uint32_t>(bits);
        bits_[width + lane] = static_cast<std::uint32_t>(bits >> 32);
        vector_some |= bits;
        all &= bits;
      }
      some |= vector_some;
      const std::int64_t own = vector_some == 0 ? 0 : 64 - __builtin_clzll(vector_some);
      limit = max_of(limit, round_up(own, block));
      meeting.limit[v] = limit;
      meeting.first[v] = vector_some == 0 ? tile_keys : __builtin_ctzll(vector_some) / block * block;
    }
    if (some == 0) return false;
    for (int v = panel.count; v < vectors; ++v) meeting.limit[v] = limit, meeting.first[v] = meeting.first[v - 1];
    meeting.begin = __builtin_ctzll(some) / block * block;
    meeting.end = limit;
    bool in_order = meeting.first[vectors - 1] <= meeting.limit[0];
    for (int v = 1; v < vectors; ++v) in_order &= meeting.first[v - 1] <= meeting.first[v];
    // Windows narrower than the panel, and masks of any form: every vector begins with the first.
    for (std::int64_t& first : meeting.first) first = in_order ? first : meeting.begin;
    meeting.masked = (all & below(meeting.end) & ~below(meeting.begin)) != (below(meeting.end) & ~below(meeting.begin));
    return true;
  }

  // Which keys of the tile each row keeps, as bits_ holds which it sees.
  void draw_dropout(std::int64_t p, const Tile& tile) {
    const std::uint32_t threshold = dropout_threshold(g_.rules.dropout.p);
    for (std::int64_t lane = 0; lane < width; ++lane) {
      const std::uint64_t bits = dropout_bits(draws_[p * width + lane], threshold, g_.rules.dropout.key + tile.start);
      kept_[lane] = static_cast<std::uint32_t>(bits);
      kept_[width + lane] = static_cast<std::uint32_t>(bits >> 32);
    }
  }

  // ---- Keys and values ----

  // Points to keys and values where they can be read as they are, else copies them: other dtypes, other strides, and a
  // last tile whose register tile would read beyond the end.
  void fetch(Tile& tile) {
    tile.ready = true;
    const DType native = Dot::pair == 1 ? DType::f32 : DType::bf16;
    const bool whole = tile.keys % block == 0;
    const std::int64_t padded = round_up(tile.keys, block);
    const char* k = rows_at(g_.k, tile.start);
    if (g_.k.dtype == native && g_.k.column == 1 && whole && g_.sizes.D % Dot::pair == 0 && g_.k.row % Dot::pair == 0) {
      tile.k = reinterpret_cast<const float*>(k);
      tile.k_row = g_.k.row / Dot::pair;
    } else {
      tile.k = k_copy_;
      tile.k_row = steps_;
      for (std::int64_t j = 0; j < padded; ++j) {
        copy_key(k_copy_ + j * steps_, j < tile.keys ? k + j * g_.k.row * bytes_of(g_.k.dtype) : nullptr);
      }
    }
    if (Dot::pair == 1 && g_.v.dtype == native && g_.v.column == 1) {
      tile.v = reinterpret_cast<const float*>(rows_at(g_.v, tile.start));
      tile.v_row = g_.v.row;
    } else {
      copy_values(tile, false);
    }
  }

  void copy_key(float* to, const char* from) {
    if (!from) {
      for (std::int64_t s = 0; s < steps_; ++s) to[s] = 0;
      return;
    }
    if constexpr (Dot::pair == 1) {
      load_row(to, g_.k.dtype, from, g_.k.column, g_.sizes.D);
    } else {
      copy_halves(reinterpret_cast<std::uint16_t*>(to), from, g_.k.column, g_.sizes.D, 2 * steps_);
    }
  }

  void copy_values(Tile& tile, bool finite_only) {
    tile.v = v_copy_;
    tile.v_row = g_.sizes.Dv;
    const char* v = rows_at(g_.v, tile.start);
    const std::int64_t row_bytes = g_.v.row * bytes_of(g_.v.dtype);
    for (std::int64_t j = 0; j < tile.keys; j += Dot::pair) {
      float* to = v_copy_ + j / Dot::pair * g_.sizes.Dv;
      if constexpr (Dot::pair == 1) {
        load_row(to, g_.v.dtype, v + j * row_bytes, g_.v.column, g_.sizes.Dv);
        for (std::int64_t d = 0; finite_only && d < g_.sizes.Dv; ++d) to[d] = to[d] - to[d] == 0 ? to[d] : 0;
      } else {
        interleave(reinterpret_cast<std::uint32_t*>(to), v + j * row_bytes,
                   j + 1 < tile.keys ? v + (j + 1) * row_bytes : nullptr, finite_only);
      }
    }
  }

  // Two rows of bf16 values as one row of pairs; no second row: zeros.
  void interleave(std::uint32_t* to, const char* low, const char* high, bool finite_only) {
    const std::int64_t step = g_.v.column * 2;
    const auto bits = [&](const char* from) {
      std::uint16_t half;
      __builtin_memcpy(&half, from, 2);
      return static_cast<std::uint32_t>(finite_only && (half & 0x7F80) == 0x7F80 ? 0 : half);
    };
    if (!high) {
      for (std::int64_t d = 0; d < g_.sizes.Dv; ++d) to[d] = bits(low + d * step);
    } else if (g_.v.column == 1 && !finite_only) {
      for (std::int64_t d = 0; d < g_.sizes.Dv; ++d) {
        std::uint16_t a, b;
        __builtin_memcpy(&a, low + d * 2, 2);
        __builtin_memcpy(&b, high + d * 2, 2);
        to[d] = a | static_cast<std::uint32_t>(b) << 16;
      }
    } else {
      for (std::int64_t d = 0; d < g_.sizes.Dv; ++d) to[d] = bits(low + d * step) | bits(high + d * step) << 16;
    }
  }

  // A value that some row does not attend to must not reach it, and 0 * NaN is NaN: non-finite values are taken out of
  // the tile, and repair() gives them to the rows that attend to them.
  void check_values(Tile& tile) {
    tile.checked = true;
    const char* v = rows_at(g_.v, tile.start);
    F sum = Simd::zero();
    for (std::int64_t j = 0; j < tile.keys; ++j) {
      float* row = row_buffer(0);
      load_row(row, g_.v.dtype, v + j * g_.v.row * bytes_of(g_.v.dtype), g_.v.column, g_.sizes.Dv);
      for (std::int64_t d = g_.sizes.Dv; d % lanes != 0; ++d) row[d] = 0;
      for (std::int64_t d = 0; d < g_.sizes.Dv; d += lanes) {
        const F x = Simd::load(row + d);
        sum = Simd::add(sum, Simd::sub(x, x));  // 0, or NaN
      }
    }
    float total[lanes];
    Simd::store(total, sum);
    for (const float x : total) tile.finite &= x == 0;
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
    const char* v = rows_at(g_.v, tile.start);
    for (std::int64_t j = meeting.begin; j < min_of(meeting.end, tile.keys); ++j) {
      for (std::int64_t d = 0; d < g_.sizes.Dv; ++d) {
        const float value = load_scalar(g_.v.dtype, v + (j * g_.v.row + d * g_.v.column) * bytes_of(g_.v.dtype));
        if (value - value == 0) continue;
        for (std::int64_t lane = 0; lane < panel.count * lanes; ++lane) {
          if (j < meeting.first[lane / lanes] || j >= meeting.limit[lane / lanes]) continue;
          const float weight = weight_at(j, lane);
          if (!__builtin_signbit(weight)) panel.o[d * width + lane] += weight * value;
        }
      }
    }
  }

  // ---- Scores to weights ----

  template <int N>
  void work(Panel& panel, std::int64_t p, const Tile& tile, const Meeting& meeting) {
    for (std::int64_t key = meeting.begin; key < meeting.end; key += block) {
      constexpr int second = min_of(1, N - 1);
      if (N > 1 && key < meeting.first[second]) {
        score<N, 0, 1>(panel, p, tile, meeting, key);
      } else if (N > 2 && key < meeting.first[N - 1]) {
        score<N, 0, min_of(2, N)>(panel, p, tile, meeting, key);
      } else if (key < meeting.limit[0]) {
        score<N, 0, N>(panel, p, tile, meeting, key);
      } else if (N > 1 && key < meeting.limit[second]) {
        score<N, second, N>(panel, p, tile, meeting, key);
      } else {
        score<N, N - 1, N>(panel, p, tile, meeting, key);
      }
    }
    mix<N>(panel, tile, meeting);
    if (!tile.finite) repair(panel, tile, meeting);  // masked or not: an earlier panel may have taken values out
  }

  // `block` keys against vectors First to Last of the panel, up to the weights.
  template <int N, int First, int Last>
  __attribute__((noinline)) void score(Panel& panel, std::int64_t p, const Tile& tile, const Meeting& meeting,
                                       std::int64_t key) {
    F s[block][N];
#pragma GCC unroll 8
    for (int r = 0; r < block; ++r) {
#pragma GCC unroll 4
      for (int v = First; v < Last; ++v) s[r][v] = Simd::zero();
    }
    multiply<Dot, block, First, Last, N>(s, tile.k + key * tile.k_row, tile.k_row, 1, panel.q, steps_);
    if (adjusts_) adjust<N, First, Last>(s, panel, p, key);
    if (meeting.masked) {
      hide<N, First, Last>(s, key);
      weigh<N, First, Last, true>(panel, s, meeting.begin, key);
    } else {
      weigh<N, First, Last, false>(panel, s, meeting.begin, key);
    }
  }

  // Scores, in registers, to weights in weights_; maximum and sum of each row.
  template <int N, int First, int Last, bool Hidden>
  inline __attribute__((always_inline)) void weigh(Panel& panel, F (&s)[block][N], std::int64_t begin,
                                                   std::int64_t key) {
    const F factor = Simd::set1(Dot::pair == 1 || adjusts_ ? 1 : late_factor(g_));
    F top[N];
    bool grown = false;
#pragma GCC unroll 4
    for (int v = First; v < Last; ++v) {
      top[v] = s[0][v];
#pragma GCC unroll 8
      for (int r = 1; r < block; ++r) top[v] = Simd::max(s[r][v], top[v]);
      if (Dot::pair == 2) top[v] = Simd::mul(top[v], factor);
      const F m = Simd::load(panel.m + v * lanes);
      grown |= Simd::any(Simd::greater(top[v], Simd::add(m, Simd::set1(slack))));
    }
    if (grown) [[unlikely]] {
#pragma GCC unroll 4
      for (int v = First; v < Last; ++v) rescale(panel, v, top[v], begin, key);
    }
#pragma GCC unroll 4
    for (int v = First; v < Last; ++v) {
      const F m = Simd::load(panel.m + v * lanes);
#pragma GCC unroll 8
      for (int r = 0; r < block; ++r) {
        // Not fma: exactly, a score may lie above the rounded m, at 1e10 by more than exp2 takes.
        const F x = Dot::pair == 1 ? Simd::sub(s[r][v], m) : Simd::sub(Simd::mul(s[r][v], factor), m);
        const F weight = exp2<Dot::degree>(x);
        // -0 marks what is not attended to, for repair().
        s[r][v] =
            Hidden ? Simd::select(Simd::equal(s[r][v], Simd::set1(-infinity)), Simd::set1(-0.0f), weight) : weight;
      }
      F sum[block / 2];
#pragma GCC unroll 8
      for (int r = 0; r < block / 2; ++r) sum[r] = Simd::add(s[r][v], s[r + block / 2][v]);
#pragma GCC unroll 4
      for (int half = block / 4; half > 0; half /= 2) {
#pragma GCC unroll 4
        for (int r = 0; r < half; ++r) sum[r] = Simd::add(sum[r], sum[r + half]);
      }
      Simd::store(panel.l + v * lanes, Simd::add(Simd::load(panel.l + v * lanes), sum[0]));
      if (drops_) [[unlikely]] {
        // As if they were not attended to, but for the sum.
#pragma GCC unroll 8
        for (int r = 0; r < block; ++r) {
          const Mask kept = Simd::test(kept_ + key / 32 * width + v * lanes, std::uint32_t{1} << (key + r) % 32);
          s[r][v] = Simd::select(kept, s[r][v], Simd::set1(-0.0f));
        }
      }
      float* to = weights_ + key / Dot::pair * width + v * lanes;
#pragma GCC unroll 8
      for (int r = 0; r < block; r += Dot::pair) {
        Simd::store(to + r / Dot::pair * width, Dot::step(s[r][v], s[r + Dot::pair - 1][v]));
      }
    }
  }

  // Where a row's largest score has outgrown what its sums are measured from, they are scaled down. Rows beside it are
  // multiplied by 1. bf16 weights are scaled by powers of two, without an error.
  void rescale(Panel& panel, int v, F top, std::int64_t begin, std::int64_t key) {
    float* place = panel.m + v * lanes;
    const F m = Simd::load(place);
    F next = top, change = Simd::sub(m, top);
    if (Dot::pair == 2) {
      const F whole = Simd::sub(Simd::fraction(Simd::sub(top, m)), Simd::sub(top, m));
      const Mask first = Simd::equal(m, Simd::set1(no_maximum));
      next = Simd::select(first, top, Simd::sub(m, whole));
      change = Simd::select(first, m, whole);
    }
    const Mask grown = Simd::greater(top, Simd::add(m, Simd::set1(slack)));
    const F higher = Simd::select(grown, next, m);
    const F alpha = Simd::select(grown, exp2<5>(change), Simd::set1(1));
    Simd::store(place, higher);
    Simd::store(panel.l + v * lanes, Simd::mul(Simd::load(panel.l + v * lanes), alpha));
    for (std::int64_t d = 0; d < g_.sizes.Dv; ++d) {
      float* o = panel.o + d * width + v * lanes;
      Simd::store(o, Simd::mul(Simd::load(o), alpha));
    }
    for (std::int64_t j = begin / Dot::pair; j < key / Dot::pair; ++j) {
      float* weights = weights_ + j * width + v * lanes;
      Simd::store(weights, Dot::scale(Simd::load(weights), alpha));
    }
  }

  // ---- What changes a score ----

  void load_levels(std::int64_t p, const Tile& tile) {
    for (std::int64_t lane = 0; lane < width; ++lane) {
      level_[lane] = static_cast<float>(places_[p * width + lane] - tile.start);
    }
  }

  // Also finds the pairs that a bias of -infinity closes: they are masked.
  void load_bias(const Panel& panel, std::int64_t p, const Tile& tile) {
    bias_closes_ = false;
    const std::int64_t step = bytes_of(g_.bias.dtype) * g_.bias.column;
    for (std::int64_t lane = 0; lane < panel.count * lanes; lane += 4) {
      for (int i = 0; i < 4; ++i) {
        const char* from = bias_rows_[p * width + lane + i] + tile.start * step;
        load_row(row_buffer(i), g_.bias.dtype, from, g_.bias.column, tile.keys);
        for (std::int64_t j = tile.keys; j < tile_keys; ++j) row_buffer(i)[j] = 0;
        closed_[lane + i] = infinities_in(row_buffer(i));
        bias_closes_ |= closed_[lane + i] != 0;
      }
      transpose_in(bias_ + lane, tile_keys);
    }
  }

  // The next tile's biases, a part with each block of keys: they come from memory, row by row, which the processor's
  // own prefetch does not follow.
  void ask_for_bias(std::int64_t p, std::int64_t key) const {
    constexpr std::int64_t rows = width * block / tile_keys;
    const std::int64_t bytes = tile_keys * bytes_of(g_.bias.dtype);
    if (g_.bias.column != 1) return;
    for (std::int64_t i = 0; i < rows; ++i) {
      const char* row = bias_rows_[p * width + key / block * rows + i] + (start_ + tile_keys) * bytes_of(g_.bias.dtype);
      for (std::int64_t byte = 0; byte < bytes; byte += 64) __builtin_prefetch(row + byte, 0, 2);
    }
  }

  // Which of a tile's values are -infinity, mostly none.
  static std::uint64_t infinities_in(const float* row) {
    F least = Simd::zero();
    for (std::int64_t j = 0; j < tile_keys; j += lanes) least = Simd::min(Simd::load(row + j), least);
    std::uint64_t bits = 0;
    if (!Simd::any(Simd::equal(least, Simd::set1(-infinity)))) return bits;
    for (std::int64_t j = 0; j < tile_keys; ++j) bits |= static_cast<std::uint64_t>(row[j] == -infinity) << j;
    return bits;
  }

  // Softcap, bias and ALiBi, in log2 units.
  template <int N, int First, int Last>
  inline __attribute__((always_inline)) void adjust(F (&s)[block][N], const Panel& panel, std::int64_t p,
                                                    std::int64_t key) {
    if (Dot::pair == 2) {
      const F late = Simd::set1(late_factor(g_));
#pragma GCC unroll 8
      for (int r = 0; r < block; ++r) {
#pragma GCC unroll 4
        for (int v = First; v < Last; ++v) s[r][v] = Simd::mul(s[r][v], late);
      }
    }
    if (g_.features.softcap) {
#pragma GCC unroll 8
      for (int r = 0; r < block; ++r) {
#pragma GCC unroll 4
        for (int v = First; v < Last; ++v) Simd::store(stage_ + r * width + v * lanes, s[r][v]);
      }
      cap(panel.count);
#pragma GCC unroll 8
      for (int r = 0; r < block; ++r) {
#pragma GCC unroll 4
        for (int v = First; v < Last; ++v) s[r][v] = Simd::load(stage_ + r * width + v * lanes);
      }
    }
    if (bias_) {
      ask_for_bias(p, key);
      const F unit = Simd::set1(log2_e), least = Simd::set1(no_maximum);
#pragma GCC unroll 8
      for (int r = 0; r < block; ++r) {
#pragma GCC unroll 4
        for (int v = First; v < Last; ++v) {
          // The lowest finite f32, a common bias for what should not count, is beyond f32 in log2 units. A row that
          // sees nothing else weighs all its keys the same, as in any other arithmetic.
          s[r][v] = Simd::max(least, Simd::fma(Simd::load(bias_ + (key + r) * width + v * lanes), unit, s[r][v]));
        }
      }
    }
    if (slopes_) {
#pragma GCC unroll 8
      for (int r = 0; r < block; ++r) {
        const F place = Simd::set1(static_cast<float>(key + r));
#pragma GCC unroll 4
        for (int v = First; v < Last; ++v) {
          const F distance = Simd::abs(Simd::sub(Simd::load(level_ + v * lanes), place));
          s[r][v] = Simd::fma(distance, Simd::load(slopes_ + p * width + v * lanes), s[r][v]);
        }
      }
    }
  }

  // Softcap of the scores at stage_.
  __attribute__((noinline)) void cap(int count) {
    const F most = Simd::set1(cap_of(g_)), inverse = Simd::set1(1 / cap_of(g_));
    for (int r = 0; r < block; ++r) {
      for (int v = 0; v < count; ++v) {
        float* place = stage_ + r * width + v * lanes;
        Simd::store(place, Simd::mul(tanh(Simd::mul(Simd::load(place), inverse)), most));
      }
    }
  }

  // -infinity for every pair that is not visible.
  template <int N, int First, int Last>
  inline __attribute__((always_inline)) void hide(F (&s)[block][N], std::int64_t key) {
    const std::uint32_t* bits = bits_ + key / 32 * width;
    const F hidden = Simd::set1(-infinity);
#pragma GCC unroll 8
    for (int r = 0; r < block; ++r) {
      const std::uint32_t bit = std::uint32_t{1} << (key + r) % 32;
#pragma GCC unroll 4
      for (int v = First; v < Last; ++v) s[r][v] = Simd::select(Simd::test(bits + v * lanes, bit), s[r][v], hidden);
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
    const float* weights = weights_ + meeting.begin / Dot::pair * width;
    const float* v = tile.v + meeting.begin / Dot::pair * tile.v_row;
    std::int64_t d = 0;
    for (; d + block <= g_.sizes.Dv; d += block)
      mix_columns<N, block>(panel.o + d * width, weights, v + d, tile.v_row, steps);
    if (block > 4 && d + 4 <= g_.sizes.Dv) {
      mix_columns<N, 4>(panel.o + d * width, weights, v + d, tile.v_row, steps);
      d += 4;
    }
    for (; d < g_.sizes.Dv; ++d) mix_columns<N, 1>(panel.o + d * width, weights, v + d, tile.v_row, steps);
  }

  // The Meeting's first and limit, counted in steps of the products from its beginning.
  template <int N>
  struct Steps {
    std::int64_t first[N], limit[N];
  };

  // R columns of the values. The tile's own sum begins at 0 and is then added: sums of 64 lose less than a sum of all.
  // Vectors join one after another, and leave in that order.
  template <int N, int R>
  __attribute__((noinline)) void mix_columns(float* o, const float* weights, const float* v, std::int64_t v_row,
                                             const Steps<N>& steps) {
    F sums[R][N];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int i = 0; i < N; ++i) sums[r][i] = Simd::zero();
    }
    if constexpr (N > 1) mix_part<R, 0, 1>(sums, weights, v, v_row, 0, steps.first[1]);
    if constexpr (N > 2) mix_part<R, 0, 2>(sums, weights, v, v_row, steps.first[1], steps.first[2]);
    mix_part<R, 0, N>(sums, weights, v, v_row, steps.first[N - 1], steps.limit[0]);
    if constexpr (N > 1) mix_part<R, 1, N>(sums, weights, v, v_row, steps.limit[0], steps.limit[1]);
    if constexpr (N > 2) mix_part<R, 2, N>(sums, weights, v, v_row, steps.limit[1], steps.limit[2]);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int i = 0; i < N; ++i) {
        float* place = o + r * width + i * lanes;
        Simd::store(place, Simd::add(Simd::load(place), sums[r][i]));
      }
    }
  }

  template <int R, int First, int Last, int N>
  static inline __attribute__((always_inline)) void mix_part(F (&sums)[R][N], const float* weights, const float* v,
                                                             std::int64_t v_row, std::int64_t begin, std::int64_t end) {
    multiply<Dot, R, First, Last, N>(sums, v + begin * v_row, 1, v_row, weights + begin * width, end - begin);
  }

  // ---- Results ----

  void finish(Panel& panel, std::int64_t p) {
    float inverse[width], lse[width];
    for (int lane = 0; lane < width; ++lane) {
      const float l = panel.l[lane];
      inverse[lane] = l == 0 ? 0 : dropout_factor(g_) / l;
      lse[lane] = static_cast<float>(static_cast<double>(panel.m[lane]) * ln_2 + logarithm(l));
    }
    for (std::int64_t lane = 0; to_.lse.data && lane < panel.rows; ++lane) {
      const float l = panel.l[lane];
      const float stored = l == 0 ? -infinity : l - l == 0 ? lse[lane] : l;  // inf and NaN as they are
      const std::int64_t row = row_at(p, lane);
      __builtin_memcpy(operand_at(to_.lse, head_of(row), query_of(row)), &stored, 4);
    }
    for (std::int64_t d = 0; d < g_.sizes.Dv; ++d) {
      for (int v = 0; v < panel.count; ++v) {
        float* place = panel.o + d * width + v * lanes;
        // + 0: a sum that underflowed to -0 would depend on how many masked keys came after it.
        Simd::store(place, Simd::add(Simd::mul(Simd::load(place), Simd::load(inverse + v * lanes)), Simd::zero()));
      }
    }
    for (std::int64_t lane = 0; lane < panel.rows; lane += 4) store_rows(panel, p, lane);
  }

  void store_rows(const Panel& panel, std::int64_t p, std::int64_t lane) {
    const float* from = panel.o + lane;
    for (std::int64_t d = 0; d < g_.sizes.Dv; d += 4) {
      transpose4(from + d * width, from + (d + 1) * width, from + (d + 2) * width, from + (d + 3) * width,
                 row_buffer(0) + d, row_stride_);
    }
    for (int i = 0; i < 4 && lane + i < panel.rows; ++i) {
      const std::int64_t row = row_at(p, lane + i);
      char* to = operand_at(to_.out, head_of(row), query_of(row));
      store_row(row_buffer(i), to_.out.dtype, to, to_.out.column, g_.sizes.Dv);
    }
  }

  const Group& g_;
  Results to_;
  std::int64_t first_, queries_, rows_, steps_ = 0, panels_ = 0, row_stride_ = 0;
  bool adjusts_, drops_;
  Panel* panel_ = nullptr;
  float *q_ = nullptr, *o_ = nullptr, *m_ = nullptr, *l_ = nullptr, *weights_ = nullptr, *k_copy_ = nullptr,
        *v_copy_ = nullptr, *stage_ = nullptr, *row_ = nullptr, *bias_ = nullptr, *slopes_ = nullptr, *level_ = nullptr;
  const char **mask_rows_ = nullptr, **bias_rows_ = nullptr;  // where each row's mask and bias begin
  std::int64_t* places_ = nullptr;                            // query + offset of each row
  std::int64_t start_ = 0;                                    // the tile's first key
  std::int64_t *lo_ = nullptr, *hi_ = nullptr;
  std::uint32_t* bits_ = nullptr;
  std::uint64_t* draws_ = nullptr;  // of each row
  std::uint32_t* kept_ = nullptr;
  std::uint64_t* closed_ = nullptr;  // [width] keys of the tile whose bias is -infinity
  bool bias_closes_ = false;         // whether there are any
};

}  // namespace
}  // namespace attend::kernels
