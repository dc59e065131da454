// The forward's query rows: panels of them side by side in the lanes of vectors, what each of them sees of a tile of
// keys and values, what is added to its scores, and its results. forward.h multiplies. Three files have the steps.
#pragma once

#include "kernels/score.h"

namespace attend::inline v1::kernels {
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

  // Before the first tile (forward_start.h).
  template <class Dot>
  void prepare(std::int64_t steps);
  template <class Dot>
  void pack_queries(Panel& panel, std::int64_t steps);
  static bool are_pairs(std::int64_t count);
  void load_pairs(const Panel& panel, std::int64_t steps);
  template <class Square, class Four>
  static inline __attribute__((always_inline)) void for_each_square(std::int64_t count, Square square, Four four);
  template <class Element, class Load>
  inline __attribute__((always_inline)) void load_squares(const Panel& panel, Load load);
  template <class Operand, class Element>
  void find_lanes(const Operand& of, const Panel& panel, std::int64_t lane, Element* (&rows)[lanes]) const;
  void find_rows(Panel& panel);
  void start_sums(Panel& panel);
  double sink_of(const Panel& panel, std::int64_t lane) const;
  // A sink is the first score of its row.
  struct FirstScore {
    float m, l;
  };
  static FirstScore first_score(double sink);
  static bool is_far(double sink);
  bool is_far_sink(const Panel& panel, std::int64_t lane) const;
  float* sums_at(const Panel& panel, std::int64_t lane);
  void load_sums(Panel& panel);
  void store_sums(const Panel& panel);

  // A tile (forward_meeting.h).
  bool look(const Panel& panel, std::int64_t start, std::int64_t keys, Meeting& meeting);
  bool find_bits(const Panel& panel, bool closes, Meeting& meeting);
  bool load_panel_biases(const Panel& panel, const Meeting& meeting);
  template <class Element, class Load>
  inline __attribute__((always_inline)) bool transpose_biases(const Panel& panel, std::int64_t start, Load load);
  void ask_for_bias(const Panel& panel, std::int64_t start, std::int64_t key) const;
  void load_levels(const Panel& panel, std::int64_t start);
  void draw_dropout(const Panel& panel, std::int64_t start);

  // Results (forward_results.h).
  void finish(Panel& panel);
  static F result(const float* sums, F inverse);
  template <class Element, class Store>
  inline __attribute__((always_inline)) void store_squares(const Panel& panel, const float* inverse, Store store);
  void store_pairs(const Panel& panel, const float* inverse);
  static bool are_ordinary(const Panel& panel);
  bool has_far_sink(const Panel& panel) const;
  void store_lse_of(const Panel& panel);
  void gather_rows(const Panel& panel, std::int64_t lane);
  void store_rows(const Panel& panel, std::int64_t lane);

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
}  // namespace attend::inline v1::kernels
