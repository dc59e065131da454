// What the item that comes next reads and writes, asked for a little at a time while this one computes. An item of two
// tiles (96 heads of 128 tokens, f32, from the L3 cache) takes 0.86 of its time where it needn't wait for it.
#pragma once

#include "kernels/visible.h"

namespace attend::inline v1::kernels {
namespace {

class Ahead {
 public:
  // The item's rows of q, out and sums, and the keys and values with which it begins, in so many parts; but for those
  // that this item, of the group `now`, has read itself.
  void begin(const ForwardItem& next, const Group& now, KeyRange read, std::int64_t parts) {
    const Group& g = next.group;
    if (g.rules.key_length == 0) return;
    const KeyRange keys = visible_keys(g.rules, next.first, next.last);
    const bool were_read = rows_at(g.k, 0) == rows_at(now.k, 0) && keys.lo >= read.lo && keys.lo < read.hi;
    const std::int64_t start = (were_read ? read.hi : keys.lo) / tile_keys * tile_keys;
    const std::int64_t end = min_of(start + keys_ahead, keys.hi);
    for (std::int64_t key = start; key < end; key += tile_keys) {
      add(rows_at(g.k, key), {g.k.dtype, g.k.column, g.sizes.D}, g.k.row, min_of(tile_keys, end - key));
      add(rows_at(g.v, key), {g.v.dtype, g.v.column, g.sizes.Dv}, g.v.row, min_of(tile_keys, end - key));
    }
    for (std::int64_t head = 0; head < g.sizes.G; ++head) {
      const std::int64_t rows = next.last - next.first;
      const MutableOperand& out = next.to.out;
      add(operand_at(g.q, head, next.first), {g.q.dtype, g.q.column, g.sizes.D}, g.q.row, rows);
      add(operand_at(out, head, next.first), {out.dtype, out.column, g.sizes.Dv}, out.row, rows);
      const MutableOperand& sums = next.to.sums;
      if (sums.data)
        add(operand_at(sums, head, next.first), {sums.dtype, 1, g.sizes.Dv + carried_numbers}, sums.row, rows);
    }
    lines_of_part_ = lines_ / parts + 1;
  }

  // The next part.
  void ask() {
    std::int64_t lines = lines_of_part_;
    while (piece_ < count_) {
      const Piece& piece = pieces_[piece_];
      const char* row = piece.data + row_ * piece.row;
      for (; at_ < piece.bytes; at_ += 64) {
        if (lines-- == 0) return;
        __builtin_prefetch(row + at_, 0, 2);
      }
      at_ = 0;
      if (++row_ == piece.rows) row_ = 0, ++piece_;
    }
  }

 private:
  struct Piece {
    const char* data;
    std::int64_t row, bytes, rows;  // bytes from row to row, and of a row
  };

  // Rows that lie side by side are one.
  void add(const char* data, Elements of, std::int64_t row, std::int64_t rows) {
    const std::int64_t bytes = of.count * bytes_of(of.dtype);
    if (count_ == most_pieces || of.stride != 1) return;
    pieces_[count_] = {data, row * bytes_of(of.dtype), bytes, rows};
    if (pieces_[count_].row == bytes) pieces_[count_] = {data, 0, bytes * rows, 1};
    lines_ += (pieces_[count_].bytes + 63) / 64 * pieces_[count_].rows;
    ++count_;
  }

  static constexpr std::int64_t keys_ahead = 2 * tile_keys;
  static constexpr int most_pieces = 16;

  Piece pieces_[most_pieces];
  int count_ = 0, piece_ = 0;
  std::int64_t lines_ = 0, lines_of_part_ = 0, row_ = 0, at_ = 0;
};

}  // namespace
}  // namespace attend::inline v1::kernels
