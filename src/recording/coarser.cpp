#include "recording/coarser.h"

#include <algorithm>

#include "core/divide_up.h"
#include "recording/recording.h"

namespace attend {

namespace {

struct Merge {
  std::int64_t rows = 1, columns = 1;  // so many become one
};

// [B,H,R,C] -> [B,H,R',C']; seeing: [B,H,R], of means; none: the largest.
Tensor merged(const Tensor& map, const Merge& by, const Tensor* seeing) {
  const std::int64_t B = map.size(0), H = map.size(1), R = map.size(2), C = map.size(3);
  Tensor out({B, H, divide_up(R, by.rows), divide_up(C, by.columns)}, DType::f64);
  const Tensor wide = map.view().to(DType::f64);
  const auto* from = wide.data<double>();
  auto* to = out.data<double>();
  const double* counts = seeing == nullptr ? nullptr : seeing->data<double>();
  std::vector<double> queries(static_cast<std::size_t>(out.size(2)));
  for (std::int64_t n = 0; n < B * H; ++n, from += R * C, to += out.size(2) * out.size(3)) {
    std::fill(queries.begin(), queries.end(), 0.0);
    for (std::int64_t r = 0; r < R; ++r) {
      double* row = to + r / by.rows * out.size(3);
      const double weight = counts == nullptr ? 1 : counts[n * R + r];
      queries[static_cast<std::size_t>(r / by.rows)] += weight;
      for (std::int64_t c = 0; c < C; ++c) {
        double& cell = row[c / by.columns];
        cell = counts == nullptr ? std::max(cell, from[r * C + c]) : cell + weight * from[r * C + c];
      }
    }
    for (std::int64_t r = 0; r < out.size(2) && counts != nullptr; ++r)
      for (std::int64_t c = 0; c < out.size(3); ++c)
        to[r * out.size(3) + c] /= std::max(1.0, queries[static_cast<std::size_t>(r)]);
  }
  return out.view().to(map.dtype());
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

std::int64_t merge_size(std::int64_t blocks, std::int64_t range, std::int64_t most) {
  const std::int64_t least = std::max<std::int64_t>(1, divide_up(blocks, std::max<std::int64_t>(1, most)));
  for (std::int64_t size = least; size <= 2 * least; ++size)
    if (blocks > 0 && (range % blocks == 0 || blocks % size == 0)) return size;
  return 1;
}

std::int64_t merged_range(std::int64_t range, std::int64_t blocks, std::int64_t size) {
  if (blocks % size == 0) return range;
  return divide_up(blocks, size) * size * (range / blocks);
}

TensorMap coarser_maps(const Recording& recording, std::int64_t layer, const MapSize& most, RecordedLayer& to) {
  const RecordedLayer& x = recording.at(layer);
  to = x;
  Merge by{merge_size(x.row_blocks, x.row_range, most.rows), merge_size(x.column_blocks, x.column_range, most.columns)};
  // Square ones keep the diagonal of a square map a diagonal.
  if (x.row_blocks == x.column_blocks && x.row_range == x.column_range)
    by.rows = by.columns = merge_size(x.row_blocks, x.row_range, std::min(most.rows, most.columns));
  TensorMap maps;
  if (by.rows == 1 && by.columns == 1) return maps;
  to.row_range = merged_range(x.row_range, x.row_blocks, by.rows);
  to.column_range = merged_range(x.column_range, x.column_blocks, by.columns);
  to.row_blocks = divide_up(x.row_blocks, by.rows), to.column_blocks = divide_up(x.column_blocks, by.columns);
  const Tensor seeing = seeing_queries(recording, layer);
  for (const std::string prefix : {"", "carried_"}) {
    if (!prefix.empty() && !x.has_key_sizes) continue;
    maps.emplace(prefix + "map", merged(recording.numbers(layer, prefix + "map"), by, &seeing));
    maps.emplace(prefix + "map_max", merged(recording.numbers(layer, prefix + "map_max"), by, nullptr));
  }
  return maps;
}

}  // namespace attend
