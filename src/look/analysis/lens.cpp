// What lens() found, as a picture and as CSV.
#include <algorithm>
#include <cmath>

#include "core/message.h"
#include "look/analysis/shared.h"
#include "look/csv.h"

namespace attend::inline v1 {

namespace {

void check_lens(const char* function, const Lens& x, std::span<const std::int64_t> positions) {
  check_numbers(function, "ids", x.ids, 3, DType::i64);
  check_numbers(function, "log_probabilities", x.log_probabilities, 3);
  if (x.log_probabilities.shape() != x.ids.shape())
    fail(ErrorCode::bad_shape, function, "log_probabilities has shape {}, expected that of ids, {}",
         x.log_probabilities.shape(), x.ids.shape());
  if (!positions.empty() && std::ssize(positions) != x.ids.size(1))
    fail(ErrorCode::bad_shape, function, "{} positions, expected {}", positions.size(), x.ids.size(1));
  if (!std::ranges::is_sorted(positions) || (!positions.empty() && positions[0] < 0))
    fail(ErrorCode::bad_value, function, "positions must rise from 0 or more");
}

// The last ones of the lens's positions.
struct Columns {
  std::int64_t first = 0, count = 0;
  std::vector<std::int64_t> positions;
};

Columns last_columns(const Lens& lens, std::span<const std::int64_t> positions, std::int64_t most) {
  const std::int64_t P = lens.ids.size(1);
  Columns columns{std::max<std::int64_t>(0, P - most), std::min(P, most), {}};
  for (std::int64_t p = columns.first; p < P; ++p)
    columns.positions.push_back(positions.empty() ? p : positions[static_cast<std::size_t>(p)]);
  return columns;
}

// " (positions 68 to 99 of 100)"; of all nothing.
std::string which(const Columns& columns, std::int64_t all) {
  const std::int64_t first = columns.positions.front(), last = columns.positions.back();
  if (columns.count == all) return "";
  if (columns.count == 1) return fmt::format(" (position {} of {})", first, all);
  if (last - first + 1 != columns.count) return fmt::format(" ({} positions of {})", columns.count, all);
  return fmt::format(" (positions {} to {} of {})", first, last, all);
}

}  // namespace

Picture lens_picture(const Lens& lens, std::span<const std::int64_t> positions, const AnalysisOf& of,
                     std::int64_t most) {
  constexpr const char* function = "lens_picture";
  if (most < 1) fail(ErrorCode::bad_value, function, "most is {}, expected at least 1", most);
  check_lens(function, lens, positions);
  const std::int64_t L = lens.ids.size(0) - 1, P = lens.ids.size(1), top = lens.ids.size(2);
  const Columns columns = last_columns(lens, positions, most);
  const auto texts = all_seen(token_texts(function, of, of.ids, columns.positions.back() + 1));
  Tensor values({L + 1, columns.count});
  HeatMap map;
  for (std::int64_t l = 0; l <= L; ++l) {
    for (std::int64_t p = 0; p < columns.count; ++p) {
      const std::int64_t at = (l * P + columns.first + p) * top;
      values.data<float>()[l * columns.count + p] = std::exp(lens.log_probabilities.data<float>()[at]);
      map.texts.push_back(seen(token_text(of, lens.ids.data<std::int64_t>()[at])));
    }
  }
  for (const std::int64_t position : columns.positions)
    map.column_labels.push_back(texts[static_cast<std::size_t>(position)]);
  map.row_labels = numbers_to(L, "answer");
  map.row_axis = "layer", map.column_axis = "tokens";
  map.high = 1;
  map.reduction = "the likeliest next token before that layer, on the colour of its probability";
  map.caption = text_caption(of);
  const std::int64_t all = of.ids.empty() ? std::max(P, columns.positions.back() + 1) : std::ssize(of.ids);
  return picture_of(std::move(values), std::move(map),
                    titled(of, "what the layers would answer" + which(columns, all)));
}

std::string lens_csv(const Lens& lens, std::span<const std::int64_t> positions, const AnalysisOf& of) {
  check_lens("lens_csv", lens, positions);
  const std::int64_t P = lens.ids.size(1), top = lens.ids.size(2);
  std::string text = "layer,position,place,id,token,log_probability\n";
  for (std::int64_t n = 0; n < lens.ids.count(); ++n) {
    const std::int64_t p = n / top % P, id = lens.ids.data<std::int64_t>()[n];
    text +=
        fmt::format("{},{},{},{},{},{}\n", n / top / P, positions.empty() ? p : positions[static_cast<std::size_t>(p)],
                    n % top, id, csv_cell(token_text(of, id)), lens.log_probabilities.data<float>()[n]);
  }
  return text;
}

}  // namespace attend::inline v1
