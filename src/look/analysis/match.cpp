// Which token of a passage each of a query's matched, as a picture.
#include <algorithm>

#include "core/message.h"
#include "look/analysis/shared.h"

namespace attend::inline v1 {

namespace {

std::string masks_caption(const MaxSim& match, std::span<const std::string> query, std::int64_t own) {
  const std::int64_t masks = std::ssize(query) - own;
  if (masks == 0) return "";
  const std::int64_t P = match.similarities.size(1);
  double sum = 0;
  for (std::int64_t q = own; q < std::ssize(query); ++q)
    sum += static_cast<double>(match.similarities.data<float>()[q * P + match.best[static_cast<std::size_t>(q)]]);
  return fmt::format(" {} {} that fill the query up add {:.2f}.", masks, query.back(), sum);
}

}  // namespace

std::int64_t filled_from(std::span<const std::string> query) {
  std::int64_t own = std::ssize(query);
  while (own > 0 && query[static_cast<std::size_t>(own) - 1] == query.back()) --own;
  return std::ssize(query) - own > 1 ? own : std::ssize(query);
}

Picture match_picture(const MaxSim& match, std::span<const std::string> query, std::span<const std::string> passage,
                      const std::optional<std::string>& title) {
  constexpr const char* function = "match_picture";
  check_numbers(function, "similarities", match.similarities, 2);
  const std::int64_t Q = match.similarities.size(0), P = match.similarities.size(1);
  if (std::ssize(match.best) != Q || std::ssize(query) != Q || std::ssize(passage) != P)
    fail(ErrorCode::bad_shape, function, "best, query and passage have {}, {} and {}, expected {}, {} and {}",
         match.best.size(), query.size(), passage.size(), Q, Q, P);
  Picture picture;
  for (const std::int64_t key : match.best)
    if (key < 0 || key >= P) fail(ErrorCode::bad_value, function, "best has {}, expected 0 to {}", key, P - 1);
  const std::int64_t own = filled_from(query);
  Tensor keys({own, 1}, DType::i64), weights({own, 1});
  for (std::int64_t q = 0; q < own; ++q) {
    const std::int64_t key = match.best[static_cast<std::size_t>(q)];
    keys.data<std::int64_t>()[q] = key;
    weights.data<float>()[q] = match.similarities.data<float>()[q * P + key];
  }
  picture.numbers.push_back(std::move(keys));
  picture.numbers.push_back(std::move(weights));
  picture.drawing = TokenLinks{
      .top_keys = picture.numbers[0].view(),
      .top_weights = picture.numbers[1].view(),
      .queries = all_seen({query.begin(), query.begin() + own}),
      .keys = all_seen({passage.begin(), passage.end()}),
      .title = title.value_or(
          fmt::format("which token of the passage each of the query matched: {:.2f} in all", match.score)),
      .caption = "A line leads to the token of the largest product, and is the darker the larger it is." +
                 masks_caption(match, query, own),
      .row_axis = "query",
      .column_axis = "passage",
      .are_shares = false,
  };
  return picture;
}

}  // namespace attend::inline v1
