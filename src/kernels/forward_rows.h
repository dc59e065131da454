// The forward's query rows: panels of them side by side in the lanes of vectors, what each of them sees of a tile of
// keys and values, what is added to its scores, and its results. forward.h multiplies.
#pragma once

#include "kernels/score.h"

namespace attend::inline v0::kernels {
namespace {

// Query rows side by side in the lanes of the register tile's vectors.
struct Panel {
  std::int64_t first;  // its first row, of all rows of the group
  std::int64_t rows;   // of them real; the others repeat the last one
  int count;           // vectors that hold a real row
  float* q;            // [D or pairs of D][width]
  float* o;            // [Dv][width], sums of weights times values
  bool summed;         // whether there are any: before, nothing is at o
  float* m;            // [width] log2 units, whole: what the scores are measured from
  float* l;            // [width] sums of weights
  float* rounded_l;    // of the weights as the values are multiplied by them; l where these are not rounded
  Ranges ranges;       // [width]
};

// 64 keys and values in a form that the kernels read.
struct Tile {
  std::int64_t start;  // its first key
  std::int64_t keys;   // that exist
  bool ready = false;
  const char* values = nullptr;  // in memory, a row every value_bytes
  std::int64_t value_bytes = 0;
  const float* k = nullptr;
  std::int64_t k_row = 0;
  const float* v = nullptr;  // [key or pair of keys][Dv]
  std::int64_t v_row = 0;
  bool checked = false;  // whether `finite` is known
  bool finite = true;    // else v has 0 where the value is not finite, and repair() adds what is missing
};

// What of a panel and a tile of keys meets.
struct Meeting {
  std::int64_t start, keys;  // the tile's first key, and how many it has
  std::int64_t begin, end;   // keys of the tile, multiples of `height`
  // The keys that some row of each vector sees: first <= key < limit, both never falling, and every first <= limit[0].
  std::int64_t first[vectors], limit[vectors];
  bool masked;  // some pair within is not visible, and bits_ says which; `all`, which keys all rows of a vector see
  std::uint64_t all[vectors];
};

class ForwardRows {
 public:
  ForwardRows(const Group& group, const Results& to, std::int64_t first, std::int64_t last, std::int64_t rows)
      : g_(group), to_(to), first_(first), queries_(last - first), rows_(rows) {}

 protected:
  // `steps` of a query, of `pair` elements each. `rounds`: weights are rounded before values are multiplied by them.
  void carve(Scratch& scratch, std::int64_t steps, bool rounds) {
    const Features& f = g_.features;
    panels_ = (rows_ + width - 1) / width;
    panel_ = scratch.take<Panel>(panels_);
    q_ = scratch.take<float>(panels_ * round_up(steps, 4) * width);
    o_ = scratch.take<float>(panels_ * round_up(g_.sizes.Dv, 4) * width);
    m_ = scratch.take<float>(panels_ * width);
    l_ = scratch.take<float>(panels_ * width);
    rounded_l_ = rounds ? scratch.take<float>(panels_ * width) : l_;
    ranges_ = scratch.take<KeyRange>(panels_ * width);
    bits_ = scratch.take<std::uint32_t>(2 * width);
    row_stride_ = round_up(max_of(max_of(g_.sizes.D, g_.sizes.Dv), tile_keys) + 1, lanes);
    row_ = scratch.take<float>(4 * row_stride_);
    if (f.mask) mask_rows_ = scratch.take<const char*>(panels_ * width);
    if (has_biases(f)) {
      bias_rows_ = scratch.take<BiasRow>(panels_ * width);
      closed_ = scratch.take<std::uint64_t>(width);
    }
    if (f.dropout) {
      draws_ = scratch.take<std::uint64_t>(panels_ * width);
      kept_ = scratch.take<std::uint32_t>(2 * width);
    }
    if (f.alibi_slopes) {
      slopes_ = scratch.take<float>(panels_ * width);
      places_ = scratch.take<std::int64_t>(panels_ * width);
      level_ = scratch.take<float>(width);
    }
  }

  // One of the four rows at row_.
  float* row_buffer(std::int64_t i) { return row_ + i * row_stride_; }

  // Mostly a group is one head, and nothing to divide.
  std::int64_t head_of(std::int64_t row) const { return row < queries_ ? 0 : row / queries_; }
  std::int64_t query_of(std::int64_t row) const { return first_ + (row < queries_ ? row : row % queries_); }
  // Lanes beyond the last row repeat it: what they hold is finite and costs nothing to reason about.
  std::int64_t row_at(const Panel& panel, std::int64_t lane) const { return min_of(panel.first + lane, rows_ - 1); }

  // ---- Before the first tile ----

  template <class Dot>
  void prepare(std::int64_t steps) {
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
  void pack_queries(Panel& panel, std::int64_t steps) {
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
  static bool are_pairs(std::int64_t count) { return count >= 2 * lanes && count % 2 == 0; }

  void load_pairs(const Panel& panel, std::int64_t steps) {
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
  static inline __attribute__((always_inline)) void for_each_square(std::int64_t count, Square square, Four four) {
    std::int64_t d = 0;
    for (; d + lanes <= count; d += lanes) square(d);
    for (; d < count; d += 4) four(min_of(d, count - 4));
  }

  template <class Element, class Load>
  inline __attribute__((always_inline)) void load_squares(const Panel& panel, Load load) {
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
  void find_lanes(const Operand& of, const Panel& panel, std::int64_t lane, Element* (&rows)[lanes]) const {
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
  void find_rows(Panel& panel) {
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

  void start_sums(Panel& panel) {
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
  double sink_of(const Panel& panel, std::int64_t lane) const {
    return g_.sinks[head_of(row_at(panel, lane))] * log2_e;
  }

  // A sink is the first score of its row.
  struct FirstScore {
    float m, l;
  };
  static FirstScore first_score(double sink) {
    const double within = max_of<double>(-FLT_MAX, min_of<double>(sink, FLT_MAX));
    const auto m = static_cast<float>(within);
    // What m's rounding lost is in l. From 2^30 on that may be more than l holds; half a step of m is then what any
    // logit of this size is known to, and where no logit came to the sink, the row's lse is the sink's own.
    const double lost = sink - static_cast<double>(m);
    return {m, static_cast<float>(__builtin_exp2(within == sink ? max_of(-64.0, min_of(lost, 64.0)) : lost))};
  }
  static bool is_far(double sink) {
    return __builtin_fabs(sink) >= 0x1p30;
  }

  // Whether a row's sum is still that of its sink, and may have lost a part of it.
  bool is_far_sink(const Panel& panel, std::int64_t lane) const {
    if (!g_.sinks || !is_far(sink_of(panel, lane))) return false;
    const FirstScore first = first_score(sink_of(panel, lane));
    return panel.m[lane] == first.m && panel.l[lane] == first.l;
  }

  float* sums_at(const Panel& panel, std::int64_t lane) {
    const std::int64_t row = row_at(panel, lane);
    return reinterpret_cast<float*>(operand_at(to_.sums, head_of(row), query_of(row)));
  }

  // As earlier keys left them.
  void load_sums(Panel& panel) {
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
  void store_sums(const Panel& panel) {
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

  // ---- A tile of `keys` keys from `start` on ----

  // What of it the panel sees; false: nothing.
  bool look(const Panel& panel, std::int64_t start, std::int64_t keys, Meeting& meeting) {
    if (!panel.ranges.meet(start, start + keys)) return false;
    meeting.start = start, meeting.keys = keys;
    const bool closes = bias_ && load_panel_biases(panel, meeting);
    const std::int64_t begin = max_of<std::int64_t>(0, panel.ranges.min_lo - start);
    const std::int64_t end = min_of(keys, panel.ranges.max_hi - start);
    meeting.begin = begin / height * height;
    meeting.end = round_up(end, height);
    for (std::int64_t& first : meeting.first) first = meeting.begin;
    for (std::int64_t& limit : meeting.limit) limit = meeting.end;
    meeting.masked = mask_rows_ || closes || !panel.ranges.hold(start + meeting.begin, start + meeting.end);
    return !meeting.masked || find_bits(panel, closes, meeting);
  }

  bool find_bits(const Panel& panel, bool closes, Meeting& meeting) {
    std::uint64_t seen[width], some = 0, all = ~std::uint64_t{0};
    for (std::int64_t lane = 0; lane < panel.count * lanes; ++lane) {
      const char* mask = mask_rows_ ? mask_rows_[panel.first + lane] : nullptr;
      seen[lane] = visible_bits(g_, panel.ranges.row[lane], mask, meeting.start);
    }
    for (std::int64_t lane = 0; closes && lane < panel.count * lanes; ++lane) seen[lane] &= ~closed_[lane];
    std::int64_t limit = 0;
    for (int v = 0; v < panel.count; ++v) {
      std::uint64_t vector_some = 0, vector_all = ~std::uint64_t{0};
      for (std::int64_t lane = v * lanes; lane < (v + 1) * lanes; ++lane) {
        bits_[lane] = static_cast<std::uint32_t>(seen[lane]);
        bits_[width + lane] = static_cast<std::uint32_t>(seen[lane] >> 32);
        vector_some |= seen[lane];
        vector_all &= seen[lane];
      }
      some |= vector_some;
      all &= meeting.all[v] = vector_all;
      const std::int64_t own = vector_some == 0 ? 0 : 64 - __builtin_clzll(vector_some);
      limit = max_of(limit, round_up(own, height));
      meeting.limit[v] = limit;
      meeting.first[v] = vector_some == 0 ? tile_keys : __builtin_ctzll(vector_some) / height * height;
    }
    if (some == 0) return false;
    for (int v = panel.count; v < vectors; ++v) meeting.limit[v] = limit, meeting.first[v] = meeting.first[v - 1];
    meeting.begin = __builtin_ctzll(some) / height * height;
    meeting.end = limit;
    bool in_order = meeting.first[vectors - 1] <= meeting.limit[0];
    for (int v = 1; v < vectors; ++v) in_order &= meeting.first[v - 1] <= meeting.first[v];
    // Windows narrower than the panel, and masks of any form: every vector begins with the first.
    for (std::int64_t& first : meeting.first) first = in_order ? first : meeting.begin;
    const std::uint64_t computed = between(meeting.begin, meeting.end);
    meeting.masked = (all & computed) != computed;
    return true;
  }

  // The tile's biases as [keys][width]; whether one of them closes a pair.
  bool load_panel_biases(const Panel& panel, const Meeting& meeting) {
    if (has_bias_alone(g_.features) && g_.bias.column == 1 && meeting.keys == tile_keys) {
      switch (g_.bias.dtype) {
        case DType::f32:
          return transpose_biases<float>(panel, meeting.start, Simd::load);
        case DType::bf16:
          return transpose_biases<std::uint16_t>(panel, meeting.start, Simd::load_bf16);
        case DType::f16:
          return transpose_biases<std::uint16_t>(panel, meeting.start, Simd::load_f16);
        case DType::f64:
        case DType::i64:
        case DType::i8:
        case DType::u8:
        case DType::boolean:
          break;  // by way of rows of f32
      }
    }
    std::uint64_t some = 0;
    for (std::int64_t lane = 0; lane < panel.count * lanes; lane += 4) {
      for (std::int64_t i = lane; i < lane + 4; ++i) {
        const BiasRow& row = bias_rows_[panel.first + i];
        closed_[i] = load_biases(g_, row, meeting.start, meeting.keys, tile_keys, row_buffer(i - lane));
        some |= closed_[i];
      }
      transpose_rows(row_, row_stride_, tile_keys, bias_ + lane);
    }
    return some != 0;
  }

  // The same of whole rows of the tile, straight from where they lie.
  template <class Element, class Load>
  inline __attribute__((always_inline)) bool transpose_biases(const Panel& panel, std::int64_t start, Load load) {
    F least = Simd::zero();
    for (std::int64_t lane = 0; lane < panel.count * lanes; lane += lanes) {
      const BiasRow* rows = bias_rows_ + panel.first + lane;
      for (std::int64_t key = 0; key < tile_keys; key += lanes) {
        F x[lanes];
#pragma GCC unroll 16
        for (int i = 0; i < lanes; ++i) {
          x[i] = load(reinterpret_cast<const Element*>(rows[i].bias) + start + key);
          least = Simd::min(x[i], least);
        }
        Simd::transpose(x);
#pragma GCC unroll 16
        for (int i = 0; i < lanes; ++i) Simd::store(bias_ + (key + i) * width + lane, x[i]);
      }
    }
    if (!Simd::any(Simd::equal(least, Simd::set1(-infinity)))) return false;
    for (std::int64_t lane = 0; lane < panel.count * lanes; ++lane) {
      closed_[lane] = load_biases(g_, bias_rows_[panel.first + lane], start, tile_keys, tile_keys, row_buffer(0));
    }
    return true;
  }

  // The next tile's biases, a part with each `height` keys: they come from memory, row by row, which the processor's
  // own prefetch does not follow.
  void ask_for_bias(const Panel& panel, std::int64_t start, std::int64_t key) const {
    constexpr std::int64_t rows = width * height / tile_keys;
    const std::int64_t bytes = tile_keys * bytes_of(g_.bias.dtype);
    if (!g_.features.bias || g_.bias.column != 1) return;
    for (std::int64_t i = 0; i < rows; ++i) {
      const char* row =
          bias_rows_[panel.first + key / height * rows + i].bias + (start + tile_keys) * bytes_of(g_.bias.dtype);
      for (std::int64_t byte = 0; byte < bytes; byte += 64) __builtin_prefetch(row + byte, 0, 2);
    }
  }

  // Where each row is level, counted from the tile's first key.
  void load_levels(const Panel& panel, std::int64_t start) {
    for (std::int64_t lane = 0; lane < width; ++lane) {
      level_[lane] = static_cast<float>(places_[panel.first + lane] - start);
    }
  }

  // Which keys of the tile each row keeps, as bits_ holds which it sees.
  void draw_dropout(const Panel& panel, std::int64_t start) {
    for (std::int64_t lane = 0; lane < width; ++lane) {
      const std::uint64_t bits = dropout_bits(g_.rules, draws_[panel.first + lane], start);
      kept_[lane] = static_cast<std::uint32_t>(bits);
      kept_[width + lane] = static_cast<std::uint32_t>(bits >> 32);
    }
  }

  // ---- Results ----

  void finish(Panel& panel) {
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

  static F result(const float* sums, F inverse) {
    // + 0: a sum that underflowed to -0 would depend on how many masked keys came after it.
    return Simd::add(Simd::mul(Simd::load(sums), inverse), Simd::zero());
  }

  // Rows that lie side by side, a square of vectors at a time. Lanes beyond the last row write it again.
  template <class Element, class Store>
  inline __attribute__((always_inline)) void store_squares(const Panel& panel, const float* inverse, Store store) {
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
  void store_pairs(const Panel& panel, const float* inverse) {
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
  static bool are_ordinary(const Panel& panel) {
    for (int lane = 0; lane < width; lane += lanes) {
      const F l = Simd::load(panel.l + lane);
      const F finite = Simd::select(Simd::equal(Simd::sub(l, l), Simd::zero()), l, Simd::zero());
      if (Simd::bits(Simd::greater(finite, Simd::zero())) != below(lanes)) return false;
    }
    return true;
  }

  bool has_far_sink(const Panel& panel) const {
    for (std::int64_t lane = 0; g_.sinks && lane < panel.rows; ++lane)
      if (is_far(sink_of(panel, lane))) return true;
    return false;
  }

  void store_lse_of(const Panel& panel) {
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
  void gather_rows(const Panel& panel, std::int64_t lane) {
    const float* from = panel.o + lane;
    for (std::int64_t d = 0; d < g_.sizes.Dv; d += 4) {
      transpose4(from + d * width, from + (d + 1) * width, from + (d + 2) * width, from + (d + 3) * width,
                 row_buffer(0) + d, row_stride_);
    }
  }

  void store_rows(const Panel& panel, std::int64_t lane) {
    gather_rows(panel, lane);
    for (std::int64_t i = 0; i < 4 && lane + i < panel.rows; ++i) {
      const std::int64_t row = row_at(panel, lane + i);
      char* to = operand_at(to_.out, head_of(row), query_of(row));
      store_row(row_buffer(i), to, {to_.out.dtype, to_.out.column, g_.sizes.Dv});
    }
  }

  const Group& g_;
  Results to_;
  std::int64_t first_, queries_, rows_, panels_ = 0, row_stride_ = 0;
  Panel* panel_ = nullptr;
  float *q_ = nullptr, *o_ = nullptr, *m_ = nullptr, *l_ = nullptr, *rounded_l_ = nullptr, *row_ = nullptr;
  KeyRange* ranges_ = nullptr;
  std::uint32_t* bits_ = nullptr;               // [2][width] which keys of the tile each row sees
  const char** mask_rows_ = nullptr;            // where each row's mask begins; null: no mask
  BiasRow* bias_rows_ = nullptr;                // and its biases; null: none
  float* bias_ = nullptr;                       // [tile_keys][width]; null: none
  std::uint64_t* closed_ = nullptr;             // [width] keys of the tile whose bias is -infinity
  std::uint64_t* draws_ = nullptr;              // of each row; null: no dropout
  std::uint32_t* kept_ = nullptr;               // [2][width]
  float *slopes_ = nullptr, *level_ = nullptr;  // of each row; null: no ALiBi
  std::int64_t* places_ = nullptr;              // query + offset of each row
};

}  // namespace
}  // namespace attend::inline v0::kernels
