// What becomes of the weights: the largest of each row, its entropy and distance, what each key receives, maps of
// blocks, and the weights themselves. One pass over tiles of weights (weights.h), of which nothing is kept but what is
// wanted. What keys carry, weights times their sizes, comes of the same tiles.
#pragma once

#include "kernels/largest.h"
#include "kernels/map_sums.h"

namespace attend::inline v1::kernels {
namespace {

// Keys of an item: packed, they stay in half of a 1 MiB L2 cache while all rows pass by.
std::int64_t summary_keys(const Sizes& sizes) {
  const std::int64_t floats = 512 * 1024 / 4 / round_up(sizes.D, 4);
  return min_of<std::int64_t>(16, max_of<std::int64_t>(1, floats / weight_keys)) * weight_keys;
}

// What a weight tile makes of a row's logits, in place.
template <class Dot>
void exponentiate_row(float lse, float lse_low, float* row, std::int64_t count) {
  const auto weights = [high = Simd::set1(lse), low = Simd::set1(lse_low)](F logit) {
    const Mask hidden = Simd::equal(logit, Simd::set1(-infinity));
    return Simd::select(hidden, Simd::zero(), exp2<Dot::degree>(Simd::sub(Simd::sub(logit, high), low)));
  };
  const std::int64_t whole = count / lanes * lanes, rest = count - whole;
  for (std::int64_t j = 0; j < whole; j += lanes) Simd::store(row + j, weights(Simd::load(row + j)));
  float last[lanes] = {};
  for (std::int64_t j = 0; j < rest; ++j) last[j] = row[whole + j];
  if (rest > 0) Simd::store(last, weights(Simd::load(last)));
  for (std::int64_t j = 0; j < rest; ++j) row[whole + j] = last[j];
}

// The work of one item. It lives at the beginning of its scratch.
template <class Dot>
class Summary : public SummaryItem, public InScratch {
 public:
  static Summary& make(const SummaryGroup& of, void* scratch) {
    return *new (scratch) Summary(of, static_cast<char*>(scratch));
  }

  static std::size_t scratch_bytes(const Sizes& sizes, const Features& features, std::int64_t top) {
    const SummaryGroup of{.forward = {.sizes = sizes, .features = features}, .largest = {.top = top}};
    return static_cast<std::size_t>(Summary(of, nullptr).bytes_);
  }

  Summary(const SummaryGroup& of, char* scratch)
      : SummaryItem{of}, tile_(group.forward, group.keys_begin, group.keys_end) {
    carve({scratch});
  }

  void begin() {
    if (!g_.features.decoded) tile_.pack_keys();
    if (maps()) map_.begin(group.map, group.carried_map, group.keys_begin, group.keys_end);
    if (!group.key_sizes) return;
    for (std::int64_t j = 0; j < tile_.item_keys(); ++j) sizes_[j] = group.key_sizes[j];
    for (std::int64_t j = tile_.item_keys(); j < round_up(tile_.item_keys(), weight_keys); ++j) sizes_[j] = 0;
  }

  // Rows [first, last), at most weight_rows.
  void rows(std::int64_t first, std::int64_t last) {
    tile_.take_rows(group.head, first, last);
    bool fetched = false;
    for (std::int64_t key = 0; key < tile_.item_keys(); key += weight_keys) {
      if (!tile_.look(key)) continue;
      if (!fetched) fetch_rows();
      fetched = true;
      meet();
    }
    if (fetched) add_row_sums();
    if (fetched && group.largest.keys) largest_.store(group.largest, tile_.first, tile_.rows);
    if (fetched && group.carried.keys) carried_.store(group.carried, tile_.first, tile_.rows);
    if (maps()) map_.close(first, last - first);
  }

  // How many keys rows [first, last) see, to counts[0], ...
  void count(std::int64_t first, std::int64_t last, std::int64_t* counts) {
    tile_.take_rows(group.head, first, last);
    for (std::int64_t i = 0; i < tile_.rows; ++i) counts[i] = 0;
    for (std::int64_t key = 0; key < tile_.item_keys(); key += weight_keys) {
      if (!tile_.look(key)) continue;
      for (std::int64_t i = 0; i < tile_.rows; ++i) counts[i] += __builtin_popcountll(tile_.seen(i));
    }
  }

 private:
  void carve(Scratch scratch) {
    scratch.take<Summary>(1);
    tile_.carve(scratch, summary_keys(g_.sizes));
    q_ = scratch.take<float>(weight_rows * q_row_);
    entropy_ = scratch.take<float>(weight_rows * lanes);
    distance_ = scratch.take<float>(weight_rows * lanes);
    sizes_ = scratch.take<float>(summary_keys(g_.sizes));
    largest_.carve(scratch, group.largest.top), carried_.carve(scratch, group.largest.top);
    next_ = scratch.take<std::int32_t>(weight_rows);
    next_key_ = scratch.take<std::int32_t>(weight_rows);
    map_.carve(scratch, summary_keys(g_.sizes));
    bytes_ = scratch.used;
  }

  bool maps() const { return group.map.sums || group.carried_map.sums; }

  void fetch_rows() {
    const Elements of{g_.q.dtype, g_.q.column, g_.sizes.D};
    for (std::int64_t i = 0; i < tile_.rows; ++i) {
      load_operand<Dot>(q_ + i * q_row_, operand_at(g_.q, tile_.head, tile_.first + i), of, q_row_);
    }
    for (std::int64_t i = tile_.rows * q_row_; i < tile_.strips * height * q_row_; ++i) q_[i] = 0;
    tile_.take_queries(q_, q_row_);
    tile_.take_lse([this](std::int64_t i) { return group.lse + 2 * (tile_.first + i); });
    for (std::int64_t i = 0; i < weight_rows * lanes; ++i) entropy_[i] = distance_[i] = 0;
    if (group.largest.keys) largest_.load(group.largest, tile_.first, tile_.rows);
    if (group.carried.keys) carried_.load(group.carried, tile_.first, tile_.rows);
    if (group.probes.same) find_same();
    for (std::int64_t b = 0; group.shares && b < tile_.strips; ++b) {
      strip_shares_[b] = 0;
      for (std::int64_t i = b * height; i < min_of(tile_.rows, (b + 1) * height); ++i) {
        strip_shares_[b] += group.shares[tile_.first + i];
      }
    }
  }

  // ---- A tile ----

  void meet() {
    tile_.weigh([](auto, const auto&, std::int64_t, std::int64_t) {}, [](std::int64_t, std::int64_t, std::int64_t) {},
                Entropy{group.entropy ? entropy_ : nullptr});
    if (group.distance) {
      for (std::int64_t i = 0; i < tile_.rows; ++i) add_distances(i);
    }
    for (std::int64_t i = 0; i < tile_.rows && group.largest.keys; i += Largest::together)
      take_largest(i, static_cast<int>(min_of<std::int64_t>(Largest::together, tile_.rows - i)));
    if (group.received) add_to_keys();
    if (maps()) map_.add(tile_.p, tile_.first, tile_.rows, tile_.at, tile_.keys, sizes_ + tile_.at);
    if (group.weights) store_weights();
    if (group.probes.weights) probe();
  }

  // Sums of exponents times weights, in log2 units, one vector a row.
  struct Entropy {
    float* sums;

    struct Row {
      float* to;
      F sum = to ? Simd::load(to) : Simd::zero();

      // An exponent of -infinity has weight 0: their product is one of 0, as that of any below -150.
      inline __attribute__((always_inline)) void add(F exponent, F weight) {
        sum = Simd::fma(Simd::max(exponent, Simd::set1(-256)), weight, sum);
      }
      inline __attribute__((always_inline)) void add(F exponent, F weight, Mask seen) {
        const F finite = Simd::max(exponent, Simd::set1(-256));
        sum = Simd::fma(Simd::select(seen, finite, Simd::zero()), weight, sum);
      }
      void end() {
        if (to) Simd::store(to, sum);
      }
    };
    Row row(std::int64_t i) const { return {sums ? sums + i * lanes : nullptr}; }
  };

  const float* weights_of(std::int64_t i) const { return tile_.p + i * weight_keys; }

  void add_distances(std::int64_t i) {
    const std::int64_t b = i / height;
    F sum = Simd::load(distance_ + i * lanes);
    for (std::int64_t v = tile_.first_vector[b]; v < tile_.last_vector[b]; ++v) {
      sum = Simd::fma(tile_.distance(i, v), Simd::load(weights_of(i) + v * lanes), sum);
    }
    Simd::store(distance_ + i * lanes, sum);
  }

  std::int32_t first_key() const { return static_cast<std::int32_t>(group.keys_begin + tile_.at); }

  // Of rows i, ..., all of one strip, and of their weights times the sizes of their keys.
  void take_largest(std::int64_t i, int count) {
    const std::int64_t b = i / height, begin = tile_.first_vector[b], end = tile_.last_vector[b];
    if (begin == end) return;
    Largest::Rows rows;
    rows.first = i, rows.count = count, rows.begin = begin, rows.end = end, rows.first_key = first_key();
    for (int r = 0; r < Largest::together; ++r) rows.weights[r][weight_keys] = Largest::nothing;
    for (int r = 0; r < count; ++r) {
      rows.seen[r] = tile_.seen(i + r);
      for (std::int64_t v = begin; v < end; ++v)
        Simd::store(rows.weights[r] + v * lanes, Simd::load(weights_of(i + r) + v * lanes));
    }
    largest_.look(rows);
    if (!group.carried.keys) return;
    for (int r = 0; r < count; ++r) carry(i + r, rows);
    carried_.look(rows);
  }

  // A row's weights become what its keys carry, 0 where it does not see them.
  void carry(std::int64_t i, Largest::Rows& rows) const {
    float* weights = rows.weights[i - rows.first];
    const bool masked = tile_.masked[i / height];
    for (std::int64_t v = rows.begin; v < rows.end; ++v) {
      const F all = Simd::mul(Simd::load(weights + v * lanes), Simd::load(sizes_ + tile_.at + v * lanes));
      const F seen = masked ? Simd::select(tile_.lanes_of(tile_.bits[i], v), all, Simd::zero()) : all;
      Simd::store(weights + v * lanes, seen);
    }
  }

  // The item's share of its rows' sums. Items add in the order of their keys.
  void add_row_sums() {
    for (std::int64_t i = 0; i < tile_.rows; ++i) {
      const std::int64_t query = tile_.first + i;
      if (group.entropy) {
        group.entropy[query] -= static_cast<float>(ln_2) * sum_of_lanes(Simd::load(entropy_ + i * lanes));
      }
      if (group.distance) group.distance[query] += sum_of_lanes(Simd::load(distance_ + i * lanes));
    }
  }

  // ---- Sums along the keys ----

  // What the tile's keys receive, and what they would receive of uniform attention.
  void add_to_keys() {
    float totals[weight_keys];
    sum_columns(tile_.p, 0, tile_.rows, totals, nullptr);
    for (std::int64_t j = 0; j < tile_.keys; ++j) group.received[tile_.at + j] += static_cast<double>(totals[j]);
    F shares[key_vectors], seen_by[key_vectors];
    for (std::int64_t v = 0; v < key_vectors; ++v) shares[v] = seen_by[v] = Simd::zero();
    for (std::int64_t b = 0; b < tile_.strips; ++b) {
      const std::int64_t begin = b * height, end = min_of(tile_.rows, begin + height);
      for (std::int64_t v = tile_.first_vector[b]; v < tile_.last_vector[b]; ++v) {
        if (!tile_.masked[b]) {
          shares[v] = Simd::add(shares[v], Simd::set1(strip_shares_[b]));
          seen_by[v] = Simd::add(seen_by[v], Simd::set1(static_cast<float>(end - begin)));
          continue;
        }
        for (std::int64_t i = begin; i < end; ++i) {
          const Mask sees = tile_.lanes_of(tile_.bits[i], v);
          const F share = Simd::set1(group.shares[tile_.first + i]);
          shares[v] = Simd::add(shares[v], Simd::select(sees, share, Simd::zero()));
          seen_by[v] = Simd::add(seen_by[v], Simd::select(sees, Simd::set1(1), Simd::zero()));
        }
      }
    }
    float sums[weight_keys], counts[weight_keys];
    for (std::int64_t v = 0; v < key_vectors; ++v) {
      Simd::store(sums + v * lanes, shares[v]), Simd::store(counts + v * lanes, seen_by[v]);
    }
    for (std::int64_t j = 0; j < tile_.keys; ++j) group.uniform[tile_.at + j] += static_cast<double>(sums[j]);
    if (!group.seen_by) return;
    for (std::int64_t j = 0; j < tile_.keys; ++j) group.seen_by[tile_.at + j] += static_cast<double>(counts[j]);
  }

  // ---- Single pairs ----

  void store_weights() {
    for (std::int64_t i = 0; i < tile_.rows; ++i) {
      float* to = group.weights + (tile_.first + i - group.weights_first) * group.weights_row + tile_.at;
      for (std::int64_t j = 0; j < tile_.keys; ++j) to[j] = weights_of(i)[j];
    }
  }

  // What head_scores() is made of.
  void probe() {
    const Probes& probes = group.probes;
    // The first row's level key, counted in the tile.
    const std::int64_t level = tile_.first + g_.rules.offset - group.keys_begin - tile_.at;
    if (level - probes.near < tile_.keys && level + tile_.rows + probes.near > 0) {
      for (std::int64_t i = 0; i < tile_.rows; ++i) add_near(i, level + i);
    }
    if (!probes.same) return;
    const std::int64_t end = group.keys_begin + tile_.at + tile_.keys;
    for (std::int64_t i = 0; i < tile_.rows; ++i)
      if (next_key_[i] < end) add_same(i);
  }

  void add_near(std::int64_t i, std::int64_t level) {
    const std::int64_t near = group.probes.near;
    const std::uint64_t seen = tile_.seen(i) & range(level - near, level + near + 1);
    if (seen == 0) return;
    const std::uint64_t self = range(level, level + 1), previous = range(level - 1, level);
    add_probe(i, Probes::self, seen & self), add_probe(i, Probes::previous, seen & previous);
    add_probe(i, Probes::local, seen & ~self & ~previous);
  }

  // Keys with row i's own token, and those that come right after one: the tile's, and the one before it. What a row
  // does not see has weight 0.
  void add_same(std::int64_t i) {
    const std::int32_t *next = group.probes.same + next_[i],
                       *end = group.probes.same + group.probes.end[tile_.first + i];
    const std::int64_t first = group.keys_begin + tile_.at, last = tile_.keys - 1;
    const float* p = weights_of(i);
    std::uint64_t keys = 0, before = 0;
    float own = 0, after = 0;
    while (next < end && *next < first - 1) ++next;  // in tiles that no row sees
    if (next < end && *next == first - 1) before = 1, after = p[0], ++next;
    for (; next < end && *next < first + last; ++next) {
      const std::int64_t j = *next - first;
      keys |= std::uint64_t{1} << j, own += p[j], after += p[j + 1];
    }
    // What comes after the tile's last key is in the next tile.
    if (next < end && *next == first + last) keys |= std::uint64_t{1} << last, own += p[last];
    const std::uint64_t follows = keys << 1 | before;
    next_[i] = static_cast<std::int32_t>(next - group.probes.same), next_key_[i] = next < end ? *next : INT32_MAX;
    const std::uint64_t seen = tile_.seen(i) & below(tile_.keys);
    const std::int64_t at = (tile_.first + i) * Probes::kinds;
    group.probes.weights[at + Probes::duplicate] += own, group.probes.weights[at + Probes::induction] += after;
    group.probes.keys[at + Probes::duplicate] += static_cast<float>(__builtin_popcountll(keys & seen));
    group.probes.keys[at + Probes::induction] += static_cast<float>(__builtin_popcountll(follows & seen));
    add_carried(i, Probes::duplicate, keys & seen), add_carried(i, Probes::induction, follows & seen);
  }

  // The first key with a row's own token that may be in the item, or right before it.
  void find_same() {
    const Probes& probes = group.probes;
    for (std::int64_t i = 0; i < tile_.rows; ++i) {
      std::int32_t begin = probes.begin[tile_.first + i], end = probes.end[tile_.first + i];
      while (begin < end) {
        const std::int32_t middle = begin + (end - begin) / 2;
        (probes.same[middle] < group.keys_begin - 1 ? begin : end) =
            probes.same[middle] < group.keys_begin - 1 ? middle + 1 : middle;
      }
      next_[i] = begin;
      next_key_[i] = begin < probes.end[tile_.first + i] ? probes.same[begin] : INT32_MAX;
    }
  }

  // The keys [begin, end) of the tile, as bits.
  std::uint64_t range(std::int64_t begin, std::int64_t end) const {
    const std::int64_t first = max_of<std::int64_t>(0, begin), last = min_of(tile_.keys, end);
    return first < last ? between(first, last) : 0;
  }

  void add_probe(std::int64_t i, Probes::Kind kind, std::uint64_t keys) {
    if (keys == 0) return;
    const std::int64_t at = (tile_.first + i) * Probes::kinds + kind;
    double sum = 0;
    group.probes.keys[at] += static_cast<float>(__builtin_popcountll(keys));
    add_carried(i, kind, keys);
    for (; keys != 0; keys &= keys - 1) sum += static_cast<double>(weights_of(i)[__builtin_ctzll(keys)]);
    group.probes.weights[at] += static_cast<float>(sum);
  }

  void add_carried(std::int64_t i, Probes::Kind kind, std::uint64_t keys) {
    if (!group.probes.carried || keys == 0) return;
    double sum = 0, sizes = 0;
    for (; keys != 0; keys &= keys - 1) {
      const int j = __builtin_ctzll(keys);
      const auto size = static_cast<double>(sizes_[tile_.at + j]);
      sum += static_cast<double>(weights_of(i)[j]) * size, sizes += size;
    }
    const std::int64_t at = (tile_.first + i) * Probes::kinds + kind;
    group.probes.carried[at] += static_cast<float>(sum), group.probes.sizes[at] += static_cast<float>(sizes);
  }

  const Group& g_ = group.forward;
  WeightTile<Dot> tile_;
  const std::int64_t q_row_ = round_up((g_.sizes.D + Dot::pair - 1) / Dot::pair, lanes);
  float *q_ = nullptr, *entropy_ = nullptr, *distance_ = nullptr;  // [rows][...], [rows][lanes]
  Largest largest_, carried_;
  float* sizes_ = nullptr;  // of the item's keys, zeros up to whole tiles
  std::int32_t *next_ = nullptr,
               *next_key_ = nullptr;  // of each row: the place of its next key in `same`, and that key
  float strip_shares_[most_strips] = {};
  MapSums map_;
  std::int64_t bytes_ = 0;
};

}  // namespace
}  // namespace attend::inline v1::kernels
