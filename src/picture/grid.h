// The numbers of a heat map as they are drawn: checked, in averaged blocks where there are too many.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "attend/picture.h"
#include "core/message.h"
#include "picture/colour.h"

namespace attend::inline v1 {

struct Grid {
  std::int64_t rows = 0;  // as drawn
  std::int64_t columns = 0;
  std::int64_t row_block = 1;  // rows of the map in one row drawn
  std::int64_t column_block = 1;
  std::vector<double> values;  // row-major

  double at(std::int64_t row, std::int64_t column) const {
    return values[static_cast<std::size_t>(row * columns + column)];
  }
  static bool hidden(double value) { return value == -std::numeric_limits<double>::infinity(); }
  bool averaged() const { return row_block > 1 || column_block > 1; }
};

// The indices that the rows, or the columns, of a map stand for.
struct Indices {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t blocks = 0;  // rows of the map

  // From 0 to count, of the first index in a block.
  std::int64_t start(std::int64_t block) const;
  bool single() const { return count == blocks; }
  // The largest block's.
  std::int64_t size() const { return count / blocks + (count % blocks != 0); }
  friend bool operator==(const Indices&, const Indices&) = default;
};
Indices row_indices(const HeatMap& map);
Indices column_indices(const HeatMap& map);

// "Each cell is 16 queries × 32 keys: sum over keys, mean over queries.": what a value of the map is, where it is not
// simply one pair's.
std::u32string cell_note(const HeatMap& map, const Place& what);

// Throws bad_shape or bad_dtype, with a message that begins with `what`, for what no heat map can be drawn of, and
// bad_value for a value that its scale has no place for.
void check_heat_map(const HeatMap& map, const Place& what);

// Each drawn value is the mean of a block's finite values; NaN where the block holds a NaN or nothing else than +inf;
// -inf, hidden, where it holds hidden pairs alone. A block of one keeps its value, whatever it is.
Grid read_grid(const HeatMap& map, std::int64_t row_block, std::int64_t column_block);
// The same after check_heat_map, in blocks that leave at most max_side rows and columns.
Grid read_grid(const HeatMap& map, std::int64_t max_side, const Place& what);

// Below this magnitude, a value has no number inside its cell: of a wide map a 20th of the largest, or of the scale's
// end where one is given.
double least_written(const HeatMap& map, const Grid& grid);

// "0.49": what stands inside a cell. Short for any value, and the same in any locale.
std::string short_number(double value, int decimals);

}  // namespace attend::inline v1
