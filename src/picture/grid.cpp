#include "picture/grid.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/divide_up.h"
#include "core/message.h"

namespace attend {

namespace {

// Square roots and logarithms: what is hidden may be anything.
void check_scale(const HeatMap& map, const Place& what) {
  if (map.scale == PictureScale::linear) return;
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

}  // namespace

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
  const auto check_labels = [&](const std::vector<std::string>& labels, std::int64_t count, const char* axis) {
    if (!labels.empty() && static_cast<std::int64_t>(labels.size()) != count) {
      fail(ErrorCode::bad_shape, what, "{} {} labels for {} {}s (values {})", labels.size(), axis, count, axis,
           values.shape());
    }
  };
  check_labels(map.row_labels, values.size(0), "row");
  check_labels(map.column_labels, values.size(1), "column");
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
      const double x = map.visible && !map.visible(i, j) ? -std::numeric_limits<double>::infinity() : value[j];
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

}  // namespace attend
