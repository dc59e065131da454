// Attention of a few queries (decoding): bound by reading the keys and values once. A file that includes this has
// included a vector layer `Simd` before.
//
// The head dimension stands in lanes, so keys and values are read as they lie in memory; every row of the group meets
// them while they are in the L1 cache. The keys are cut into ranges of a size that depends on their number alone, one
// work item each, and the ranges' sums are added in order (combine_kernels.h).
#pragma once

#include "kernels/common_kernels.h"

namespace attend::kernels {
namespace {

constexpr int team = 4;                            // rows that share a load of keys and values
constexpr int keys_at_once = lanes / team;         // team * keys_at_once dot products fill a vector
constexpr int value_vectors = lanes == 8 ? 2 : 4;  // team * value_vectors accumulators

// Elements as f32 vectors.
struct ReadF32 {
  static constexpr std::int64_t size = 4;
  static F load(const char* p) { return Simd::load(reinterpret_cast<const float*>(p)); }
};
struct ReadBF16 {
  static constexpr std::int64_t size = 2;
  static F load(const char* p) { return Simd::load_bf16(reinterpret_cast<const std::uint16_t*>(p)); }
};
struct ReadF16 {
  static constexpr std::int64_t size = 2;
  static F load(const char* p) { return Simd::load_f16(reinterpret_cast<const std::uint16_t*>(p)); }
};
// Pairs of bf16, for the bf16 dot.
struct ReadPairs {
  static constexpr std::int64_t size = 4;
  static F load(const char* p) { return Simd::load(reinterpret_cast<const float*>(p)); }
};

// Keys and values of a tile where they can be read a vector at a time.
struct Lines {
  const char* data;
  std::int64_t row;  // bytes from one to the next
};

// Dot: of queries and keys. ReadK, ReadV: how keys and values lie in memory.
template <class Dot, class ReadK, class ReadV>
class Decode {
 public:
  Decode(const Group& group, std::int64_t first, std::int64_t last, char* scratch)
      : g_(group), first_(first), queries_(last - first), rows_(group.sizes.G * (last - first)) {
    carve({scratch});
  }

  static std::size_t scratch_bytes(const Sizes& sizes, const Features& features, std::int64_t rows) {
    const Group group{.sizes = sizes, .features = features};
    Decode d(group, 0, 0, nullptr);
    d.rows_ = rows;
    return static_cast<std::size_t>(d.carve({}));
  }

  // Keys [begin, end), begin a multiple of tile_keys; partial [rows][2 + Dv]: m, l and the sums of weights times
  // values.
  void run(std::int64_t begin, std::int64_t end, float* partial) {
    start();
    for (std::int64_t key = begin; key < end; key += tile_keys) {
      next_ = key + tile_keys < end ? key + tile_keys : key;
      tile(key, min_of(tile_keys, end - key));
    }
    finish(partial);
  }

 private:
  // Where everything lies; how many bytes that takes.
  std::int64_t carve(Scratch scratch) {
    padded_rows_ = round_up(rows_, team);
    steps_ = round_up((g_.sizes.D + Dot::pair - 1) / Dot::pair, lanes);
    value_width_ = round_up(g_.sizes.Dv, lanes * Dot::pair);
    q_ = scratch.take<float>(padded_rows_ * steps_);
    o_ = scratch.take<float>(padded_rows_ * value_width_);
    m_ = scratch.take<float>(padded_rows_);
    l_ = scratch.take<float>(padded_rows_ * lanes);
    range_ = scratch.take<KeyRange>(padded_rows_);
    scores_ = scratch.take<float>(padded_rows_ * tile_keys);
    bias_ = scratch.take<float>(tile_keys + lanes);
    pairs_ = scratch.take<std::uint32_t>(Dot::pair == 2 ? padded_rows_ * tile_keys / 2 : 0);
    // Only one of the copies is ever made for most problems, but which is known late.
    k_copy_ = scratch.take<float>(tile_keys * steps_);
    v_copy_ = scratch.take<float>((tile_keys + 1) * value_width_);
    return scratch.used;
  }

  std::int64_t head_of(std::int64_t row) const { return row / queries_; }
  std::int64_t query_of(std::int64_t row) const { return first_ + row % queries_; }

  void start() {
    min_lo_ = INT64_MAX;
    max_lo_ = max_hi_ = 0;
    min_hi_ = INT64_MAX;
    for (std::int64_t r = 0; r < padded_rows_; ++r) {
      const std::int64_t row = min_of(r, rows_ - 1);  // a team's empty places repeat the last row
      load_query<Dot>(g_, head_of(row), query_of(row), q_ + r * steps_, steps_);
      range_[r] = visible_keys(g_.rules, query_of(row));
      min_lo_ = min_of(min_lo_, range_[r].lo);
      max_lo_ = max_of(max_lo_, range_[r].lo);
      min_hi_ = min_of(min_hi_, range_[r].hi);
      max_hi_ = max_of(max_hi_, range_[r].hi);
      m_[r] = no_maximum;
      for (int i = 0; i < lanes; ++i) l_[r * lanes + i] = 0;
      for (std::int64_t d = 0; d < value_width_; ++d) o_[r * value_width_ + d] = 0;
    }
  }

  void tile(std::int64_t start, std::int64_t keys) {
    if (start >= max_hi_ || start + keys <= min_lo_) return;
    const Lines k = key_lines(start, keys);
    soon_ = {rows_at(g_.v, start), g_.v.row * bytes_of(g_.v.dtype)};
    for (std::int64_t r = 0; r < padded_rows_; r += team) score(r, k, keys);
    const bool whole = start >= max_lo_ && start + keys <= min_hi_ && !g_.features.mask;
    bool hidden = false;
    for (std::int64_t r = 0; r < padded_rows_; ++r) {
      if (adjusts()) adjust(r, start, keys);
      if (!whole) hidden |= hide(r, start, keys);
      weigh(r, keys);
    }
    mix(start, keys, hidden || g_.features.bias);
    fresh_ = false;
  }

  // Values are asked for while keys are read, and the next tile's keys while values are: a tile's 64 rows are far
  // enough ahead for memory, and near enough for the L2 cache. The processor's own prefetch loses the thread at each
  // change: 9.4 GB/s on one Zen 4 core, of 23.7, without this.
  void fetch_soon(std::int64_t row, std::int64_t byte) const {
    __builtin_prefetch(soon_.data + row * soon_.row + byte, 0, 2);
  }

  // ---- Scores ----

  bool adjusts() const { return g_.features.softcap || g_.features.bias || g_.features.alibi_slopes; }

  Lines key_lines(std::int64_t start, std::int64_t keys) {
    const char* from = rows_at(g_.k, start);
    const std::int64_t row = g_.k.row * bytes_of(g_.k.dtype);
    if (g_.k.column == 1 && g_.sizes.D % (lanes * Dot::pair) == 0) return {from, row};
    for (std::int64_t j = 0; j < keys; ++j) copy_key(k_copy_ + j * steps_, from + j * row);
    return {reinterpret_cast<const char*>(k_copy_), steps_ * 4};
  }

  // A key in the form that ReadK reads, with zeros up to a whole vector.
  void copy_key(float* to, const char* from) {
    if (bytes_of(g_.k.dtype) == 2) {
      copy_halves(reinterpret_cast<std::uint16_t*>(to), from, g_.k.column, g_.sizes.D, steps_ * Dot::pair);
      return;
    }
    load_row(to, g_.k.dtype, from, g_.k.column, g_.sizes.D);
    for (std::int64_t d = g_.sizes.D; d < steps_; ++d) to[d] = 0;
  }

  // A team's scores of the tile: scores_[row][key].
  void score(std::int64_t r, Lines k, std::int64_t keys) {
    for (std::int64_t key = 0; key < keys; key += keys_at_once) {
      const char* line[keys_at_once];
#pragma GCC unroll 4
      for (int j = 0; j < keys_at_once; ++j) line[j] = k.data + min_of(key + j, keys - 1) * k.row;
      F sums[lanes];
#pragma GCC unroll 16
      for (int i = 0; i < lanes; ++i) sums[i] = Simd::zero();
      const float* q = q_ + r * steps_;
      for (std::int64_t s = 0; s < steps_; s += lanes) {
        F x[keys_at_once];
#pragma GCC unroll 4
        for (int j = 0; j < keys_at_once; ++j) {
          x[j] = ReadK::load(line[j] + s * ReadK::size);
          if (r == 0) fetch_soon(key + j, s * ReadK::size);
        }
#pragma GCC unroll 4
        for (int i = 0; i < team; ++i) {
          const F y = Simd::load(q + i * steps_ + s);
#pragma GCC unroll 4
          for (int j = 0; j < keys_at_once; ++j) {
            sums[i * keys_at_once + j] = Dot::fma(y, x[j], sums[i * keys_at_once + j]);
          }
        }
      }
      float total[lanes];
      Simd::store(total, Simd::sum_each(sums));
#pragma GCC unroll 4
      for (int i = 0; i < team; ++i) {
        __builtin_memcpy(scores_ + (r + i) * tile_keys + key, total + i * keys_at_once, keys_at_once * sizeof(float));
      }
    }
  }

  // ---- Scores to weights ----

  // Softcap, bias and ALiBi, in log2 units.
  void adjust(std::int64_t r, std::int64_t start, std::int64_t keys) {
    const std::int64_t row = min_of(r, rows_ - 1);
    float* s = scores_ + r * tile_keys;
    if (Dot::pair == 2) {
      for (std::int64_t j = 0; j < tile_keys; ++j) s[j] *= late_factor(g_);
    }
    if (g_.features.softcap) {
      const float cap = cap_of(g_);
      for (std::int64_t j = 0; j < tile_keys; j += lanes) {
        const F x = Simd::mul(Simd::load(s + j), Simd::set1(1 / cap));
        Simd::store(s + j, Simd::mul(tanh(x), Simd::set1(cap)));
      }
    }
    if (g_.features.bias) {
      const char* from = operand_at(g_.bias, head_of(row), query_of(row));
      load_row(bias_, g_.bias.dtype, from + start * g_.bias.column * bytes_of(g_.bias.dtype), g_.bias.column, keys);
      // -infinity masks: the score may be NaN. The lowest finite f32 is beyond f32 in log2 units, and stays finite.
      for (std::int64_t j = 0; j < keys; ++j) {
        const float sum = s[j] + bias_[j] * log2_e;
        s[j] = bias_[j] == -infinity ? -infinity : sum < no_maximum ? no_maximum : sum;
      }
    }
    if (g_.features.alibi_slopes) {
      const float slope = static_cast<float>(-g_.alibi_slopes[head_of(row)] * 1.44269504088896340736);
      const auto level = static_cast<float>(query_of(row) + g_.rules.offset - start);
      for (std::int64_t j = 0; j < keys; ++j) s[j] += __builtin_fabsf(level - static_cast<float>(j)) * slope;
    }
  }

  // -infinity for the keys that the row does not see; whether there was one.
  bool hide(std::int64_t r, std::int64_t start, std::int64_t keys) {
    const std::int64_t row = min_of(r, rows_ - 1);
    std::uint64_t bits = below(range_[r].hi - start) & ~below(range_[r].lo - start);
    if (g_.features.mask)
      bits &= mask_bits(operand_at(g_.mask, head_of(row), query_of(row)), g_.mask.column, start, keys);
    for (std::int64_t j = 0; j < keys; ++j) {
      if (!(bits >> j & 1)) scores_[r * tile_keys + j] = -infinity;
    }
    return (bits & below(keys)) != below(keys);
  }

  // Weights in place of the scores; -0 where the score is -infinity: not attended to.
  void weigh(std::int64_t r, std::int64_t keys) {
    float* s = scores_ + r * tile_keys;
    const std::int64_t end = round_up(keys, lanes);
    for (std::int64_t j = keys; j < end; ++j) s[j] = -infinity;
    const F factor = Simd::set1(Dot::pair == 1 || adjusts() ? 1 : late_factor(g_));
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
    if constexpr (Dot::pair == 2) {
      auto* to = reinterpret_cast<std::uint16_t*>(pairs_ + r * tile_keys / 2);
      for (std::int64_t j = 0; j < end; j += lanes) Simd::store_bf16(to + j, Simd::load(s + j));
    }
  }

  // All lanes into one number, by halves: one after another, each would wait for the one before.
  template <class Both>
  static float reduce(F x, Both both) {
    float each[lanes];
    Simd::store(each, x);
#pragma GCC unroll 4
    for (int half = lanes / 2; half > 0; half /= 2) {
#pragma GCC unroll 8
      for (int i = 0; i < half; ++i) each[i] = both(each[i], each[i + half]);
    }
    return each[0];
  }

  void rescale(std::int64_t r, F top) {
    const float largest = reduce(top, [](float a, float b) { return a > b ? a : b; });
    const float before = m_[r];
    m_[r] = largest;
    if (fresh_) return;  // nothing has been summed
    const F alpha = exp2<5>(Simd::set1(before - largest));
    Simd::store(l_ + r * lanes, Simd::mul(Simd::load(l_ + r * lanes), alpha));
    for (std::int64_t d = 0; d < value_width_; d += lanes) {
      float* o = o_ + r * value_width_ + d;
      Simd::store(o, Simd::mul(Simd::load(o), alpha));
    }
  }

  // ---- Weights times values ----

  void mix(std::int64_t start, std::int64_t keys, bool hidden) {
    const char* from = rows_at(g_.v, start);
    const std::int64_t row = g_.v.row * bytes_of(g_.v.dtype);
    soon_ = {rows_at(g_.k, next_), g_.k.row * bytes_of(g_.k.dtype)};
    const bool finite = !hidden || all_finite(from, row, keys);
    const bool as_it_is = finite && g_.v.column == 1 && g_.sizes.Dv % (lanes * Dot::pair) == 0;
    Lines v{from, row};
    if constexpr (Dot::pair == 2) {
      if (!as_it_is) v = copy_values(from, row, keys, finite);
      for (std::int64_t r = 0; r < padded_rows_; r += team) mix_pairs(r, v, keys);
    } else if (as_it_is) {
      mix_all<ReadV>(v, keys);
    } else {
      mix_all<ReadF32>(copy_values(from, row, keys, finite), keys);
    }
    if (!finite) repair(from, row, keys);
  }

  // In the form that the products read: f32, or bf16 as it is; zeros up to a whole vector, and where not finite.
  Lines copy_values(const char* from, std::int64_t row, std::int64_t keys, bool finite) {
    for (std::int64_t j = 0; j < keys; ++j) {
      if constexpr (Dot::pair == 1) {
        float* to = v_copy_ + j * value_width_;
        load_row(to, g_.v.dtype, from + j * row, g_.v.column, g_.sizes.Dv);
        for (std::int64_t d = 0; d < g_.sizes.Dv && !finite; ++d) to[d] = to[d] - to[d] == 0 ? to[d] : 0;
        for (std::int64_t d = g_.sizes.Dv; d < value_width_; ++d) to[d] = 0;
      } else {
        auto* to = reinterpret_cast<std::uint16_t*>(v_copy_) + j * value_width_;
        copy_halves(to, from + j * row, g_.v.column, g_.sizes.Dv, value_width_);
        for (std::int64_t d = 0; d < g_.sizes.Dv && !finite; ++d) to[d] = (to[d] & 0x7F80) == 0x7F80 ? 0 : to[d];
      }
    }
    return {reinterpret_cast<const char*>(v_copy_), value_width_ * (Dot::pair == 1 ? 4 : 2)};
  }

  bool all_finite(const char* from, std::int64_t row, std::int64_t keys) {
    float sum = 0;
    for (std::int64_t j = 0; j < keys; ++j) {
      load_row(v_copy_, g_.v.dtype, from + j * row, g_.v.column, g_.sizes.Dv);
      for (std::int64_t d = 0; d < g_.sizes.Dv; ++d) sum += v_copy_[d] - v_copy_[d];  // 0, or NaN
    }
    return sum == 0;
  }

  // The values that are not finite, for the rows that attend to them: 0 stood in their place.
  void repair(const char* from, std::int64_t row, std::int64_t keys) {
    for (std::int64_t j = 0; j < keys; ++j) {
      load_row(v_copy_, g_.v.dtype, from + j * row, g_.v.column, g_.sizes.Dv);
      for (std::int64_t d = 0; d < g_.sizes.Dv; ++d) {
        if (v_copy_[d] - v_copy_[d] == 0) continue;
        for (std::int64_t r = 0; r < padded_rows_; ++r) {
          const float weight = scores_[r * tile_keys + j];
          if (!__builtin_signbit(weight)) o_[r * value_width_ + place_of(d)] += weight * v_copy_[d];
        }
      }
    }
  }

  template <class Read>
  void mix_all(Lines v, std::int64_t keys) {
    for (std::int64_t r = 0; r < padded_rows_; r += team) {
      std::int64_t d = 0;
      for (; d + value_vectors * lanes <= value_width_; d += value_vectors * lanes) {
        mix_columns<Read, value_vectors>(r, v, d, keys);
      }
      for (; d < value_width_; d += lanes) mix_columns<Read, 1>(r, v, d, keys);
    }
  }

  template <class Read, int N>
  void mix_columns(std::int64_t r, Lines v, std::int64_t d, std::int64_t keys) {
    F sums[team][N];
#pragma GCC unroll 4
    for (int i = 0; i < team; ++i) {
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) sums[i][n] = Simd::zero();
    }
    const char* line = v.data + d * Read::size;
    const float* weights = scores_ + r * tile_keys;
    for (std::int64_t j = 0; j < keys; ++j, line += v.row, ++weights) {
      F x[N];
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) {
        x[n] = Read::load(line + n * lanes * Read::size);
        if (r == 0 && (n * lanes * Read::size) % 64 == 0) fetch_soon(j, (d + n * lanes) * Read::size);
      }
#pragma GCC unroll 4
      for (int i = 0; i < team; ++i) {
        const F weight = Simd::set1(weights[i * tile_keys]);
#pragma GCC unroll 4
        for (int n = 0; n < N; ++n) sums[i][n] = Simd::fma(weight, x[n], sums[i][n]);
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < team; ++i) {
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) {
        float* o = o_ + (r + i) * value_width_ + d + n * lanes;
        Simd::store(o, Simd::add(Simd::load(o), sums[i][n]));
      }
    }
  }

  // The weights rounded to bf16, two keys and 32 columns at a time. Columns come out in the order of interleave_low and
  // interleave_high, which finish() undoes.
  void mix_pairs(std::int64_t r, Lines v, std::int64_t keys) {
    std::int64_t d = 0;
    for (; d + 64 <= value_width_; d += 64) mix_pair_columns<2>(r, v, d, keys);
    for (; d < value_width_; d += 32) mix_pair_columns<1>(r, v, d, keys);
  }

  template <int N>
  void mix_pair_columns(std::int64_t r, Lines v, std::int64_t d, std::int64_t keys) {
    F sums[team][2 * N];
#pragma GCC unroll 4
    for (int i = 0; i < team; ++i) {
#pragma GCC unroll 4
      for (int n = 0; n < 2 * N; ++n) sums[i][n] = Simd::zero();
    }
    const std::uint32_t* weights = pairs_ + r * tile_keys / 2;
    for (std::int64_t j = 0; j < keys; j += 2, ++weights) {
      const char* even = v.data + j * v.row + d * 2;
      const bool odd_key = j + 1 < keys;  // else its weight is 0, and 0 stands for its value
      F x[2 * N];
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) {
        const F a = ReadPairs::load(even + n * 64);
        const F b = odd_key ? ReadPairs::load(even + v.row + n * 64) : Simd::zero();
        if (r == 0) fetch_soon(j, d * 2 + n * 64), fetch_soon(j + odd_key, d * 2 + n * 64);
        x[2 * n] = Dot::interleave_low(a, b);
        x[2 * n + 1] = Dot::interleave_high(a, b);
      }
#pragma GCC unroll 4
      for (int i = 0; i < team; ++i) {
        float bits;
        __builtin_memcpy(&bits, weights + i * tile_keys / 2, 4);
        const F weight = Simd::set1(bits);
#pragma GCC unroll 4
        for (int n = 0; n < 2 * N; ++n) sums[i][n] = Dot::fma(weight, x[n], sums[i][n]);
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < team; ++i) {
#pragma GCC unroll 4
      for (int n = 0; n < 2 * N; ++n) {
        float* o = o_ + (r + i) * value_width_ + d + n * lanes;
        Simd::store(o, Simd::add(Simd::load(o), sums[i][n]));
      }
    }
  }

  // Where a column's sum stands in a row of o_.
  static std::int64_t place_of(std::int64_t d) {
    if (Dot::pair == 1) return d;
    const std::int64_t e = d % 32;
    return d - e + e % 8 / 4 * 16 + e / 8 * 4 + e % 4;
  }

  void finish(float* partial) {
    for (std::int64_t r = 0; r < rows_; ++r, partial += 2 + g_.sizes.Dv) {
      partial[0] = m_[r];
      partial[1] = reduce(Simd::load(l_ + r * lanes), [](float a, float b) { return a + b; });
      for (std::int64_t d = 0; d < g_.sizes.Dv; ++d) partial[2 + d] = o_[r * value_width_ + place_of(d)];
    }
  }

  const Group& g_;
  std::int64_t first_, queries_, rows_, padded_rows_ = 0, steps_ = 0, value_width_ = 0;
  std::int64_t min_lo_ = 0, max_lo_ = 0, min_hi_ = 0, max_hi_ = 0;
  float *q_ = nullptr, *o_ = nullptr, *m_ = nullptr, *l_ = nullptr, *scores_ = nullptr, *bias_ = nullptr,
        *k_copy_ = nullptr, *v_copy_ = nullptr;
  std::uint32_t* pairs_ = nullptr;  // the weights as pairs of bf16
  KeyRange* range_ = nullptr;
  Lines soon_{};           // what is read next
  std::int64_t next_ = 0;  // the next tile's first key
  bool fresh_ = true;      // no tile has been summed yet
};

}  // namespace
}  // namespace attend::kernels
