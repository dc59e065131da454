// Where a head looks, in words.
#include <algorithm>
#include <cctype>
#include <cmath>

#include "look/maps.h"

namespace attend::inline v1 {

namespace {

std::optional<std::string> token_of(const std::vector<std::string>& tokens, std::int64_t place) {
  return tokens.empty() ? std::nullopt : std::optional(tokens[static_cast<std::size_t>(place)]);
}

// Letters or digits, whatever the script: marks are where heads look that have nothing to say.
bool is_word(std::string_view token) {
  return !is_added(token) && std::ranges::any_of(token, [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x80 || std::isalnum(byte) != 0;
  });
}

std::vector<bool> words_of(const std::vector<std::string>& tokens) {
  std::vector<bool> words;
  words.reserve(tokens.size());
  for (const std::string& token : tokens) words.push_back(is_word(token));
  return words;
}

// What the links of a layer's heads are made of: read once.
struct LayerLinks {
  LayerLinks(const Recording& recording, std::int64_t number, std::int64_t item, WeighedBy by)
      : layer(recording.at(number)),
        within(layer.kind == "self"),
        causal(within && std::ranges::all_of(layer.calls, [](const RecordedCall& x) { return x.window.right == 0; })),
        queries(words_of(item_of(recording.query_tokens(number), item))),
        keys(words_of(item_of(recording.key_tokens(number), item))) {
    if (queries.empty() || keys.empty()) return;
    top_keys = recording.numbers(number, name_of(by, "top_keys")).view().select(0, item).clone();
    top_weights = recording.numbers(number, name_of(by, "top_weights")).view().select(0, item).to(DType::f64);
    means = row_means(recording, number, item, by);
  }

  // Of a head's query, whether it is a word or not.
  std::optional<Link> from(std::int64_t query, std::int64_t place, const HeadScores& scores) const {
    if (queries.empty() || keys.empty()) return std::nullopt;
    const bool sink = scores.has_label("sink");
    const auto tells = [&](std::int64_t key) {
      return key >= 0 && keys[static_cast<std::size_t>(key)] && !(within && std::abs(query - key) <= 1) &&
             !(sink && key == scores.sink_key) && !(causal && key == 0);
    };
    const std::int64_t top = top_keys.size(2), row = (place * layer.queries + query) * top;
    const std::int64_t* all = top_keys.data<std::int64_t>() + row;
    const std::int64_t* first = std::find_if(all, all + top, tells);
    if (first == all + top) return std::nullopt;
    return Link{query, *first,
                top_weights.data<double>()[row + (first - all)] / means[static_cast<std::size_t>(place)]};
  }

  std::vector<Link> of(std::int64_t place, const HeadScores& scores) const {
    std::vector<Link> links;
    for (std::int64_t i = 0; i < std::ssize(queries); ++i) {
      if (!queries[static_cast<std::size_t>(i)]) continue;
      if (const std::optional<Link> link = from(i, place, scores)) links.push_back(*link);
    }
    std::ranges::stable_sort(links, std::greater(), &Link::weight);
    return links;
  }

  const RecordedLayer& layer;
  bool within, causal;              // one text, a decoder's
  std::vector<bool> queries, keys;  // which are words
  Tensor top_keys, top_weights;     // [H,Tq,top]
  std::vector<double> means;        // [H] of rows
};

// The mean of the strongest links: three, and of a long text a quarter of them, since any head has three strong ones
// there.
double strength(const TellingHead& x) {
  const std::size_t strongest = std::max<std::size_t>(3, x.links.size() / 4);
  double sum = 0;
  for (std::size_t n = 0; n < std::min(strongest, x.links.size()); ++n) sum += x.links[n].weight;
  return sum / static_cast<double>(strongest);
}

}  // namespace

bool is_added(std::string_view token) {
  return token.size() > 2 &&
         ((token.front() == '[' && token.back() == ']') || (token.front() == '<' && token.back() == '>'));
}

QueryRow query_row(const Recording& recording, std::int64_t layer, std::int64_t head, std::int64_t query,
                   std::int64_t item, WeighedBy by) {
  check_item(recording, layer, item);
  const RecordedLayer& x = recording.at(layer);
  part_of("queries", Range{query, query + 1}, x, x.queries);
  const auto row = [&](std::string_view name) {
    const Tensor all = recording.numbers(layer, name);
    const View own = all.view().select(0, item).select(0, recording.head(layer, head)).select(0, query);
    return own.to(own.dtype() == DType::i64 ? DType::i64 : DType::f64);
  };
  QueryRow found{.query = query, .token = token_of(item_of(recording.query_tokens(layer), item), query)};
  found.entropy = *row("entropy").data<double>();
  if (x.has_distance) found.distance = *row("distance").data<double>();
  if (x.has_sinks) found.sink_weight = *row("sink_weights").data<double>();
  const Tensor keys = row(name_of(by, "top_keys")), weights = row(name_of(by, "top_weights"));
  const auto place = static_cast<std::size_t>(recording.head(layer, head));
  const double mean = row_means(recording, layer, item, by)[place];
  const std::vector<std::string> tokens = item_of(recording.key_tokens(layer), item);
  for (std::int64_t n = 0; n < keys.count(); ++n) {
    const std::int64_t key = keys.data<std::int64_t>()[n];
    if (key >= 0) found.top.push_back({key, token_of(tokens, key), weights.data<double>()[n] / mean});
  }
  return found;
}

std::vector<TellingHead> telling_heads(const Recording& recording, const std::vector<RecordedHead>& heads,
                                       std::size_t most) {
  std::vector<TellingHead> telling;
  std::optional<LayerLinks> of_layer;
  for (std::size_t n = 0; n < heads.size(); ++n) {
    const auto& [layer, scores, by] = heads[n];
    if (n == 0 || layer != heads[n - 1].layer) of_layer.emplace(recording, layer, scores.batch, by);
    std::vector<Link> links = of_layer->of(recording.head(layer, scores.head), scores);
    if (!links.empty()) telling.push_back({heads[n], std::move(links)});
  }
  std::ranges::stable_sort(telling, std::greater(), strength);
  if (telling.size() > most) telling.resize(most);
  return telling;
}

std::vector<std::vector<HeadLink>> query_links(const Recording& recording, const std::vector<RecordedHead>& heads,
                                               std::size_t most) {
  std::vector<std::vector<HeadLink>> all;
  std::optional<LayerLinks> of_layer;
  for (std::size_t n = 0; n < heads.size(); ++n) {
    const auto& [layer, scores, by] = heads[n];
    if (n == 0 || layer != heads[n - 1].layer) of_layer.emplace(recording, layer, scores.batch, by);
    if (!of_layer->within) continue;
    const std::int64_t queries = of_layer->layer.queries, place = recording.head(layer, scores.head);
    all.resize(std::max(all.size(), static_cast<std::size_t>(queries)));
    for (std::int64_t query = 0; query < queries; ++query)
      if (const std::optional<Link> link = of_layer->from(query, place, scores))
        all[static_cast<std::size_t>(query)].push_back({layer, scores.head, *link});
  }
  for (std::vector<HeadLink>& links : all) {
    std::ranges::stable_sort(links, std::greater(), [](const HeadLink& x) { return x.link.weight; });
    if (links.size() > most) links.resize(most);
  }
  return all;
}

}  // namespace attend::inline v1
