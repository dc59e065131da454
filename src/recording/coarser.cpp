#include "recording/coarser.h"

#include <algorithm>
#include <vector>

#include "core/divide_up.h"
#include "recording/recording.h"

namespace attend::inline v1 {

namespace {

Tensor merged_largest(const double* map, const MapSize& blocks, const MapSize& by) {
  Tensor out({divide_up(blocks.rows, by.rows), divide_up(blocks.columns, by.columns)}, DType::f64);
  for (std::int64_t r = 0; r < blocks.rows; ++r)
    for (std::int64_t c = 0; c < blocks.columns; ++c) {
      double& cell = out.data<double>()[r / by.rows * out.size(1) + c / by.columns];
      cell = std::max(cell, map[r * blocks.columns + c]);
    }
  return out;
}

// Each [R,C] of [B,H,R,C]; merge(map, n) merges the n-th.
template <class F>
Tensor merged_each(const Tensor& maps, const MapSize& to, F merge) {
  const std::int64_t cells = to.rows * to.columns;
  Tensor out({maps.size(0), maps.size(1), to.rows, to.columns}, DType::f64);
  const Tensor wide = maps.view().to(DType::f64);
  for (std::int64_t n = 0; n < maps.size(0) * maps.size(1); ++n) {
    const Tensor one = merge(wide.data<double>() + n * maps.size(2) * maps.size(3), n);
    std::copy_n(one.data<double>(), cells, out.data<double>() + n * cells);
  }
  return out.view().to(maps.dtype());
}

std::int64_t merge_size(std::int64_t blocks, std::int64_t range, std::int64_t most) {
  const std::int64_t least = std::max<std::int64_t>(1, divide_up(blocks, std::max<std::int64_t>(1, most)));
  for (std::int64_t size = least; size <= 2 * least; ++size)
    if (blocks > 0 && (range % blocks == 0 || blocks % size == 0)) return size;
  return 1;
}

// Of each item, head and row of a layer's map [B,H,R], how many of its queries see a key: those that have a top key.
Tensor seeing_queries(const Recording& recording, std::int64_t layer) {
  const RecordedLayer& x = recording.at(layer);
  const std::int64_t heads = x.batch * std::ssize(x.heads);
  Tensor seeing({x.batch, std::ssize(x.heads), x.row_blocks}, DType::f64);
  const Tensor first = recording.numbers(layer, "top_keys").view().select(3, 0).clone();
  for (std::int64_t n = 0; n < heads; ++n)
    for (std::int64_t i = 0; i < x.queries; ++i)
      seeing.data<double>()[n * x.row_blocks + i * x.row_blocks / x.row_range] +=
          first.data<std::int64_t>()[n * x.queries + i] >= 0 ? 1 : 0;
  return seeing;
}

}  // namespace

MapSize merge_sizes(const MapSize& blocks, const MapSize& ranges, const MapSize& most) {
  if (blocks.rows != blocks.columns || ranges.rows != ranges.columns)
    return {merge_size(blocks.rows, ranges.rows, most.rows), merge_size(blocks.columns, ranges.columns, most.columns)};
  const std::int64_t both = merge_size(blocks.rows, ranges.rows, std::min(most.rows, most.columns));
  return {both, both};
}

Tensor merged_means(const double* map, const MapSize& blocks, const MapSize& by, const double* seeing) {
  const std::int64_t R = divide_up(blocks.rows, by.rows), C = divide_up(blocks.columns, by.columns);
  Tensor out({R, C}, DType::f64);
  auto* to = out.data<double>();
  std::vector<double> queries(static_cast<std::size_t>(R));
  for (std::int64_t r = 0; r < blocks.rows; ++r) {
    queries[static_cast<std::size_t>(r / by.rows)] += seeing[r];
    for (std::int64_t c = 0; c < blocks.columns; ++c)
      to[r / by.rows * C + c / by.columns] += seeing[r] * map[r * blocks.columns + c];
  }
  for (std::int64_t n = 0; n < R * C; ++n) to[n] /= std::max(1.0, queries[static_cast<std::size_t>(n / C)]);
  return out;
}

std::int64_t merged_range(std::int64_t range, std::int64_t blocks, std::int64_t size) {
  if (blocks % size == 0) return range;
  return divide_up(blocks, size) * size * (range / blocks);
}

TensorMap coarser_maps(const Recording& recording, std::int64_t layer, const MapSize& most, RecordedLayer& to) {
  const RecordedLayer& x = recording.at(layer);
  to = x;
  const MapSize blocks{x.row_blocks, x.column_blocks};
  const MapSize by = merge_sizes(blocks, {x.row_range, x.column_range}, most);
  TensorMap maps;
  if (by.rows == 1 && by.columns == 1) return maps;
  to.row_range = merged_range(x.row_range, x.row_blocks, by.rows);
  to.column_range = merged_range(x.column_range, x.column_blocks, by.columns);
  to.row_blocks = divide_up(x.row_blocks, by.rows), to.column_blocks = divide_up(x.column_blocks, by.columns);
  const MapSize left{to.row_blocks, to.column_blocks};
  const Tensor seeing = seeing_queries(recording, layer);
  for (const std::string prefix : {"", "carried_"}) {
    if (!prefix.empty() && !x.has_key_sizes) continue;
    const auto numbers = [&](const char* name) { return recording.numbers(layer, prefix + name); };
    maps.emplace(prefix + "map", merged_each(numbers("map"), left, [&](const double* map, std::int64_t n) {
                   return merged_means(map, blocks, by, seeing.data<double>() + n * blocks.rows);
                 }));
    maps.emplace(prefix + "map_max", merged_each(numbers("map_max"), left, [&](const double* map, std::int64_t) {
                   return merged_largest(map, blocks, by);
                 }));
  }
  return maps;
}

}  // namespace attend::inline v1
