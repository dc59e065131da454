// A map of weights in blocks (MapBlocks), summed up from tiles of weights.
#pragma once

#include "kernels/weights.h"

namespace attend::inline v1::kernels {
namespace {

// Of rows [begin, end) of a tile of weights: their sums for each key, and the largest ones where `most` is not null.
void sum_columns(const float* tile, std::int64_t begin, std::int64_t end, float* sums, float* most) {
  for (std::int64_t v = 0; v < key_vectors; v += vectors) {
    F sum[vectors], largest[vectors];
    for (int n = 0; n < vectors; ++n) sum[n] = largest[n] = Simd::zero();
    for (std::int64_t i = begin; i < end; ++i) {
      const float* p = tile + i * weight_keys + v * lanes;
#pragma GCC unroll 3
      for (int n = 0; n < vectors; ++n) {
        const F x = Simd::load(p + n * lanes);
        sum[n] = Simd::add(sum[n], x), largest[n] = Simd::max(x, largest[n]);
      }
    }
    for (int n = 0; n < vectors; ++n) {
      Simd::store(sums + (v + n) * lanes, sum[n]);
      if (most) Simd::store(most + (v + n) * lanes, largest[n]);
    }
  }
}

// The share of one item, keys [begin, end), in the map of its head; and in that of what is carried, which has the same
// blocks: a key's sums times its size.
class MapSums {
 public:
  // most_keys: of an item.
  void carve(Scratch& scratch, std::int64_t most_keys) {
    column_sums_ = scratch.take<float>(weight_keys * lanes);
    column_most_ = scratch.take<float>(weight_keys * lanes);
    key_sums_ = scratch.take<float>(weight_keys * lanes);
    key_most_ = scratch.take<float>(weight_keys * lanes);
    weights_.edges = scratch.take<Edge>(weight_rows), carried_.edges = scratch.take<Edge>(weight_rows);
    column_ends_ = scratch.take<std::int64_t>(most_keys);
  }

  // Either is of no memory where it is not wanted.
  void begin(const MapBlocks& weights, const MapBlocks& carried, std::int64_t keys_begin, std::int64_t keys_end) {
    const MapBlocks& map = weights.sums ? weights : carried;
    blocks_ = map, keys_begin_ = keys_begin;
    weights_.map = weights, carried_.map = carried;
    for (std::int64_t slot = 0; slot < weight_rows; ++slot) weights_.edges[slot] = carried_.edges[slot] = {};
    first_column_ = column_block(keys_begin), last_column_ = column_block(keys_end - 1) - first_column_;
    for (std::int64_t n = 0; n <= last_column_; ++n) {
      column_ends_[n] = map.first_key + block_begin(first_column_ + n + 1, map.C, map.keys) - keys_begin;
    }
  }

  // A tile of weights, of rows first, ... (`rows` of them) and of the item's keys at, ... (`keys` of them): `lanes`
  // blocks of rows at a time, whose sums then stand in lanes while keys are added up. sizes: of the tile's keys.
  void add(const float* tile, std::int64_t first, std::int64_t rows, std::int64_t at, std::int64_t keys,
           const float* sizes) {
    for (std::int64_t query = first; query < first + rows;) {
      const std::int64_t first_block = row_block(query);
      int count = 0;
      for (; count < lanes && query < first + rows; ++count) {
        const std::int64_t next = min_of(first + rows, row_begin(first_block + count + 1));
        float* sums = column_sums_ + count * weight_keys;
        sum_columns(tile, query - first, next - first, sums, column_most_ + (sums - column_sums_));
        query = next;
      }
      if (weights_.map.sums) fold(weights_, first_block, count, at, keys);
      if (!carried_.map.sums) continue;
      carry(count, sizes);
      fold(carried_, first_block, count, at, keys);
    }
  }

  // After the last tile of rows first, ...: the blocks whose first row is one of them. Rows come from the last to the
  // first.
  void close(std::int64_t first, std::int64_t rows) {
    if (weights_.map.sums) close(weights_, first, rows);
    if (carried_.map.sums) close(carried_, first, rows);
  }

 private:
  // A cell that another item may share has its sums here until the block of rows is done: then items add in their
  // order, one after the other.
  struct Edge {
    float sums[2], most[2];  // of the item's first and last column; where they are one, of the last
  };
  struct Share {
    MapBlocks map = {};
    Edge* edges = nullptr;  // of the blocks of rows at hand
    // A tile has at most weight_rows blocks of rows, which follow each other.
    Edge& edge_of(std::int64_t block) const { return edges[block % weight_rows]; }
  };

  void close(const Share& share, std::int64_t first, std::int64_t rows) {
    for (std::int64_t block = row_block(first + rows - 1); block >= row_block(first); --block) {
      if (max_of(row_begin(block), blocks_.rows_begin) < first) break;
      Edge& edge = share.edge_of(block);
      for (int n = 0; n < 2; ++n) {
        const std::int64_t cell = block * blocks_.row + first_column_ + n * last_column_;
        share.map.sums[cell] += edge.sums[n];
        share.map.most[cell] = max_of(share.map.most[cell], edge.most[n]);
      }
      edge = {};
    }
  }

  // Which block the n-th of `count` rows or keys is in, of `blocks`; the first one that is in a block.
  static std::int64_t block_of(std::int64_t n, std::int64_t blocks, std::int64_t count) { return n * blocks / count; }
  static std::int64_t block_begin(std::int64_t block, std::int64_t blocks, std::int64_t count) {
    return (block * count + blocks - 1) / blocks;
  }
  std::int64_t row_block(std::int64_t query) const {
    return block_of(query - blocks_.first_row, blocks_.R, blocks_.rows);
  }
  std::int64_t row_begin(std::int64_t block) const {
    return blocks_.first_row + block_begin(block, blocks_.R, blocks_.rows);
  }
  std::int64_t column_block(std::int64_t key) const {
    return block_of(key - blocks_.first_key, blocks_.C, blocks_.keys);
  }

  // Sums and largest ones of the weights of `count` blocks of rows become those of what is carried: sizes are 0 or
  // more. What nobody sees stays 0, whatever its size.
  void carry(int count, const float* sizes) {
    const auto multiply = [&](float* columns) {
      for (std::int64_t j = 0; j < count * weight_keys; j += lanes) {
        const F x = Simd::load(columns + j), carried = Simd::mul(x, Simd::load(sizes + j % weight_keys));
        Simd::store(columns + j, Simd::select(Simd::greater(Simd::abs(x), Simd::zero()), carried, x));
      }
    };
    multiply(column_sums_), multiply(column_most_);
  }

  // The sums of keys, of `count` blocks of rows, into the map's columns.
  void fold(const Share& share, std::int64_t first_block, int count, std::int64_t at, std::int64_t keys) {
    const std::int64_t first = column_block(keys_begin_ + at) - first_column_;
    if (count < 3) return fold_few(share, first_block, count, first, at, keys);
    transpose_columns(column_sums_, key_sums_), transpose_columns(column_most_, key_most_);
    std::int64_t columns = 0;  // of the tile: their sums come in place of those of keys, [columns][lanes]
    for (std::int64_t j = 0; j < keys; ++columns) {
      const std::int64_t next = min_of<std::int64_t>(keys, column_ends_[first + columns] - at);
      F sum = Simd::load(key_sums_ + j * lanes), most = Simd::load(key_most_ + j * lanes);
      for (++j; j < next; ++j) {
        sum = Simd::add(sum, Simd::load(key_sums_ + j * lanes));
        most = Simd::max(most, Simd::load(key_most_ + j * lanes));
      }
      Simd::store(key_sums_ + columns * lanes, sum), Simd::store(key_most_ + columns * lanes, most);
    }
    for (int n = 0; n < count; ++n) add_columns(share, first_block + n, first, columns, n);
  }

  // The same one by one, in the same order: of long texts, whose blocks are taller than a tile.
  void fold_few(const Share& share, std::int64_t first_block, int count, std::int64_t first, std::int64_t at,
                std::int64_t keys) {
    for (int n = 0; n < count; ++n) {
      const float *sums = column_sums_ + n * weight_keys, *largest = column_most_ + n * weight_keys;
      std::int64_t columns = 0;
      for (std::int64_t j = 0; j < keys; ++columns) {
        const std::int64_t next = min_of<std::int64_t>(keys, column_ends_[first + columns] - at);
        float sum = sums[j], most = largest[j];
        for (++j; j < next; ++j) sum += sums[j], most = max_of(most, largest[j]);
        key_sums_[columns * lanes] = sum, key_most_[columns * lanes] = most;
      }
      add_columns(share, first_block + n, first, columns, 0);
    }
  }

  // The columns first, ... (`columns` of them) of a block of rows, which stands in lane n.
  void add_columns(const Share& share, std::int64_t block, std::int64_t first, std::int64_t columns, int n) {
    Edge& edge = share.edge_of(block);
    const auto add = [&](std::int64_t column, float& sum, float& most) {
      const std::int64_t from = (column - first) * lanes + n;
      sum += key_sums_[from], most = max_of(most, key_most_[from]);
    };
    const std::int64_t end = first + columns, last = min_of(end, last_column_);
    const std::int64_t cell = block * blocks_.row + first_column_;
    float *sums = share.map.sums + cell, *most = share.map.most + cell;
    if (first == 0 && last_column_ > 0) add(0, edge.sums[0], edge.most[0]);
    for (std::int64_t column = max_of<std::int64_t>(1, first); column < last; ++column)
      add(column, sums[column], most[column]);
    if (end > last_column_) add(last_column_, edge.sums[1], edge.most[1]);
  }

  // [lanes][keys] to [keys][lanes].
  static void transpose_columns(const float* x, float* to) {
    for (std::int64_t j = 0; j < weight_keys; j += lanes) {
      F part[lanes];
#pragma GCC unroll 16
      for (int n = 0; n < lanes; ++n) part[n] = Simd::load(x + n * weight_keys + j);
      Simd::transpose(part);
#pragma GCC unroll 16
      for (int n = 0; n < lanes; ++n) Simd::store(to + (j + n) * lanes, part[n]);
    }
  }

  MapBlocks blocks_ = {};  // of both, whatever their memory
  Share weights_, carried_;
  std::int64_t keys_begin_ = 0;
  std::int64_t first_column_ = 0, last_column_ = 0;        // of the map; of the item, counted from the first
  std::int64_t* column_ends_ = nullptr;                    // of the item's columns, counted from its first key
  float *column_sums_ = nullptr, *column_most_ = nullptr;  // [lanes][keys], blocks of rows in their order
  float *key_sums_ = nullptr, *key_most_ = nullptr;        // [keys][lanes], and then [columns][lanes]
};

}  // namespace
}  // namespace attend::inline v1::kernels
