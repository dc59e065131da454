#include "picture/grid.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/divide_up.h"
#include "core/message.h"
#include "picture/text.h"

namespace attend::inline v1 {

namespace {

// Square roots and logarithms: what is hidden may be anything.
void check_scale(const HeatMap& map, const Place& what) {
  if (map.scale == PictureScale::linear || map.scale == PictureScale::diverging) return;
  if (map.low < 0) {
    fail(ErrorCode::bad_value, what, "low is {}, expected 0 or more on the scale {}", map.low, name_of(map.scale));
  }
  for (std::int64_t i = 0; i < map.values.size(0); ++i) {
    const Tensor row = map.values.select(0, i).to(DType::f64);
    for (std::int64_t j = 0; j < row.count(); ++j) {
      const double value = row.data<double>()[j];
      if (!(value < 0) || Grid::hidden(value) || (map.visible && !map.visible(i, j))) continue;
      fail(ErrorCode::bad_value, what, "values have {} at [{},{}], expected 0 or more on the scale {}", value, i, j,
           name_of(map.scale));
    }
  }
}

Indices indices_of(const std::optional<Range>& range, std::int64_t blocks) {
  if (!range) return {0, blocks, blocks};
  return {range->begin, range->end - range->begin, blocks};
}

}  // namespace

std::int64_t Indices::start(std::int64_t block) const {
  // The least i for which floor(i * blocks / count) is the block: block * count / blocks, rounded up, in parts that
  // can't overflow.
  return block * (count / blocks) + divide_up(block * (count % blocks), blocks);
}

Indices row_indices(const HeatMap& map) {
  return indices_of(map.row_range, map.values.size(0));
}

Indices column_indices(const HeatMap& map) {
  return indices_of(map.column_range, map.values.size(1));
}

std::u32string cell_note(const HeatMap& map, const Place& what) {
  const std::u32string how = one_line(map.reduction, what.in("reduction"));
  const Indices rows = row_indices(map);
  const Indices columns = column_indices(map);
  if (rows.single() && columns.single()) return how.empty() ? how : U"Each cell: " + how + U".";
  const auto side = [](const Indices& indices, const std::u32string& name, std::u32string_view other) {
    const bool even = indices.count % indices.blocks == 0;
    return ascii(fmt::format("{}{} ", even ? "" : "up to ", indices.size())).append(name.empty() ? other : name);
  };
  return U"Each cell is " + side(rows, one_line(map.row_axis, what.in("row_axis")), U"rows") + U" × " +
         side(columns, one_line(map.column_axis, what.in("column_axis")), U"columns") +
         (how.empty() ? how : U": " + how) + U".";
}

void check_heat_map(const HeatMap& map, const Place& what) {
  const View& values = map.values;
  if (!is_floating(values.dtype())) {
    fail(ErrorCode::bad_dtype, what, "values are {}, expected a floating point type", values.dtype());
  }
  if (values.rank() != 2) {
    fail(ErrorCode::bad_shape, what, "values have shape {}, expected [rows,columns]", values.shape());
  }
  if (values.size(0) == 0 || values.size(1) == 0) {
    fail(ErrorCode::bad_shape, what, "values have shape {}, expected at least one row and one column", values.shape());
  }
  const auto check_axis = [&](const std::vector<std::string>& labels, const Indices& indices, const char* axis) {
    if (indices.first < 0 || indices.count < indices.blocks) {
      fail(ErrorCode::bad_shape, what, "{}_range is {} to {}, expected {} or more indices from 0 on (values {})", axis,
           indices.first, indices.first + indices.count, indices.blocks, values.shape());
    }
    if (!labels.empty() && std::ssize(labels) != indices.count) {
      fail(ErrorCode::bad_shape, what, "{} {} labels for {} {}s (values {})", labels.size(), axis, indices.count, axis,
           values.shape());
    }
  };
  check_axis(map.row_labels, row_indices(map), "row");
  check_axis(map.column_labels, column_indices(map), "column");
  if (!map.texts.empty() && std::ssize(map.texts) != values.count()) {
    fail(ErrorCode::bad_shape, what, "{} texts for values {}", map.texts.size(), values.shape());
  }
  check_scale(map, what);
}

Grid read_grid(const HeatMap& map, std::int64_t row_block, std::int64_t column_block) {
  const std::int64_t rows = map.values.size(0);
  const std::int64_t columns = map.values.size(1);
  Grid grid{divide_up(rows, row_block), divide_up(columns, column_block), row_block, column_block, {}};
  grid.values.assign(static_cast<std::size_t>(grid.rows * grid.columns), 0);
  std::vector<std::int64_t> counts(grid.values.size(), 0);
  for (std::int64_t i = 0; i < rows; ++i) {
    const Tensor row = map.values.select(0, i).to(DType::f64);
    const double* value = row.data<double>();
    for (std::int64_t j = 0; j < columns; ++j) {
      const bool hidden = (map.visible && !map.visible(i, j)) || (map.nan_is_hidden && std::isnan(value[j]));
      const double x = hidden ? -std::numeric_limits<double>::infinity() : value[j];
      const auto block = static_cast<std::size_t>(i / grid.row_block * grid.columns + j / grid.column_block);
      if (std::isinf(x)) {
        if (counts[block] == 0) grid.values[block] = x > 0 && grid.averaged() ? std::nan("") : x;
        continue;
      }
      // The running mean, which can't overflow as a sum could.
      const auto count = static_cast<double>(++counts[block]);
      grid.values[block] = count == 1 ? x : grid.values[block] + (x / count - grid.values[block] / count);
    }
  }
  return grid;
}

Grid read_grid(const HeatMap& map, std::int64_t max_side, const Place& what) {
  check_heat_map(map, what);
  return read_grid(map, divide_up(map.values.size(0), max_side), divide_up(map.values.size(1), max_side));
}

double least_written(const HeatMap& map, const Grid& grid) {
  if (!map.wide) return 0;
  double largest = std::max(std::abs(map.low), std::abs(map.high));
  for (const double value : grid.values)
    if (map.low == map.high && std::isfinite(value)) largest = std::max(largest, std::abs(value));
  return largest / 20;
}

std::string short_number(double value, int decimals) {
  const double size = std::abs(value);
  std::string text;
  if (size < 1e5 && decimals <= 4) {
    text = fmt::format("{:.{}f}", value, size < 1000 ? decimals : 0);
  } else {
    text = fmt::format("{:.3g}", value);
  }
  if (text.starts_with('-') && text.find_first_not_of("-0.") == std::string::npos) text.erase(0, 1);
  return text;
}

}  // namespace attend::inline v1
