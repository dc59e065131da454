// Attention of a few queries (decoding): bound by reading the keys and values once.
//
// The head dimension stands in lanes, so keys and values are read as they lie in memory; every row of the group meets
// them while they are in the L1 cache, and so do the rows of other groups that share them. The keys are cut into ranges
// of a size that depends on their number alone, one work item each, and the ranges' sums are added in order
// (combine.h).
#pragma once

#include "kernels/quantized.h"
#include "kernels/score.h"
#include "kernels/team.h"

namespace attend::inline v1::kernels {
namespace {

// Dot: of queries and keys, weights and values. ReadK, ReadV: how keys and values lie in memory. Cached: whether an L2
// cache holds them.
template <class Dot, class ReadK, class ReadV, bool Cached>
class Decode {
 public:
  // `rows`: of all groups together.
  Decode(const DecodeGroup* groups, std::int64_t first, std::int64_t last, std::int64_t rows, char* scratch)
      : groups_(groups), first_(first), queries_(last - first), rows_(rows), padded_rows_(round_up(rows, team)) {
    Scratch pieces{scratch};
    q_ = pieces.take<float>(padded_rows_ * steps_);
    o_ = pieces.take<float>(padded_rows_ * value_width_);
    m_ = pieces.take<float>(padded_rows_);
    l_ = pieces.take<float>(padded_rows_ * lanes);
    rounded_l_ = rounds ? pieces.take<float>(padded_rows_ * lanes) : l_;
    ranges_.row = pieces.take<KeyRange>(padded_rows_);
    scores_ = pieces.take<float>(padded_rows_ * tile_keys);
    bias_ = pieces.take<float>(has_biases(g_.features) ? tile_keys : 0);
    pairs_ = pieces.take<float>(Dot::pair == 2 ? padded_rows_ * tile_keys / 2 : 0);
    // Only one of the copies is ever made for most problems, but which is known late.
    k_copy_ = pieces.take<float>(tile_keys * steps_);
    v_copy_ = pieces.take<float>(tile_keys * value_width_);
    row_ = pieces.take<Row>(padded_rows_);
    value_row_ = pieces.take<float>(value_width_);
    if (Dot::integer) {
      query_factor_ = pieces.take<float>(padded_rows_);
      value_factor_ = pieces.take<float>(padded_rows_);
      value_scales_ = pieces.take<float>(tile_keys);
    }
    bytes_ = pieces.used;
  }

  static std::size_t scratch_bytes(const Sizes& sizes, const Features& features, std::int64_t rows) {
    const Group group{.sizes = sizes, .features = features};
    const DecodeGroup one{group, nullptr};
    return static_cast<std::size_t>(Decode(&one, 0, 0, rows, nullptr).bytes_);
  }

  // Keys [begin, end), begin a multiple of tile_keys.
  void run(std::int64_t begin, std::int64_t end) {
    start();
    for (std::int64_t key = begin; key < end; key += tile_keys) {
      next_ = key + tile_keys < end ? key + tile_keys : key;
      tile(key, min_of(tile_keys, end - key));
    }
    finish();
  }

 private:
  static constexpr bool rounds = Dot::pair == 2 && !Dot::integer;  // weights to bf16

  struct Row {
    const DecodeGroup* of;
    std::int64_t head, query;
  };

  void start() {
    std::int64_t r = 0;
    for (const DecodeGroup* of = groups_; r < rows_; ++of) {
      for (std::int64_t head = 0; head < g_.sizes.G; ++head, r += queries_) {
        for (std::int64_t i = 0; i < queries_; ++i) row_[r + i] = {of, head, first_ + i};
        load_rows(of->group, head, r);
      }
    }
    // A team's empty places repeat the last row, but where that is a team of its own.
    for (; r < padded_rows_ && rows_ % team != 1; ++r) {
      if (Dot::integer) query_factor_[r] = query_factor_[r - 1];
      for (std::int64_t s = 0; s < steps_; s += lanes)
        Simd::store(q_ + r * steps_ + s, Simd::load(q_ + (r - 1) * steps_ + s));
    }
    for (std::int64_t d = 0; d < r * value_width_; d += lanes) Simd::store(o_ + d, Simd::zero());
  }

  // The queries of one head, to rows from r on.
  void load_rows(const Group& group, std::int64_t head, std::int64_t r) {
    if constexpr (!Dot::integer) load_queries<Dot>(group, head, first_, first_ + queries_, q_ + r * steps_, steps_);
    for (std::int64_t i = 0; i < queries_; ++i, ++r) {
      if constexpr (Dot::integer) {
        auto* whole = reinterpret_cast<std::int16_t*>(q_ + r * steps_);
        query_factor_[r] = load_query_i16(group, head, first_ + i, whole, steps_, k_copy_);
      }
      ranges_.add(r, visible_keys(group.rules, first_ + i));
      m_[r] = no_maximum;
      Simd::store(l_ + r * lanes, Simd::zero());
      if (rounds) Simd::store(rounded_l_ + r * lanes, Simd::zero());
    }
  }

  // body<Rows>(r) for each four rows from r on, and a last one by itself; of two or three, the empty places are rows
  // too.
  template <class Body>
  void for_each_team(Body body) const {
    for (std::int64_t r = 0; r < rows_; r += team)
      rows_ - r == 1 ? body.template operator()<1>(r) : body.template operator()<team>(r);
  }

  void tile(std::int64_t start, std::int64_t keys) {
    if (!ranges_.meet(start, start + keys)) return;
    const Lines k = key_lines(start, keys);
    soon_ = {rows_at(g_.v, start), g_.v.row * bytes_of(g_.v.dtype)};
    for_each_team([&]<int Rows>(std::int64_t r) { score<Rows>(r, k, keys); });
    if (Dot::integer) {
      finite_rows_ = load_value_scales(value_scales_, scales_at(g_.v, start), keys);
      for (std::int64_t j = 0; j < tile_keys; j += 16) {
        __builtin_prefetch(scales_at(g_.k, next_) + j, 0, 2);
        __builtin_prefetch(scales_at(g_.v, next_) + j, 0, 2);
      }
    }
    bool hidden = false;
    for (std::int64_t r = 0; r < rows_; ++r) {
      if (Dot::integer) scale_products(scores_ + r * tile_keys, query_factor_[r], scales_at(g_.k, start));
      const std::uint64_t bits = find_bits(r, start, keys);
      if (adjusts_) adjust(r, start);
      hidden |= hide(r, bits, keys);
      if (row_[r].of->logits.data) store_logits(r, start, keys);
      weigh(r, keys);
    }
    mix(start, keys, hidden);
    fresh_ = false;
  }

  // Values are asked for while keys are read, and the next tile's keys while values are: a tile's 64 rows are far
  // enough ahead for memory, and near enough for the L2 cache. The processor's own prefetch loses the thread at each
  // change: 9.4 GB/s on one Zen 4 core, of 23.7, without this. It drops what it is asked for while too much is under
  // way, so that each line is asked for again before it is read: 13.5 to 18.5 GB/s in f32, 14 to 16 in bf16. Out of a
  // cache that takes a fifth more time.
  void fetch_soon(std::int64_t row, std::int64_t byte, Lines now) const {
    constexpr std::int64_t rows_before = 24;
    __builtin_prefetch(soon_.data + row * soon_.row + byte, 0, 2);
    if constexpr (!Cached) __builtin_prefetch(now.data + (row + rows_before) * now.row + byte, 0, 2);
  }

  // ---- Scores ----

  Lines key_lines(std::int64_t start, std::int64_t keys) {
    const char* from = rows_at(g_.k, start);
    const std::int64_t row = g_.k.row * bytes_of(g_.k.dtype);
    const Elements of{g_.k.dtype, g_.k.column, g_.sizes.D};
    if (of.stride == 1 && of.count % (lanes * Dot::pair) == 0) return {from, row};
    // In the form that ReadK reads, with zeros up to a whole vector.
    if (!Dot::integer && bytes_of(of.dtype) != 2) {
      load_operands<DotF32>(k_copy_, from, row, keys, of, steps_);
      return {reinterpret_cast<const char*>(k_copy_), steps_ * 4};
    }
    for (std::int64_t j = 0; j < keys; ++j) {
      float* to = k_copy_ + j * steps_;
      if (Dot::integer) {
        copy_bytes(to, from + j * row, of.count, 2 * steps_);
      } else {
        copy_halves(reinterpret_cast<std::uint16_t*>(to), from + j * row, of, steps_ * Dot::pair);
      }
    }
    return {reinterpret_cast<const char*>(k_copy_), steps_ * 4};
  }

  // Rows' scores of the tile: scores_[row][key].
  template <int Rows>
  void score(std::int64_t r, Lines k, std::int64_t keys) {
    constexpr int at_once = lanes / Rows;
    float* scores = scores_ + r * tile_keys;
    const bool whole = keys == tile_keys;
    for (std::int64_t key = 0; key < keys; key += at_once) {
      const char* line[at_once];
#pragma GCC unroll 16
      for (int j = 0; j < at_once; ++j) line[j] = k.data + min_of(key + j, keys - 1) * k.row;
      float products[lanes];
      dot_rows<Dot, ReadK, Rows>(q_ + r * steps_, steps_, line, products, [=, this](int j, std::int64_t s) {
        if (r == 0 && s * ReadK::size % 64 == 0) fetch_soon(key + j, s * ReadK::size, k);
      });
      if (Rows > 1 && !whole) {  // [part][row][key] for now
        __builtin_memcpy(scores + key / at_once % Rows * tile_keys + key / lanes * lanes, products, sizeof products);
        continue;
      }
#pragma GCC unroll 4
      for (int i = 0; i < Rows; ++i) {
        __builtin_memcpy(scores + i * tile_keys + key, products + i * at_once, at_once * sizeof(float));
      }
    }
    // Few keys are read right after they were written: whole vectors then, as nobody waits for one that was written at
    // once. Many are not, and cost a twentieth more this way.
    for (std::int64_t key = 0; Rows > 1 && !whole && key < keys; key += lanes) {
      F parts[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) parts[i] = Simd::load(scores + i * tile_keys + key);
      Simd::transpose_quarters(parts);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) Simd::store(scores + i * tile_keys + key, parts[i]);
    }
  }

  // Which keys the row sees, a bit each. Also loads its bias.
  std::uint64_t find_bits(std::int64_t r, std::int64_t start, std::int64_t keys) {
    const bool whole = ranges_.hold(start, start + keys) && !g_.features.mask;
    if (whole && !has_biases(g_.features)) return ~std::uint64_t{0};
    const Row& row = row_[r];
    const Group& g = row.of->group;
    const char* mask = g.features.mask ? operand_at(g.mask, row.head, row.query) : nullptr;
    const std::uint64_t bits = whole ? ~std::uint64_t{0} : visible_bits(g, ranges_.row[r], mask, start);
    if (!has_biases(g.features)) return bits;
    return bits & ~load_biases(g, bias_row(g, row.head, row.query), start, keys, tile_keys, bias_);
  }

  // What make_logits() asks of the keys `key`, ... of a row.
  struct Pairs {
    static constexpr bool one_rounding = false;
    const Decode& decode;
    std::int64_t r, start;
    const Row& row = decode.row_[r];
    const Group& group = row.of->group;
    const Features& features = group.features;
    const Rules& rules = group.rules;
    float alibi_slope = features.alibi_slopes ? slope_of(group, row.head) : 0;
    float level = static_cast<float>(row.query + group.rules.offset - start);
    float* stage = decode.scores_ + r * tile_keys;

    float* slopes(int) const { return nullptr; }
    F bias(int, int v) const { return Simd::load(decode.bias_ + v * lanes); }
    F distance(int, int v) const {
      const F key = Simd::add(lane_numbers(), Simd::set1(static_cast<float>(v * lanes)));
      return Simd::abs(Simd::sub(Simd::set1(level), key));
    }
    F slope(int, int) const { return Simd::set1(alibi_slope); }
  };

  // Of one row: what its scores become, in place.
  void adjust(std::int64_t r, std::int64_t start) {
    constexpr int count = tile_keys / lanes;
    float* scores = scores_ + r * tile_keys;
    const F late = Simd::set1(late_factor<Dot>(g_.rules));
    F s[1][count];
    for (int v = 0; v < count; ++v) {
      s[0][v] = Simd::load(scores + v * lanes);
      if (rounds) s[0][v] = Simd::mul(s[0][v], late);
    }
    make_logits<1, count, 0, count>(s, Pairs{*this, r, start});
    for (int v = 0; v < count; ++v) Simd::store(scores + v * lanes, s[0][v]);
  }

  // -infinity for the keys that the row does not see; whether there was one.
  bool hide(std::int64_t r, std::uint64_t bits, std::int64_t keys) {
    if ((bits & below(keys)) == below(keys)) return false;
    for (std::int64_t j = 0; j < keys; ++j) {
      if (!(bits >> j & 1)) scores_[r * tile_keys + j] = -infinity;
    }
    return true;
  }

  void store_logits(std::int64_t r, std::int64_t start, std::int64_t keys) const {
    const Row& row = row_[r];
    auto* to = reinterpret_cast<float*>(operand_at(row.of->logits, row.head, row.query)) + start;
    const float factor = adjusts_ ? 1 : late_factor<Dot>(g_.rules);
    for (std::int64_t j = 0; j < keys; ++j) to[j] = scores_[r * tile_keys + j] * factor;
  }

  // Weights in place of the scores; -0 where the score is -infinity: not attended to.
  void weigh(std::int64_t r, std::int64_t keys) {
    float* s = scores_ + r * tile_keys;
    const std::int64_t end = round_up(keys, lanes);
    if (keys < end) {  // places without a key; as one vector, which the loads below need not wait for
      const Mask there = Simd::lanes_of(static_cast<std::uint32_t>(below(keys - (end - lanes))));
      float* last = s + end - lanes;
      Simd::store(last, Simd::select(there, Simd::load(last), Simd::set1(-infinity)));
    }
    const F factor = Simd::set1(adjusts_ ? 1 : late_factor<Dot>(g_.rules));
    F top = Simd::mul(Simd::load(s), factor);
    for (std::int64_t j = lanes; j < end; j += lanes) top = Simd::max(Simd::mul(Simd::load(s + j), factor), top);
    if (Simd::any(Simd::greater(top, Simd::set1(m_[r] + slack)))) rescale(r, top);
    const F m = Simd::set1(m_[r]);
    F l = Simd::load(l_ + r * lanes);
    for (std::int64_t j = 0; j < end; j += lanes) {
      const F x = Simd::load(s + j);
      const F weight = exp2<5>(Simd::sub(Simd::mul(x, factor), m));
      const F marked = Simd::select(Simd::equal(x, Simd::set1(-infinity)), Simd::set1(-0.0f), weight);
      l = Simd::add(l, marked);
      Simd::store(s + j, marked);
    }
    Simd::store(l_ + r * lanes, l);
    if constexpr (Dot::integer) {
      auto* to = reinterpret_cast<std::int16_t*>(pairs_ + r * tile_keys / 2);
      value_factor_[r] = round_weights(s, value_scales_, end, to);
    } else if constexpr (rounds) {
      auto* to = reinterpret_cast<std::uint16_t*>(pairs_ + r * tile_keys / 2);
      F rounded_l = Simd::load(rounded_l_ + r * lanes);
      for (std::int64_t j = 0; j < end; j += lanes) {
        Simd::store_bf16(to + j, Simd::load(s + j));
        rounded_l = Simd::add(rounded_l, Simd::load_bf16(to + j));
      }
      Simd::store(rounded_l_ + r * lanes, rounded_l);
    }
  }

  void rescale(std::int64_t r, F top) {
    const float largest = largest_lane(top);
    const float before = m_[r];
    m_[r] = largest;
    if (fresh_) return;  // nothing has been summed
    const F alpha = exp2<5>(Simd::set1(before - largest));
    Simd::store(l_ + r * lanes, Simd::mul(Simd::load(l_ + r * lanes), alpha));
    if (rounds) Simd::store(rounded_l_ + r * lanes, Simd::mul(Simd::load(rounded_l_ + r * lanes), alpha));
    for (std::int64_t d = 0; d < value_width_; d += lanes) {
      float* o = o_ + r * value_width_ + d;
      Simd::store(o, Simd::mul(Simd::load(o), alpha));
    }
  }

  // ---- Weights times values ----

  void mix(std::int64_t start, std::int64_t keys, bool hidden) {
    const Elements of{g_.v.dtype, g_.v.column, g_.sizes.Dv};
    const auto value_at = [&](std::int64_t j) { return rows_at(g_.v, start + j); };
    Lines v{value_at(0), g_.v.row * bytes_of(of.dtype)};
    soon_ = {rows_at(g_.k, next_), g_.k.row * bytes_of(g_.k.dtype)};
    const bool finite = Dot::integer || !hidden || are_finite(value_at, keys, of, value_row_);
    const bool as_it_is = finite && of.stride == 1 && of.count % (lanes * Dot::pair) == 0;
    if (!as_it_is) v = copy_values(v, of, keys, finite);
    if constexpr (Dot::pair == 2)
      mix_all<ReadV>(v, keys);
    else
      as_it_is ? mix_all<ReadV>(v, keys) : mix_all<ReadF32>(v, keys);
    if (Dot::integer && !finite_rows_) spoil(o_, value_width_, scores_, rows_, scales_at(g_.v, start), keys);
    if (finite) return;
    for_each_not_finite(value_at, keys, of, [&](std::int64_t j, std::int64_t d, float value) {
      for (std::int64_t r = 0; r < rows_; ++r) {
        const float weight = scores_[r * tile_keys + j];
        if (!__builtin_signbit(weight)) o_[r * value_width_ + place_of(d)] += weight * value;
      }
    });
  }

  // In the form that the products read: f32, else as it is; zeros up to a whole vector, and where not finite.
  Lines copy_values(Lines from, Elements of, std::int64_t keys, bool finite) {
    if (Dot::pair == 1) load_operands<Dot>(v_copy_, from.data, from.row, keys, of, value_width_);
    for (std::int64_t j = 0; j < keys && (Dot::pair == 2 || !finite); ++j) {
      const char* row = from.data + j * from.row;
      if constexpr (Dot::integer) {
        copy_bytes(reinterpret_cast<char*>(v_copy_) + j * value_width_, row, of.count, value_width_);
      } else if constexpr (Dot::pair == 1) {
        float* to = v_copy_ + j * value_width_;
        for (std::int64_t d = 0; d < of.count; ++d) to[d] = to[d] - to[d] == 0 ? to[d] : 0;
      } else {
        auto* to = reinterpret_cast<std::uint16_t*>(v_copy_) + j * value_width_;
        copy_halves(to, row, of, value_width_);
        for (std::int64_t d = 0; d < of.count && !finite; ++d) to[d] = (to[d] & 0x7F80) == 0x7F80 ? 0 : to[d];
      }
    }
    return {reinterpret_cast<const char*>(v_copy_), value_width_ * (Dot::integer ? 1 : Dot::pair == 1 ? 4 : 2)};
  }

  // bf16 products take the weights rounded to bf16, two keys at a time. Their columns come out in the order of
  // interleave_low and interleave_high, which finish() undoes.
  template <class Read>
  void mix_all(Lines v, std::int64_t keys) {
    for_each_team([&]<int Rows>(std::int64_t r) {
      std::int64_t d = 0;
      constexpr int vectors_at_once = value_vectors<Read>;
      for (; d + vectors_at_once * lanes <= value_width_; d += vectors_at_once * lanes) {
        mix_columns<Read, Rows, vectors_at_once>(r, v, d, keys);
      }
      for (; d < value_width_; d += Dot::pair * lanes) mix_columns<Read, Rows, Dot::pair>(r, v, d, keys);
    });
  }

  // N vectors of columns from d on, of as many rows at once as have registers for their sums; the others find the
  // values in the L1 cache. Wide strips of values are read faster: with AVX2 two rows of four vectors, which are two
  // lines of the cache, take 0.83 of the time of four rows of two (32,768 keys, 32 heads over 8, two cores of a Xeon).
  template <class Read, int Rows, int N>
  void mix_columns(std::int64_t r, Lines v, std::int64_t d, std::int64_t keys) {
    constexpr int at_once = min_of(Rows, value_rows<Read>);
    for (int i = 0; i < Rows; i += at_once) mix_columns_of_rows<Read, at_once, N>(r + i, v, d, keys);
  }

  template <class Read, int Rows, int N>
  void mix_columns_of_rows(std::int64_t r, Lines v, std::int64_t d, std::int64_t keys) {
    F sums[Rows][N];
    const RowWeights weights = Dot::pair == 1 ? RowWeights{scores_ + r * tile_keys, tile_keys}
                                              : RowWeights{pairs_ + r * tile_keys / 2, tile_keys / 2};
    const std::int64_t first = d * Read::size;
    mix_rows<Dot, Read>(sums, weights, {v.data + first, v.row}, keys, [=, this](std::int64_t j, std::int64_t byte) {
      if (r == 0) fetch_soon(j, first + byte, v);
    });
#pragma GCC unroll 4
    for (int i = 0; i < Rows; ++i) {
      const F factor = Simd::set1(Dot::integer ? value_factor_[r + i] : 1);
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) {
        float* o = o_ + (r + i) * value_width_ + d + n * lanes;
        const F sum = Dot::integer ? Simd::mul(Dot::total(sums[i][n]), factor) : sums[i][n];
        Simd::store(o, Simd::add(Simd::load(o), sum));
      }
    }
  }

  static constexpr std::int64_t pair_columns = 2 * lanes;

  // Where a column's sum stands in a row of o_.
  static std::int64_t place_of(std::int64_t d) {
    if constexpr (Dot::pair == 1) {
      return d;
    } else {
      return d - d % pair_columns + Simd::interleaved_place(static_cast<int>(d % pair_columns));
    }
  }

  void finish() {
    float* partial = nullptr;
    for (std::int64_t r = 0; r < rows_; ++r) {
      const bool begins = r == 0 || row_[r].of != row_[r - 1].of;
      partial = begins ? row_[r].of->partial : partial + 2 + g_.sizes.Dv;
      partial[0] = m_[r];
      const float l = sum_of_lanes(Simd::load(l_ + r * lanes));
      // The sums of rounded weights times values, as if these weights summed to l (see forward.h, add_rounded).
      const float rounding = !rounds || l == 0 ? 1 : l / sum_of_lanes(Simd::load(rounded_l_ + r * lanes));
      partial[1] = l;
      write_sums(partial + 2, o_ + r * value_width_, rounding);
    }
  }

  // A row's sums times `factor`, in the order of the columns.
  void write_sums(float* to, const float* sums, float factor) const {
    if constexpr (Dot::pair == 1) {
      for (std::int64_t d = 0; d < g_.sizes.Dv; ++d) to[d] = sums[d] * factor;
    } else {
      for (std::int64_t d = 0; d < g_.sizes.Dv; d += pair_columns) {
        float ordered[pair_columns];  // a place that the compiler knows takes no division
#pragma GCC unroll 32
        for (int i = 0; i < pair_columns; ++i) ordered[i] = sums[d + Simd::interleaved_place(i)] * factor;
        const std::int64_t count = min_of(pair_columns, g_.sizes.Dv - d);
        for (std::int64_t i = 0; i < count; ++i) to[d + i] = ordered[i];
      }
    }
  }

  const DecodeGroup* groups_;
  const Group& g_ = groups_[0].group;  // what all of them share
  const bool adjusts_ = adjusts(g_.features);
  std::int64_t first_, queries_, rows_, padded_rows_;
  std::int64_t steps_ = round_up((g_.sizes.D + Dot::pair - 1) / Dot::pair, lanes);
  std::int64_t value_width_ = round_up(g_.sizes.Dv, lanes*Dot::pair), bytes_ = 0;
  Ranges ranges_;
  float *q_ = nullptr, *o_ = nullptr, *m_ = nullptr, *l_ = nullptr, *rounded_l_ = nullptr, *scores_ = nullptr,
        *bias_ = nullptr, *k_copy_ = nullptr, *v_copy_ = nullptr, *value_row_ = nullptr;
  Row* row_ = nullptr;
  float* pairs_ = nullptr;  // the weights as pairs of 16 bits
  // i8: what makes scores and sums of whole numbers' products, and the scales of a tile's values.
  float *query_factor_ = nullptr, *value_factor_ = nullptr, *value_scales_ = nullptr;
  bool finite_rows_ = true;  // of the tile's values, by their scales
  Lines soon_{};             // what is read next
  std::int64_t next_ = 0;    // the next tile's first key
  bool fresh_ = true;        // no tile has been summed yet
};

}  // namespace
}  // namespace attend::inline v1::kernels
