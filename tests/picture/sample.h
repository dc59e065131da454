// Maps that the picture tests draw.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "tests/expect.h"

namespace attend::test {

inline const std::vector<std::string> words = {"Life", "is", "short", "eat", "dessert", "first"};

// i + j / columns, scaled to [0, 1): all different, and the largest at the end.
inline Tensor ramp(std::int64_t rows, std::int64_t columns) {
  Tensor values({rows, columns});
  const std::int64_t count = rows * columns;
  for (std::int64_t i = 0; i < count; ++i) {
    values.data<float>()[i] = static_cast<float>(i) / static_cast<float>(count);
  }
  return values;
}

inline HeatMap heat_map(const View& values, const std::vector<std::string>& row_labels = {},
                        const std::vector<std::string>& column_labels = {}) {
  HeatMap map;
  map.values = values;
  map.row_labels = row_labels;
  map.column_labels = column_labels;
  return map;
}

// Scripts, markup, controls, and one that is far too long.
inline std::vector<std::string> odd_labels() {
  return {"注意力",
          "الانتباه",
          "👩‍💻🍰",
          "<b>&\"'</b>",
          std::string(100, 'w'),
          "a\nb\tc\x01\x7f",
          "",
          std::string("nul\0nul", 7) + "\xef\xbf\xbf"};
}

}  // namespace attend::test
