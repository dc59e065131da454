// A recording's maps, strips and grid of heads as the picture room takes them.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "cli/command.h"
#include "cli/show.h"

namespace attend::cli {
namespace {

// Up to so many queries and keys, weights are drawn one by one where q and k were kept.
constexpr std::int64_t few = 64;

constexpr const char* reduction = "sum over keys, mean over queries";

// Which blocks hold a pair that causality and windows leave, of a map of rows x columns: index i is in block
// floor(i blocks / range).
std::vector<char> seen_blocks(const std::vector<Range>& visible, std::int64_t rows, std::int64_t row_range,
                              std::int64_t columns, std::int64_t column_range) {
  std::vector<char> seen(static_cast<std::size_t>(rows * columns));
  for (std::int64_t i = 0; i < std::ssize(visible); ++i) {
    const Range& keys = visible[static_cast<std::size_t>(i)];
    if (keys.begin >= keys.end) continue;
    const auto row = seen.begin() + i * rows / row_range * columns;
    std::fill(row + keys.begin * columns / column_range, row + (keys.end - 1) * columns / column_range + 1, 1);
  }
  return seen;
}

std::function<bool(std::int64_t, std::int64_t)> visible_in(const std::vector<Range>& visible, const HeatMap& map) {
  const auto reach = [](const std::optional<Range>& range, std::int64_t count) { return range ? range->end : count; };
  const std::int64_t rows = map.values.size(0), columns = map.values.size(1);
  const auto seen = std::make_shared<const std::vector<char>>(
      seen_blocks(visible, rows, reach(map.row_range, rows), columns, reach(map.column_range, columns)));
  return [seen, columns](std::int64_t r, std::int64_t c) {
    return (*seen)[static_cast<std::size_t>(r * columns + c)] != 0;
  };
}

std::vector<std::string> item_of(const std::vector<std::vector<std::string>>& tokens, std::int64_t item) {
  return item < std::ssize(tokens) ? tokens[static_cast<std::size_t>(item)] : std::vector<std::string>{};
}

// How many blocks to merge so that at most `most` are left and each index is still in block floor(i blocks / range):
// where blocks are all of one size, or their number can be divided. 1 where that would be far more than needed.
std::int64_t merge_size(std::int64_t blocks, std::int64_t range, std::int64_t most) {
  const std::int64_t least = std::max<std::int64_t>(1, (blocks + most - 1) / most);
  for (std::int64_t size = least; size <= 2 * least; ++size)
    if (blocks > 0 && (range % blocks == 0 || blocks % size == 0)) return size;
  return 1;
}

// Of each row of a map, how many of its queries see a key: those that have a top key.
std::vector<double> seeing_queries(const Selection& selection, std::int64_t layer, std::int64_t head, std::int64_t rows,
                                   std::int64_t range) {
  const Recording& recording = selection.recording;
  const Tensor top = recording.numbers(layer, "top_keys");
  const Tensor first = top.view().select(0, selection.item).select(0, recording.head(layer, head)).select(1, 0).clone();
  std::vector<double> seeing(static_cast<std::size_t>(rows));
  for (std::int64_t i = 0; i < first.count(); ++i)
    seeing[static_cast<std::size_t>(i * rows / range)] += first.data<std::int64_t>()[i] >= 0 ? 1 : 0;
  return seeing;
}

// A map of single weights, without values.
HeatMap token_map(const Selection& selection, std::int64_t layer, PictureScale scale) {
  HeatMap map;
  map.row_labels = item_of(selection.recording.query_tokens(layer), selection.item);
  map.column_labels = item_of(selection.recording.key_tokens(layer), selection.item);
  map.scale = scale;
  map.numbers_from = 0;  // as keys are counted
  return map;
}

// A map as it was recorded, without values.
HeatMap map_like(const Selection& selection, std::int64_t layer, PictureScale scale) {
  const RecordedLayer& x = selection.recording.layers()[static_cast<std::size_t>(layer)];
  HeatMap map = token_map(selection, layer, scale);
  if (x.row_range != x.row_blocks) map.row_range = Range{0, x.row_range}, map.row_labels.clear();
  if (x.column_range != x.column_blocks) map.column_range = Range{0, x.column_range}, map.column_labels.clear();
  if (map.row_range || map.column_range) map.reduction = reduction;
  return map;
}

}  // namespace

std::vector<HeadMap> layer_maps(const Selection& selection, std::int64_t layer, PictureScale scale) {
  const Recording& recording = selection.recording;
  const RecordedLayer& x = recording.layers()[static_cast<std::size_t>(layer)];
  HeatMap like = map_like(selection, layer, scale);
  const bool in_blocks = like.row_range || like.column_range;
  const bool exact = in_blocks && x.has_qk && x.queries <= few && x.keys <= few;
  if (exact) like = token_map(selection, layer, scale);
  // All of a layer's maps lie together in the file.
  const Tensor all = exact ? Tensor() : recording.numbers(layer, "map");
  std::vector<HeadMap> maps;
  for (const std::int64_t head : x.heads) {
    if (selection.head && *selection.head != head) continue;
    maps.push_back({exact ? recording.weights(layer, selection.item, head)
                          : all.view().select(0, selection.item).select(0, recording.head(layer, head)).clone(),
                    like});
    HeatMap& map = maps.back().map;
    map.values = maps.back().values;
    map.visible = maps.size() == 1 ? visible_in(recording.visible_keys(layer), map) : maps.front().map.visible;
  }
  return maps;
}

HeadMap merged_map(const Selection& selection, std::int64_t layer, HeadMap map, int columns) {
  const Recording& recording = selection.recording;
  const std::int64_t R = map.values.size(0), C = map.values.size(1);
  const std::int64_t row_range = map.map.row_range ? map.map.row_range->end : R;
  const std::int64_t column_range = map.map.column_range ? map.map.column_range->end : C;
  std::int64_t rows = merge_size(R, row_range, 60), of_columns = merge_size(C, column_range, columns);
  // Square ones keep the diagonal of a square map a diagonal.
  if (R == C && row_range == column_range) rows = of_columns = merge_size(R, row_range, std::min(60, columns));
  if (rows <= 1 && of_columns <= 1) return map;

  const std::vector<double> seeing = seeing_queries(selection, layer, *selection.head, R, row_range);
  HeadMap merged{Tensor({(R + rows - 1) / rows, (C + of_columns - 1) / of_columns}, DType::f64), map.map};
  const Tensor from = map.values.view().to(DType::f64);
  std::vector<double> all(static_cast<std::size_t>(merged.values.size(0)));
  for (std::int64_t r = 0; r < R; ++r) {
    const double queries = seeing[static_cast<std::size_t>(r)];
    all[static_cast<std::size_t>(r / rows)] += queries;
    for (std::int64_t c = 0; c < C; ++c)
      merged.values.data<double>()[r / rows * merged.values.size(1) + c / of_columns] +=
          queries * from.data<double>()[r * C + c];
  }
  for (std::int64_t n = 0; n < merged.values.count(); ++n) {
    const double queries = all[static_cast<std::size_t>(n / merged.values.size(1))];
    if (queries > 0) merged.values.data<double>()[n] /= queries;
  }
  merged.map.values = merged.values;
  // Up to the end of the last block, were it full.
  const auto range = [](std::int64_t merged_blocks, std::int64_t size, std::int64_t blocks, std::int64_t all_indices) {
    return Range{0, blocks % size == 0 ? all_indices : merged_blocks * size * (all_indices / blocks)};
  };
  merged.map.row_range = range(merged.values.size(0), rows, R, row_range);
  merged.map.column_range = range(merged.values.size(1), of_columns, C, column_range);
  merged.map.row_labels.clear(), merged.map.column_labels.clear();
  merged.map.reduction = reduction;
  merged.map.visible = visible_in(recording.visible_keys(layer), merged.map);
  return merged;
}

HeadStrip head_strip(const Selection& selection, std::string_view what, PictureScale scale) {
  const Recording& recording = selection.recording;
  const std::int64_t layer = *selection.layer;
  const bool of_queries = what == "entropy";
  const auto tokens = item_of(of_queries ? recording.query_tokens(layer) : recording.key_tokens(layer), selection.item);
  if (tokens.empty())
    throw UsageError(fmt::format("--strip: the recording does not say the tokens of the {} of layer {}",
                                 of_queries ? "queries" : "keys",
                                 recording.layers()[static_cast<std::size_t>(layer)].name));
  HeadStrip made;
  const std::int64_t head = recording.head(layer, *selection.head);
  made.values = recording.numbers(layer, what).view().select(0, selection.item).select(0, head).clone();
  made.strip.tokens = tokens;
  made.strip.values = made.values;
  made.strip.name = what == "entropy" ? "entropy (nats)" : std::string(what);
  made.strip.scale = scale;
  return made;
}

AllMaps head_grid(const Selection& selection, PictureScale scale) {
  const Recording& recording = selection.recording;
  AllMaps all;
  for (std::int64_t n = 0; n < std::ssize(recording.layers()); ++n) {
    const RecordedLayer& x = recording.layers()[static_cast<std::size_t>(n)];
    if (x.heads != recording.layers()[0].heads)
      throw UsageError(
          fmt::format("-o: layers {} and {} have different heads, so there is no grid of all: choose one "
                      "with --layer",
                      recording.layers()[0].name, x.name));
    std::ranges::move(layer_maps(selection, n, scale), std::back_inserter(all.maps));
    all.grid.row_labels.push_back(x.name);
  }
  if (all.maps.empty()) throw UsageError("-o: the recording has no layers to draw");
  for (const std::int64_t head : recording.layers()[0].heads) all.grid.column_labels.push_back(fmt::format("{}", head));
  for (const HeadMap& map : all.maps) all.grid.maps.push_back(map.map);
  all.grid.columns = std::ssize(recording.layers()[0].heads);
  all.grid.title = recording.model;
  return all;
}

}  // namespace attend::cli
