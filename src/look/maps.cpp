#include "look/maps.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>

#include "core/message.h"
#include "recording/coarser.h"

namespace attend::inline v1 {

namespace {

// Up to so many queries and keys, weights are drawn one by one where q and k were kept.
constexpr std::int64_t few = 64;

constexpr const char* reduction = "sum over keys, mean over queries";

std::int64_t size_of(const Range& range) {
  return range.end - range.begin;
}

// What the rows and columns of a map stand for: index begin + i of a range is in block floor(i blocks / its size).
struct Blocks {
  Range queries, keys;
  std::int64_t rows = 0, columns = 0;

  std::int64_t row_of(std::int64_t query) const { return (query - queries.begin) * rows / size_of(queries); }
  std::int64_t column_of(std::int64_t key) const { return (key - keys.begin) * columns / size_of(keys); }
};

Blocks blocks_of(const HeatMap& map) {
  const std::int64_t rows = map.values.size(0), columns = map.values.size(1);
  return {map.row_range.value_or(Range{0, rows}), map.column_range.value_or(Range{0, columns}), rows, columns};
}

// Which blocks hold a pair that causality and windows leave.
std::vector<char> seen_blocks(const std::vector<Range>& visible, const Blocks& blocks) {
  std::vector<char> seen(static_cast<std::size_t>(blocks.rows * blocks.columns));
  const std::int64_t end = std::min<std::int64_t>(std::ssize(visible), blocks.queries.end);
  for (std::int64_t i = blocks.queries.begin; i < end; ++i) {
    const Range& keys = visible[static_cast<std::size_t>(i)];
    const std::int64_t first = std::max(keys.begin, blocks.keys.begin), last = std::min(keys.end, blocks.keys.end) - 1;
    if (first > last) continue;
    char* row = seen.data() + blocks.row_of(i) * blocks.columns;
    std::fill(row + blocks.column_of(first), row + blocks.column_of(last) + 1, 1);
  }
  return seen;
}

// Of each row of a map, how many of its queries see a key: those that have a top key.
std::vector<double> seeing_queries(const View& top_keys, const Blocks& blocks) {
  const Tensor first = top_keys.select(1, 0).clone();
  std::vector<double> seeing(static_cast<std::size_t>(blocks.rows));
  for (std::int64_t i = blocks.queries.begin; i < std::min(first.count(), blocks.queries.end); ++i)
    seeing[static_cast<std::size_t>(blocks.row_of(i))] += first.data<std::int64_t>()[i] >= 0 ? 1 : 0;
  return seeing;
}

Range merged(const Range& range, std::int64_t blocks, std::int64_t size) {
  return {range.begin, range.begin + merged_range(size_of(range), blocks, size)};
}

// seeing: of each of its rows, how many queries see a key.
void merge(HeadMap& map, const std::vector<double>& seeing, const MapSize& by) {
  const Blocks from = blocks_of(map.map);
  const Tensor values = map.values.view().to(DType::f64);
  map.values = merged_means(values.data<double>(), {from.rows, from.columns}, by, seeing.data());
  map.map.values = map.values;
  map.map.row_range = merged(from.queries, from.rows, by.rows);
  map.map.column_range = merged(from.keys, from.columns, by.columns);
  map.map.row_labels.clear(), map.map.column_labels.clear();
  map.map.reduction = reduction;
}

// Merges blocks until there are at most as many as asked for.
void merge_maps(const Recording& recording, std::int64_t layer, std::optional<std::int64_t> head,
                const LookOptions& options, std::vector<HeadMap>& maps) {
  if (maps.empty()) return;
  const Blocks blocks = blocks_of(maps.front().map);
  const MapSize by =
      merge_sizes({blocks.rows, blocks.columns}, {size_of(blocks.queries), size_of(blocks.keys)}, *options.most);
  if (by.rows <= 1 && by.columns <= 1) return;
  const Tensor top_keys = recording.numbers(layer, "top_keys");
  for (std::size_t n = 0; n < maps.size(); ++n) {
    const View own = top_keys.view().select(0, options.item);
    const std::int64_t place = head ? recording.head(layer, *head) : static_cast<std::int64_t>(n);
    merge(maps[n], seeing_queries(own.select(0, place), blocks), by);
  }
}

// Which cells hold visible pairs: the same of all heads of a layer.
void set_visible(std::vector<HeadMap>& maps, const std::vector<Range>& visible) {
  if (maps.empty()) return;
  const auto seen = std::make_shared<const std::vector<char>>(seen_blocks(visible, blocks_of(maps.front().map)));
  for (HeadMap& map : maps)
    map.map.visible = [seen, columns = map.map.values.size(1)](std::int64_t r, std::int64_t c) {
      return (*seen)[static_cast<std::size_t>(r * columns + c)] != 0;
    };
}

// A map without values: of a part in single pairs, or as it was recorded.
HeatMap part_map(const Recording& recording, std::int64_t layer, const LookOptions& options, const Range& queries,
                 const Range& keys) {
  HeatMap map;
  const auto labels = [&](const std::vector<std::vector<std::string>>& tokens, const Range& range) {
    const std::vector<std::string> all = item_of(tokens, options.item);
    return all.empty() ? all : std::vector(all.data() + range.begin, all.data() + range.end);
  };
  map.row_labels = labels(recording.query_tokens(layer), queries);
  map.column_labels = labels(recording.key_tokens(layer), keys);
  if (queries.begin > 0) map.row_range = queries;
  if (keys.begin > 0) map.column_range = keys;
  map.scale = options.scale;
  map.numbers_from = 0;  // as keys are counted
  return map;
}

HeatMap block_map(const Recording& recording, std::int64_t layer, const LookOptions& options) {
  const RecordedLayer& x = recording.at(layer);
  HeatMap map = part_map(recording, layer, options, {0, x.queries}, {0, x.keys});
  if (x.row_range != x.row_blocks) map.row_range = Range{0, x.row_range}, map.row_labels.clear();
  if (x.column_range != x.column_blocks) map.column_range = Range{0, x.column_range}, map.column_labels.clear();
  map.reduction = reduction;
  return map;
}

}  // namespace

std::string name_of(WeighedBy by, std::string_view statistic) {
  return fmt::format("{}{}", by == WeighedBy::norm ? "carried_" : "", statistic);
}

std::vector<double> row_means(const Recording& recording, std::int64_t layer, std::int64_t item, WeighedBy by) {
  const std::size_t heads = recording.at(layer).heads.size();
  std::vector<double> means(heads, 1);
  if (by == WeighedBy::weight) return means;
  const Tensor received = recording.numbers(layer, "carried_received").view().select(0, item).to(DType::f64);
  const std::vector<HeadScores> scores = recording.scores(layer);
  const auto keys = static_cast<std::size_t>(received.size(1));
  for (std::size_t h = 0; h < heads; ++h) {
    const double* own = received.data<double>() + h * keys;
    const double total = std::accumulate(own, own + keys, 0.0);
    const auto rows = static_cast<double>(scores[static_cast<std::size_t>(item) * heads + h].rows);
    if (total > 0) means[h] = total / rows;
  }
  return means;
}

void divide(Tensor& values, double divisor) {
  if (divisor == 1) return;
  Tensor wide = values.view().to(DType::f64);
  for (std::int64_t n = 0; n < wide.count(); ++n) wide.data<double>()[n] /= divisor;
  values = wide.view().to(values.dtype());
}

std::vector<std::string> item_of(const std::vector<std::vector<std::string>>& tokens, std::int64_t item) {
  return item < std::ssize(tokens) ? tokens[static_cast<std::size_t>(item)] : std::vector<std::string>{};
}

void check_item(const Recording& recording, std::int64_t layer, std::int64_t item) {
  const RecordedLayer& x = recording.at(layer);
  if (item < 0 || item >= x.batch)
    fail(ErrorCode::bad_value, "Recording", "layer {}: item {}, expected 0 to {}", x.name, item, x.batch - 1);
}

Range part_of(const char* name, const std::optional<Range>& given, const RecordedLayer& layer, std::int64_t count) {
  if (!given) return {0, count};
  if (given->begin < 0 || given->begin >= given->end || given->end > count)
    fail(ErrorCode::bad_value, "Recording", "layer {}: {} {} to {}, expected a part of 0 to {}", layer.name, name,
         given->begin, given->end, count);
  return *given;
}

std::vector<HeadMap> maps_of(const Recording& recording, std::int64_t layer, std::optional<std::int64_t> head,
                             const LookOptions& options) {
  check_item(recording, layer, options.item);
  const RecordedLayer& x = recording.at(layer);
  const Range queries = part_of("queries", options.queries, x, x.queries);
  const Range keys = part_of("keys", options.keys, x, x.keys);
  const bool pairs = x.row_blocks == x.queries && x.column_blocks == x.keys;  // the map has a cell for each
  const bool exact = !pairs && (options.queries || options.keys || (x.has_qk && x.queries <= few && x.keys <= few));
  const HeatMap like =
      pairs || exact ? part_map(recording, layer, options, queries, keys) : block_map(recording, layer, options);
  // All of a layer's maps lie together in the file.
  const Tensor all = exact ? Tensor() : recording.numbers(layer, name_of(options.by, "map"));
  const auto values_of = [&](std::int64_t number) {
    if (exact) return recording.weights(layer, options.item, number, queries, keys, options.by);
    const View map = all.view().select(0, options.item).select(0, recording.head(layer, number));
    return pairs ? map.slice(0, queries.begin, queries.end).slice(1, keys.begin, keys.end).clone() : map.clone();
  };
  const std::vector<double> means = row_means(recording, layer, options.item, options.by);
  std::vector<HeadMap> maps;
  maps.reserve(x.heads.size());
  for (const std::int64_t number : head ? std::vector{*head} : x.heads) {
    HeadMap& made = maps.emplace_back(HeadMap{values_of(number), like});
    divide(made.values, means[static_cast<std::size_t>(recording.head(layer, number))]);
    made.map.values = made.values;
  }
  if (options.most) merge_maps(recording, layer, head, options, maps);
  set_visible(maps, recording.visible_keys(layer));
  return maps;
}

WeightMaps weight_maps(const Recording& recording, std::int64_t layer, std::optional<std::int64_t> head,
                       const LookOptions& options) {
  const std::vector<HeadMap> maps = maps_of(recording, layer, head, options);
  if (maps.empty()) return {};
  const HeatMap& first = maps.front().map;
  const Blocks blocks = blocks_of(first);
  WeightMaps found{Tensor({std::ssize(maps), blocks.rows, blocks.columns}, DType::f32), blocks.queries, blocks.keys,
                   first.reduction};
  float* to = found.values.data<float>();
  for (const HeadMap& map : maps) {
    const Tensor values = map.values.view().to(DType::f32);
    const float* from = values.data<float>();
    for (std::int64_t r = 0; r < blocks.rows; ++r)
      for (std::int64_t c = 0; c < blocks.columns; ++c, ++from, ++to)
        *to = map.map.visible(r, c) ? *from : std::numeric_limits<float>::quiet_NaN();
  }
  return found;
}

}  // namespace attend::inline v1
