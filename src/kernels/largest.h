// The largest weights of each row of a stretch of keys, tile by tile.
#pragma once

#include "kernels/weights.h"

namespace attend::inline v1::kernels {
namespace {

// Lists of whole vectors, falling, with keys as whole numbers of 32 bits; what is empty has weight -1, which any weight
// exceeds.
class Largest {
 public:
  void carve(Scratch& scratch, std::int64_t top) {
    top_ = top, row_ = round_up(top, lanes);
    weights_ = scratch.take<float>(weight_rows * row_);
    keys_ = scratch.take<std::int32_t>(weight_rows * row_);
  }

  // Of rows first, ...: what is listed already.
  void load(const TopLists& from, std::int64_t first, std::int64_t rows) {
    for (std::int64_t i = 0; i < rows; ++i) {
      const float* weights = from.weights + (first + i) * top_;
      const std::int64_t* keys = from.keys + (first + i) * top_;
      for (std::int64_t n = 0; n < top_; ++n) {
        weights_[i * row_ + n] = keys[n] >= 0 ? weights[n] : -1;
        keys_[i * row_ + n] = static_cast<std::int32_t>(keys[n] >= 0 ? keys[n] - from.key_number : -1);
      }
      for (std::int64_t n = top_; n < row_; ++n) weights_[i * row_ + n] = -1, keys_[i * row_ + n] = -1;
    }
  }

  void store(const TopLists& to, std::int64_t first, std::int64_t rows) const {
    for (std::int64_t i = 0; i < rows; ++i) {
      float* weights = to.weights + (first + i) * top_;
      std::int64_t* keys = to.keys + (first + i) * top_;
      for (std::int64_t n = 0; n < top_; ++n) {
        const std::int64_t key = keys_[i * row_ + n];
        weights[n] = key < 0 ? 0 : weights_[i * row_ + n];
        keys[n] = key < 0 ? -1 : key + to.key_number;
      }
    }
  }

  // Rows at once: what one inserts waits for what it inserted before, and the others fill that time.
  static constexpr int together = 4;
  static_assert(height % together == 0, "rows of one strip");

  // What a tile has of some rows of a strip: the vectors [begin, end) of their weights were computed.
  struct Rows {
    std::int64_t first;
    int count;  // at most `together`
    std::int64_t begin, end;
    std::int32_t first_key;
    std::uint64_t seen[together];                              // the keys that they see
    alignas(64) float weights[together][weight_keys + lanes];  // after a row's last key comes `nothing`
  };

  void look(const Rows& rows) {
    std::uint64_t larger[together] = {}, any = 0;
    for (int r = 0; r < rows.count; ++r) any |= larger[r] = larger_ones(rows, r) & rows.seen[r];
    if (any == 0) return;
    if (row_ == lanes) return insert_together(rows, larger);
    for (int r = 0; r < rows.count; ++r) insert_all(rows.first + r, rows.weights[r], larger[r], rows.first_key);
  }

  static constexpr float nothing = -1;  // no list has less

 private:
  // A number that at least eight of the weights reach whose largest in each lane these are. It makes a row's first tile
  // short; where it is 0 it says nothing, since hidden weights are 0 too.
  float least_of_eight(F most) const {
    if (lanes < 8 || top_ > 8) return -1;
    float each[lanes], least = infinity;
    Simd::store(each, most);
#pragma GCC unroll 8
    for (int n = 0; n < 8; ++n) least = min_of(least, max_of(each[n], each[n + lanes - 8]));
    return least > 1e-30f ? least * 0.999999f : -1;
  }

  // Which weights of a row may belong into its list.
  std::uint64_t larger_ones(const Rows& rows, int r) const {
    const float* weights = rows.weights[r];
    F most = Simd::load(weights + rows.begin * lanes);
    for (std::int64_t v = rows.begin + 1; v < rows.end; ++v) most = Simd::max(Simd::load(weights + v * lanes), most);
    float bound = weights_[(rows.first + r) * row_ + top_ - 1];
    if (!Simd::any(Simd::greater(most, Simd::set1(bound)))) return 0;
    if (bound < 0) bound = least_of_eight(most);
    std::uint64_t larger = 0;
    for (std::int64_t v = rows.begin; v < rows.end; ++v) {
      const Mask above = Simd::greater(Simd::load(weights + v * lanes), Simd::set1(bound));
      larger |= static_cast<std::uint64_t>(Simd::bits(above)) << v * lanes;
    }
    return larger;
  }

  // Into lists of one vector each. A row that has no more to insert inserts `nothing`.
  void insert_together(const Rows& rows, std::uint64_t* larger) {
    static_assert(weight_keys < 64);
    constexpr std::uint64_t after_last = std::uint64_t{1} << weight_keys;
    std::int32_t numbers[weight_keys + 1];
    for (std::int32_t j = 0; j <= weight_keys; ++j) numbers[j] = rows.first_key + j;
    F lists[together], keys[together];
    const auto place = [&](int r) { return (rows.first + (r < rows.count ? r : 0)) * row_; };
#pragma GCC unroll 4
    for (int r = 0; r < together; ++r) {
      lists[r] = Simd::load(weights_ + place(r)), keys[r] = Simd::load(reinterpret_cast<float*>(keys_) + place(r));
    }
    const F before = Simd::set1(infinity), key_before = Simd::zero();
    for (std::uint64_t left = after_last; left != 0;) {
      left = 0;
#pragma GCC unroll 4
      for (int r = 0; r < together; ++r) {
        const int j = __builtin_ctzll(larger[r] | after_last);
        insert(lists[r], keys[r], before, key_before, rows.weights[r][j], numbers[j]);
        larger[r] &= larger[r] - 1;
        left |= larger[r];
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < together; ++r) {
      if (r >= rows.count) break;
      Simd::store(weights_ + place(r), lists[r]), Simd::store(reinterpret_cast<float*>(keys_) + place(r), keys[r]);
    }
  }

  // Those of row i into its list, of whole vectors.
  void insert_all(std::int64_t i, const float* row, std::uint64_t larger, std::int32_t first_key) {
    float* weights = weights_ + i * row_;
    auto* keys = reinterpret_cast<float*>(keys_ + i * row_);
    for (; larger != 0; larger &= larger - 1) {
      const int j = __builtin_ctzll(larger);
      for (std::int64_t n = row_ - lanes; n >= 0; n -= lanes) {
        F list = Simd::load(weights + n), of = Simd::load(keys + n);
        const F before = n > 0 ? Simd::load(weights + n - lanes) : Simd::set1(infinity);
        const F before_of = n > 0 ? Simd::load(keys + n - lanes) : Simd::zero();
        insert(list, of, before, before_of, row[j], first_key + j);
        Simd::store(weights + n, list), Simd::store(keys + n, of);
      }
    }
  }

  // Into one vector of a list, and its keys; `before` is the vector before it. Keys come in their order, so that of
  // equal weights the lower key stays first. A weight that is too small changes nothing.
  static inline __attribute__((always_inline)) void insert(F& list, F& keys, F before, F keys_before, float weight,
                                                           std::int32_t key) {
    float key_bits;
    __builtin_memcpy(&key_bits, &key, 4);
    const F x = Simd::set1(weight), shifted = Simd::shift_up(list, before);
    const Mask here_or_later = Simd::greater(x, list), later = Simd::greater(x, shifted);
    list = Simd::select(here_or_later, Simd::select(later, shifted, x), list);
    keys =
        Simd::select(here_or_later, Simd::select(later, Simd::shift_up(keys, keys_before), Simd::set1(key_bits)), keys);
  }

  std::int64_t top_ = 0, row_ = 0;  // row_: whole vectors
  float* weights_ = nullptr;        // [rows][row_], and their keys
  std::int32_t* keys_ = nullptr;
};

}  // namespace
}  // namespace attend::inline v1::kernels
