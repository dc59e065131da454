// A panel of the forward's rows and a tile of keys: which of them meet, and what is added to their scores.
#pragma once

#include "kernels/forward_start.h"

namespace attend::inline v1::kernels {
namespace {

// What of it the panel sees; false: nothing.
inline bool ForwardRows::look(const Panel& panel, std::int64_t start, std::int64_t keys, Meeting& meeting) {
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

inline bool ForwardRows::find_bits(const Panel& panel, bool closes, Meeting& meeting) {
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
inline bool ForwardRows::load_panel_biases(const Panel& panel, const Meeting& meeting) {
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
inline __attribute__((always_inline)) bool ForwardRows::transpose_biases(const Panel& panel, std::int64_t start,
                                                                         Load load) {
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
inline void ForwardRows::ask_for_bias(const Panel& panel, std::int64_t start, std::int64_t key) const {
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
inline void ForwardRows::load_levels(const Panel& panel, std::int64_t start) {
  for (std::int64_t lane = 0; lane < width; ++lane) {
    level_[lane] = static_cast<float>(places_[panel.first + lane] - start);
  }
}

// Which keys of the tile each row keeps, as bits_ holds which it sees.
inline void ForwardRows::draw_dropout(const Panel& panel, std::int64_t start) {
  for (std::int64_t lane = 0; lane < width; ++lane) {
    const std::uint64_t bits = dropout_bits(g_.rules, draws_[panel.first + lane], start);
    kept_[lane] = static_cast<std::uint32_t>(bits);
    kept_[width + lane] = static_cast<std::uint32_t>(bits >> 32);
  }
}

}  // namespace
}  // namespace attend::inline v1::kernels
