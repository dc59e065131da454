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

  // Row i of a tile: weights(v) are those of the vector v, of which [begin, end) were computed and the keys `seen` are
  // visible; the tile's first key.
  template <class Weights>
  inline __attribute__((always_inline)) void look(std::int64_t i, Weights weights, std::int64_t begin, std::int64_t end,
                                                  std::uint64_t seen, std::int32_t first_key) {
    F most = weights(begin);
    for (std::int64_t v = begin + 1; v < end; ++v) most = Simd::max(weights(v), most);
    const float bound = weights_[i * row_ + top_ - 1];
    if (!Simd::any(Simd::greater(most, Simd::set1(bound)))) return;
    float row[weight_keys];
    for (std::int64_t v = 0; v < key_vectors; ++v)
      Simd::store(row + v * lanes, v >= begin && v < end ? weights(v) : Simd::zero());
    take(i, row, bound < 0 ? least_of_eight(most) : bound, seen, first_key);
  }

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

  // The weights of row i that are larger than `bound` into its list.
  void take(std::int64_t i, const float* p, float bound, std::uint64_t seen, std::int32_t first_key) {
    float* weights = weights_ + i * row_;
    auto* keys = reinterpret_cast<float*>(keys_ + i * row_);
    std::uint64_t larger = 0;
    for (std::int64_t v = 0; v < key_vectors; ++v) {
      const Mask above = Simd::greater(Simd::load(p + v * lanes), Simd::set1(bound));
      larger |= static_cast<std::uint64_t>(Simd::bits(above)) << v * lanes;
    }
    larger &= seen;
    if (row_ == lanes) {
      F list = Simd::load(weights), of = Simd::load(keys);
      for (; larger != 0; larger &= larger - 1) {
        const int j = __builtin_ctzll(larger);
        insert(list, of, Simd::set1(infinity), Simd::zero(), p[j], first_key + j);
      }
      Simd::store(weights, list), Simd::store(keys, of);
      return;
    }
    for (; larger != 0; larger &= larger - 1) {
      const int j = __builtin_ctzll(larger);
      for (std::int64_t n = row_ - lanes; n >= 0; n -= lanes) {
        F list = Simd::load(weights + n), of = Simd::load(keys + n);
        const F before = n > 0 ? Simd::load(weights + n - lanes) : Simd::set1(infinity);
        const F before_of = n > 0 ? Simd::load(keys + n - lanes) : Simd::zero();
        insert(list, of, before, before_of, p[j], first_key + j);
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
