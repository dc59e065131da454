#include <algorithm>

#include "core/message.h"
#include "look/maps.h"

namespace attend::inline v1 {

namespace {

const HeadScores& scores_of(const std::vector<HeadScores>& scores, std::int64_t item, std::int64_t head) {
  return *std::ranges::find_if(scores, [&](const HeadScores& s) { return s.batch == item && s.head == head; });
}

// "a/model: 18.6"; what is unknown is left out.
std::string titled(const Recording& recording, const std::string& name) {
  return recording.model.empty() ? name : fmt::format("{}: {}", recording.model, name);
}

// "18.6: induction .69"
std::string with_labels(std::string name, const HeadScores& scores) {
  if (!scores.labels.empty()) name += ": " + scores.label_text();
  return name;
}

std::string title_of(const Recording& recording, std::int64_t layer, std::int64_t head, const LookOptions& options) {
  if (options.title) return *options.title;
  std::string name = titled(recording, head_name(recording.at(layer).name, head));
  if (options.by == WeighedBy::norm) name += " by norm";
  return with_labels(name, scores_of(recording.scores(layer, options.by), options.item, head));
}

// "“The capital of France is”, 5 tokens, f32.": what is known of the text, and what the layer computed in.
std::string caption_of(const Recording& recording, std::int64_t layer, const LookOptions& options) {
  const RecordedLayer& x = recording.at(layer);
  const std::int64_t item = options.item;
  const std::vector<std::string> queries = item_of(recording.query_tokens(layer), item);
  const std::vector<std::string> keys = item_of(recording.key_tokens(layer), item);
  std::string text;
  for (const auto* tokens : {&queries, &keys}) {
    if (tokens->empty() || (tokens == &keys && queries == keys)) continue;
    text += fmt::format("{}“{}”, {} tokens, ", text.empty() ? "" : "to ", caption_text(*tokens), tokens->size());
  }
  if (text.empty()) text = fmt::format("{} queries, {} keys, ", x.queries, x.keys);
  text += fmt::format("{}.", name_of(x.dtype));
  if (options.by == WeighedBy::weight) return text;
  return text + " By norm: weight times |W_O v|, 1 for what a query takes in the mean.";
}

// [T,...] of one head; by norm, as shares.
Tensor head_numbers(const Recording& recording, std::int64_t layer, std::int64_t head, std::string_view name,
                    const LookOptions& options) {
  const std::int64_t place = recording.head(layer, head);
  Tensor own =
      recording.numbers(layer, name_of(options.by, name)).view().select(0, options.item).select(0, place).clone();
  if (own.dtype() != DType::i64)
    divide(own, row_means(recording, layer, options.item, options.by)[static_cast<std::size_t>(place)]);
  return own;
}

std::vector<std::string> or_indices(std::vector<std::string> tokens, std::int64_t count) {
  if (tokens.empty())
    for (std::int64_t n = 0; n < count; ++n) tokens.push_back(fmt::format("{}", n));
  return tokens;
}

Picture picture_of(std::vector<HeadMap> maps, std::string title, std::string caption) {
  Picture picture;
  HeatMaps& drawn = picture.drawing.emplace<HeatMaps>();
  drawn.title = std::move(title);
  maps.front().map.caption = std::move(caption);
  for (HeadMap& map : maps) {
    drawn.maps.push_back(std::move(map.map));
    picture.numbers.push_back(std::move(map.values));
  }
  return picture;
}

}  // namespace

std::string caption_text(const std::vector<std::string>& tokens) {
  constexpr std::size_t most = 70;
  const bool spaced = std::ranges::any_of(tokens, [](const std::string& x) { return x.starts_with(' '); });
  std::string text;
  for (const std::string& token : tokens) {
    if (is_added(token)) continue;
    const bool part = token.starts_with("##");  // of a word
    text += (spaced || part || text.empty() ? "" : " ") + token.substr(part ? 2 : 0);
    if (text.size() > most) break;
  }
  text.erase(0, text.find_first_not_of(' '));
  if (text.size() <= most) return text;
  std::size_t end = most;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;  // a character is never cut
  return text.substr(0, end) + "…";
}

Picture head_picture(const Recording& recording, std::int64_t layer, std::int64_t head, const LookOptions& options) {
  std::vector<HeadMap> maps = maps_of(recording, layer, head, options);
  return picture_of(std::move(maps), title_of(recording, layer, head, options), caption_of(recording, layer, options));
}

Picture layer_picture(const Recording& recording, std::int64_t layer, const LookOptions& options) {
  std::vector<HeadMap> maps = maps_of(recording, layer, {}, options);
  const RecordedLayer& x = recording.at(layer);
  const std::vector<HeadScores> scores = recording.scores(layer, options.by);
  for (std::size_t n = 0; n < maps.size(); ++n)
    maps[n].map.title = with_labels(fmt::format("head {}", x.heads[n]), scores_of(scores, options.item, x.heads[n]));
  return picture_of(
      std::move(maps),
      options.title.value_or(titled(recording, options.by == WeighedBy::norm ? x.name + " by norm" : x.name)),
      caption_of(recording, layer, options));
}

Picture recording_picture(const Recording& recording, std::span<const std::int64_t> layers,
                          const LookOptions& options) {
  Picture picture;
  HeadGrid& grid = picture.drawing.emplace<HeadGrid>();
  grid.title = options.title.value_or(options.by == WeighedBy::norm ? titled(recording, "by norm") : recording.model);
  std::vector<std::int64_t> shown(layers.begin(), layers.end());
  for (std::int64_t n = 0; layers.empty() && n < std::ssize(recording.layers()); ++n) shown.push_back(n);
  if (shown.empty()) fail(ErrorCode::bad_value, "recording_picture", "there are no layers to draw");
  check_item(recording, shown.front(), options.item);
  const RecordedLayer& first = recording.at(shown.front());
  LookOptions thumbnails = options;
  const std::int64_t side = most_grid_cells(std::ssize(first.heads));
  if (!options.most) thumbnails.most = MapSize{side, side};
  grid.caption = caption_of(recording, shown.front(), options);
  for (const std::int64_t layer : shown) {
    for (HeadMap& map : maps_of(recording, layer, {}, thumbnails)) {
      grid.maps.push_back(std::move(map.map));
      picture.numbers.push_back(std::move(map.values));
    }
    const RecordedLayer& x = recording.at(layer);
    if (x.heads != first.heads)
      fail(ErrorCode::bad_value, "recording_picture",
           "layers {} and {} have different heads, so there is no grid of both", first.name, x.name);
    grid.row_labels.push_back(x.name);
  }
  for (const std::int64_t head : first.heads) grid.column_labels.push_back(fmt::format("{}", head));
  grid.columns = std::ssize(grid.column_labels);
  return picture;
}

Picture head_strip(const Recording& recording, std::int64_t layer, std::int64_t head, std::string_view values,
                   const LookOptions& options) {
  check_item(recording, layer, options.item);
  const bool of_queries = values == "entropy";
  if (!of_queries && values != "received" && values != "lift")
    fail(ErrorCode::bad_value, "head_strip", "values: expected received, lift or entropy, got '{}'", values);
  if (options.by == WeighedBy::norm && values != "received")
    fail(ErrorCode::bad_value, "head_strip", "values by norm: expected received, got '{}'", values);
  Picture picture;
  TokenStrip& strip = picture.drawing.emplace<TokenStrip>();
  picture.numbers.push_back(head_numbers(recording, layer, head, values, options));
  strip.values = picture.numbers.front();
  strip.tokens =
      or_indices(item_of(of_queries ? recording.query_tokens(layer) : recording.key_tokens(layer), options.item),
                 strip.values.count());
  strip.title = title_of(recording, layer, head, options);
  strip.name = of_queries ? "entropy (nats)" : std::string(values);
  if (options.by == WeighedBy::norm) strip.name += " by norm";
  strip.scale = options.scale;
  strip.caption = caption_of(recording, layer, options);
  return picture;
}

Picture head_links(const Recording& recording, std::int64_t layer, std::int64_t head, const LookOptions& options) {
  check_item(recording, layer, options.item);
  const RecordedLayer& x = recording.at(layer);
  const Range part = part_of("queries", options.queries, x, x.queries);
  Picture picture;
  TokenLinks& links = picture.drawing.emplace<TokenLinks>();
  for (const char* name : {"top_keys", "top_weights"})
    picture.numbers.push_back(
        head_numbers(recording, layer, head, name, options).view().slice(0, part.begin, part.end).clone());
  const std::vector<std::string> queries = item_of(recording.query_tokens(layer), options.item);
  if (!queries.empty()) links.queries.assign(queries.begin() + part.begin, queries.begin() + part.end);
  links.keys = item_of(recording.key_tokens(layer), options.item);
  links.first_query = part.begin;
  links.title = title_of(recording, layer, head, options);
  links.caption = caption_of(recording, layer, options);
  links.scale = options.scale;
  const std::vector<HeadScores> all = recording.scores(layer, options.by);
  if (const HeadScores& scores = scores_of(all, options.item, head); scores.has_label("sink")) {
    Tensor& keys = picture.numbers[0];
    std::replace(keys.data<std::int64_t>(), keys.data<std::int64_t>() + keys.count(), scores.sink_key,
                 std::int64_t{-1});
    links.caption += fmt::format(" Lines to the sink, key {}, are left out: it takes {:.0f} %.", scores.sink_key,
                                 100 * scores.sink.value_or(0));
  }
  links.top_keys = picture.numbers[0], links.top_weights = picture.numbers[1];
  return picture;
}

}  // namespace attend::inline v1
