// What the page asks of a recording: of the text that `run` recorded, or of a file.
#include <algorithm>
#include <limits>

#include "attend/look.h"
#include "page/engine/models.h"

namespace attend::page {

namespace {

const Recording& recording() {
  if (!state.recording) fail(ErrorCode::bad_value, function, "no text was run and recorded");
  return *state.recording;
}

WeighedBy take_by(Request& request) {
  std::string by = "weight";
  request.take("by", by);
  return weighed_by(by);
}

// [begin, end] of queries or keys.
std::optional<Range> take_range(Request& request, const char* name) {
  std::pair<std::int64_t, std::int64_t> range;
  if (!request.take(name, range)) return std::nullopt;
  return Range{range.first, range.second};
}

std::int64_t take_item(Request& request) {
  std::int64_t item = 0;
  request.take("item", item);
  return item;
}

LookOptions take_look(Request& request) {
  LookOptions options{.item = take_item(request), .by = take_by(request)};
  options.queries = take_range(request, "queries"), options.keys = take_range(request, "keys");
  std::pair<std::int64_t, std::int64_t> most;
  if (request.take("most", most)) options.most = MapSize{most.first, most.second};
  return options;
}

// Of one head [Tq,Tk], or a part of it.
void weights(Request& request) {
  const auto layer = request.need<std::int64_t>("layer"), head = request.need<std::int64_t>("head");
  const LookOptions options = take_look(request);
  request.end();
  answer.add("weights", recording().weights(layer, options.item, head, options.queries, options.keys, options.by));
}

// One head's map: in blocks where they are fewer than its pairs.
void map(Request& request) {
  const auto layer = request.need<std::int64_t>("layer"), head = request.need<std::int64_t>("head");
  const LookOptions options = take_look(request);
  request.end();
  const WeightMaps x = weight_maps(recording(), layer, head, options);
  answer.json = {
      {"queries", {x.queries.begin, x.queries.end}}, {"keys", {x.keys.begin, x.keys.end}}, {"reduction", x.reduction}};
  answer.add("map", x.values.view().select(0, 0).clone());
}

// Any of Recording::numbers(): a layer's maps, top keys, received weights, queries.
void numbers(Request& request) {
  const auto layer = request.need<std::int64_t>("layer");
  const auto name = request.need<std::string>("name");
  request.end();
  answer.add("numbers", recording().numbers(layer, name));
}

// How a layer's weights came about: what each of its calls was told.
void layer(Request& request) {
  const auto number = request.need<std::int64_t>("layer");
  request.end();
  const RecordedLayer& x = recording().at(number);
  answer.json = {{"name", x.name},           {"kind", x.kind},       {"heads", x.heads},
                 {"kv_heads", x.kv_heads},   {"queries", x.queries}, {"keys", x.keys},
                 {"head_size", x.head_size}, {"qk", x.has_qk},       {"key_sizes", x.has_key_sizes}};
  answer.json["calls"] = Json::array();
  for (const RecordedCall& call : x.calls)
    answer.json["calls"].push_back({{"queries", {call.queries.begin, call.queries.end}},
                                    {"scale", call.scale},
                                    {"numbers", call.numbers},
                                    {"tensors", call.tensors}});
}

// ---- One head, step by step ----

// Whether the softmax sees the scaled scores as they are.
bool same_numbers(const Tensor& a, const Tensor& b) {
  const Tensor x = a.view().to(DType::f64), y = b.view().to(DType::f64);
  return std::equal(x.data<double>(), x.data<double>() + x.count(), y.data<double>());
}

// Of a head's keys [Tk,Dv]; empty of a recording that was read, and of an encoder that a decoder reads.
Tensor values_of(const RecordedLayer& x, std::int64_t place) {
  if (state.model && state.values.empty())
    state.values = attend::run(*state.model, state.text, {.edits = state.edits, .values = true}).values;
  const auto found = state.values.find(x.name);
  if (found == state.values.end()) return {};
  const std::int64_t shared = std::ssize(x.heads) / x.kv_heads;
  return found->second.view().select(0, 0).select(0, place / shared).clone();
}

// What makes a head's weights, and what these make of the values: tensors by the names of docs/json.md's trace. Of some
// queries and keys alone the values are left out.
void steps(Request& request) {
  const auto layer = request.need<std::int64_t>("layer"), head = request.need<std::int64_t>("head");
  const std::int64_t item = take_item(request);
  StepsOptions part{.queries = take_range(request, "queries"), .keys = take_range(request, "keys"), .values = {}};
  request.end();
  Tensor values;
  if (!part.queries && !part.keys) values = values_of(recording().at(layer), recording().head(layer, head));
  if (values.count() > 0) part.values = values;
  const HeadSteps made = recording().steps(layer, item, head, part);
  const auto add = [](const char* name, const Tensor& tensor) { answer.add(name, tensor.view().to(DType::f32)); };
  add("queries", made.queries), add("keys", made.keys);
  add("scores", made.scores), add("scaled_scores", made.scaled_scores);
  if (!same_numbers(made.logits, made.scaled_scores)) add("logits", made.logits);
  add("weights", made.weights), add("lse", made.lse), add("entropy", made.entropy);
  if (made.context) add("context", *made.context), add("values", values);
}

// ---- All heads ----

// The heads whose links between words are strongest.
Json telling_json(const std::vector<RecordedHead>& heads) {
  constexpr std::size_t most = 8;
  Json list = Json::array();
  for (const TellingHead& each : telling_heads(recording(), heads, most)) {
    Json links = Json::array();
    for (const Link& link : each.links)
      links.push_back({{"query", link.query}, {"key", link.key}, {"weight", link.weight}});
    list.push_back({{"layer", each.head.layer}, {"head", each.head.scores.head}, {"links", std::move(links)}});
  }
  return list;
}

// Of each query, the heads that give most to another word.
Json looks_json(const std::vector<RecordedHead>& heads) {
  constexpr std::size_t most = 8;
  Json all = Json::array();
  for (const std::vector<HeadLink>& links : query_links(recording(), heads, most)) {
    Json& list = all.emplace_back(Json::array());
    for (const auto& [layer, head, link] : links)
      list.push_back({{"layer", layer}, {"head", head}, {"key", link.key}, {"weight", link.weight}});
  }
  return all;
}

// A text whose maps are shown pair by pair.
bool is_short() {
  return std::ranges::all_of(recording().layers(),
                             [](const RecordedLayer& x) { return std::max(x.queries, x.keys) <= 64; });
}

void view(Request& request) {
  const ViewOptions options = take_view(request);
  request.end();
  add_view(options);
}

// A file that attend wrote, in place of what was recorded.
void open_recording(Request& request) {
  const auto path = request.need<std::string>("path");
  const ViewOptions options = take_view(request);
  request.end();
  state.recording.reset();
  state.recording = Recording::load(path);
  add_view(options);
}

constexpr Asked all_asked[] = {{"recording", open_recording}, {"view", view},   {"weights", weights}, {"map", map},
                               {"numbers", numbers},          {"layer", layer}, {"steps", steps}};

}  // namespace

ViewOptions take_view(Request& request) {
  return {.by = take_by(request), .item = take_item(request)};
}

void add_view(const ViewOptions& options) {
  const std::vector<RecordedHead> heads = heads_of(recording(), options.item, {}, {}, options.by);
  answer.json.update(Json::parse(heads_json(recording(), options.item, heads)));  // docs/json.md
  answer.json["telling"] = telling_json(heads);
  const bool pairs = is_short();
  answer.json["looks"] = pairs ? looks_json(heads) : Json::array();
  const MapSize most = pairs ? MapSize{64, 64} : MapSize{32, 32};
  const LookOptions look{.item = options.item, .by = options.by, .most = most};
  for (std::int64_t layer = 0; layer < std::ssize(recording().layers()); ++layer)
    answer.add(std::to_string(layer), weight_maps(recording(), layer, {}, look).values);
}

std::span<const Asked> asked_of_recordings() {
  return all_asked;
}

}  // namespace attend::page
