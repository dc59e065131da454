#include <algorithm>
#include <cmath>
#include <map>
#include <queue>
#include <set>
#include <utility>

#include "analysis/answer_pairs.h"
#include "analysis/answers.h"
#include "analysis/edge_graph.h"
#include "analysis/json.h"
#include "analysis/stream.h"
#include "attend/circuits.h"
#include "core/from_end.h"
#include "core/message.h"
#include "layers/rows.h"

namespace attend::inline v1 {

namespace {

using NodeKind = CircuitNode::Kind;

// ---- A pass in which readers see what some writers changed ----

// By receiver: which sources it sees as they are changed.
using Seen = std::map<std::int64_t, std::set<std::int64_t>>;

// What such a pass has in common: the corrupt text and another one side by side, of which the second is changed.
class ChangedPass : public models::Watcher {
 public:
  ChangedPass(const analysis::EdgeGraph& graph, const Seen& seen, std::int64_t length)
      : graph_(graph), seen_(seen), N_(length) {
    for (const auto& [receiver, sources] : seen) wanted_.insert(sources.begin(), sources.end());
  }

 protected:
  // Of a source by what it wrote in either text.
  void changed(std::int64_t source, const View& with, const View& without) {
    if (!wanted_.contains(source)) return;
    Tensor now = with.to(DType::f32);
    const Tensor before = without.to(DType::f32);
    for (std::int64_t n = 0; n < now.count(); ++n) now.data<float>()[n] -= before.data<float>()[n];
    changes_.insert_or_assign(source, std::move(now));
  }
  void changed_heads(std::int64_t layer, const View& now, const View& before) {
    const std::int64_t first = graph_.source({.kind = NodeKind::head, .layer = layer, .head = 0});
    const auto any = wanted_.lower_bound(first);
    if (any == wanted_.end() || *any >= first + graph_.heads()) return;
    const Tensor of_now = graph_.written(layer, now), of_before = graph_.written(layer, before);
    for (std::int64_t h = 0; h < graph_.heads(); ++h)
      changed(first + h, of_now.view().select(0, h), of_before.view().select(0, h));
  }
  // The stream x with what a receiver sees changed; false: it sees nothing.
  bool add_changes(std::int64_t receiver, Tensor& x) const {
    const auto sources = seen_.find(receiver);
    if (sources == seen_.end()) return false;
    for (const std::int64_t source : sources->second) add_to(x, changes_.at(source));
    return true;
  }
  // Queries, keys or values of those heads that see something.
  void project(NodeKind kind, std::int64_t layer, const MutableView& to) const {
    const std::int64_t D = to.size(1) / graph_.heads(kind);
    for (std::int64_t h = 0; h < graph_.heads(kind); ++h) {
      const CircuitNode node{.kind = kind, .layer = layer, .head = h};
      Tensor x = stream_.clone();
      if (add_changes(graph_.receiver(node), x)) to.slice(1, h * D, (h + 1) * D).copy_from(graph_.projected(node, x));
    }
  }
  void read_by_mlp(std::int64_t layer, const MutableView& to) const {
    Tensor x = stream_.clone();
    if (add_changes(graph_.receiver({.kind = NodeKind::mlp, .layer = layer}), x))
      to.copy_from(graph_.read(graph_.layer(layer).mlp_reads_by, x));
  }

  const analysis::EdgeGraph& graph_;
  const Seen& seen_;
  std::int64_t N_;
  std::set<std::int64_t> wanted_;           // the sources that are seen
  std::map<std::int64_t, Tensor> changes_;  // of each of them [N,E]
  Tensor stream_;                           // of the corrupt text, as the next reader has it

 public:
  // What the output reads where the stream after all layers is x [N,E].
  Tensor last(Tensor x) const {
    add_changes(graph_.receiver({.kind = NodeKind::output}), x);
    return x;
  }
};

std::optional<NodeKind> projection_at(ModelPlace place) {
  if (place == ModelPlace::q) return NodeKind::query;
  if (place == ModelPlace::k) return NodeKind::key;
  if (place == ModelPlace::v) return NodeKind::value;
  return {};
}

// Rows of the corrupt text, then of the clean one: the second's stream is the corrupt one's from the first layer on,
// and each reader sees what its writers compute in this very pass.
class CircuitPass : public ChangedPass {
 public:
  using ChangedPass::ChangedPass;

  void at(ModelPlace place, std::int64_t layer, const MutableView& values) override {
    const View corrupt = values.slice(0, 0, N_);
    const MutableView own = values.slice(0, N_, 2 * N_);
    if (const std::optional<NodeKind> kind = projection_at(place)) return project(*kind, layer, own);
    switch (place) {
      case ModelPlace::residual:
        if (layer == 0) changed(0, own, corrupt), own.copy_from(corrupt);
        [[fallthrough]];
      case ModelPlace::residual_mid:
        stream_ = corrupt.to(DType::f32);
        break;
      case ModelPlace::z:
        changed_heads(layer, own, corrupt);
        break;
      case ModelPlace::attention:
        own.copy_from(corrupt);
        break;
      case ModelPlace::mlp_input:
        read_by_mlp(layer, own);
        break;
      case ModelPlace::mlp:
        changed(graph_.source({.kind = NodeKind::mlp, .layer = layer}), own, corrupt);
        own.copy_from(corrupt);
        break;
      default:
        break;
    }
  }
};

// Rows of the clean text, of the corrupt one, and of the corrupt one again, where receivers see what senders wrote in
// the clean one.
class PathPass : public ChangedPass {
 public:
  using ChangedPass::ChangedPass;

  void at(ModelPlace place, std::int64_t layer, const MutableView& values) override {
    const View clean = values.slice(0, 0, N_), corrupt = values.slice(0, N_, 2 * N_);
    const MutableView own = values.slice(0, 2 * N_, 3 * N_);
    if (const std::optional<NodeKind> kind = projection_at(place)) return project(*kind, layer, own);
    if (place == ModelPlace::residual && layer == 0) changed(0, clean, corrupt);
    if (place == ModelPlace::residual || place == ModelPlace::residual_mid) stream_ = corrupt.to(DType::f32);
    if (place == ModelPlace::mlp_input) read_by_mlp(layer, own);
    if (place == ModelPlace::mlp) changed(graph_.source({.kind = NodeKind::mlp, .layer = layer}), clean, corrupt);
    if (place == ModelPlace::z) changed_heads(layer, clean, corrupt);
  }
};

// The difference of logits that a pass over texts comes to, of the one whose stream the output reads.
double after(const Model& model, const analysis::EdgeGraph& graph, const char* function, ChangedPass& pass,
             std::span<const analysis::Text> texts, std::size_t stream, const AnswerPair& pair) {
  analysis::Stream running(model, texts);
  while (running.layer() < running.layers()) running.advance(&pass);
  const Range rows = running.rows(stream);
  Tensor x = pass.last(running.state().view().slice(0, rows.begin, rows.end).to(DType::f32));
  return analysis::difference(graph.parts(), function, analysis::finished(graph.parts(), std::move(x)), pair);
}

double answer(const Model& model, const char* function, const std::vector<std::int64_t>& ids, const AnswerPair& pair) {
  return analysis::difference(ModelAccess::parts(model), function, model.forward(ids), pair);
}

// ---- Which edges ----

// All edges in the order in which they are taken: the strongest first of those whose reader is in.
std::vector<CircuitEdge> greedy(const Edges& edges, const analysis::EdgeGraph& graph) {
  const auto weaker = [](const CircuitEdge& a, const CircuitEdge& b) {
    const double x = std::abs(a.score), y = std::abs(b.score);
    return x != y ? x < y : std::pair(a.source, a.receiver) > std::pair(b.source, b.receiver);
  };
  std::priority_queue<CircuitEdge, std::vector<CircuitEdge>, decltype(weaker)> open(weaker);
  std::vector<bool> in(edges.receivers.size());
  const std::int64_t R = std::ssize(edges.receivers);
  const auto enter = [&](std::int64_t r) {
    if (in[static_cast<std::size_t>(r)]) return;
    in[static_cast<std::size_t>(r)] = true;
    const std::int64_t before = edges.before(r);
    for (std::int64_t s = 0; s < before; ++s)
      open.push({s, r, static_cast<double>(edges.scores.data<float>()[s * R + r])});
  };
  enter(graph.receiver({.kind = NodeKind::output}));
  std::vector<CircuitEdge> order;
  while (!open.empty()) {
    order.push_back(open.top()), open.pop();
    std::ranges::for_each(graph.reads_by(order.back().source), enter);
  }
  return order;
}

// Without those whose writer sees nothing changed: it has the corrupt text's values then.
std::vector<CircuitEdge> reached(std::span<const CircuitEdge> taken, const Edges& edges,
                                 const analysis::EdgeGraph& graph) {
  std::vector<bool> changed(edges.sources.size()), sees(edges.receivers.size());
  changed[0] = true;
  std::vector<std::vector<std::int64_t>> to(edges.sources.size());
  for (const CircuitEdge& edge : taken) to[static_cast<std::size_t>(edge.source)].push_back(edge.receiver);
  // Sources stand in the order of the pass: all that a source reads of is behind it.
  for (std::size_t s = 0; s < edges.sources.size(); ++s) {
    if (std::ranges::any_of(graph.reads_by(static_cast<std::int64_t>(s)),
                            [&](std::int64_t r) { return sees[static_cast<std::size_t>(r)]; }))
      changed[s] = true;
    for (const std::int64_t r : to[s])
      if (changed[s]) sees[static_cast<std::size_t>(r)] = true;
  }
  std::vector<CircuitEdge> kept;
  std::ranges::copy_if(taken, std::back_inserter(kept),
                       [&](const CircuitEdge& edge) { return changed[static_cast<std::size_t>(edge.source)]; });
  return kept;
}

class Searching {
 public:
  Searching(const Model& model, const Edges& edges, const CircuitOptions& options)
      : model_(model), edges_(edges), options_(options), graph_(function, model) {
    if (edges.sources != graph_.sources() || edges.receivers != graph_.receivers())
      fail(ErrorCode::bad_value, function, "the edges belong to another model");
    const Dims shape{std::ssize(edges.sources), std::ssize(edges.receivers)};
    if (edges.scores.shape() != shape || edges.scores.dtype() != DType::f32)
      fail(ErrorCode::bad_shape, function, "scores are {} {}, expected f32 {}", edges.scores.dtype(),
           edges.scores.shape(), shape);
    analysis::check_pairs(function, edges.pairs, model.info());
    const int asked = (options.keep ? 1 : 0) + (options.faithfulness ? 1 : 0) + (options.edges.empty() ? 0 : 1);
    if (asked > 1) fail(ErrorCode::bad_value, function, "expected one of keep, faithfulness and edges");
    if (options.keep && *options.keep < 0) fail(ErrorCode::bad_value, function, "keep is {}, below 0", *options.keep);
    if (options.faithfulness && !(*options.faithfulness <= 1))
      fail(ErrorCode::bad_value, function, "faithfulness is {}, expected at most 1", *options.faithfulness);
    const double count = static_cast<double>(edges.pairs.size());
    for (const AnswerPair& pair : edges.pairs) {
      out_.clean += answer(model, function, pair.clean, pair) / count;
      out_.corrupt += answer(model, function, pair.corrupt, pair) / count;
    }
    if (out_.clean == out_.corrupt)
      fail(ErrorCode::bad_value, function, "both texts answer with a difference of {}: there is nothing to keep",
           out_.clean);
  }

  Circuit run() {
    if (!options_.edges.empty()) {
      check_given();
      measure({options_.edges.begin(), options_.edges.end()});
    } else {
      order_ = greedy(edges_, graph_);
      options_.faithfulness
          ? search(*options_.faithfulness)
          : measure(prefix(std::min(options_.keep.value_or(200), static_cast<std::int64_t>(order_.size()))));
    }
    if (options_.progress) options_.progress(1);
    return std::move(out_);
  }

 private:
  static constexpr const char* function = "circuit";

  void check_given() const {
    for (const CircuitEdge& edge : options_.edges)
      if (edge.receiver < 0 || edge.receiver >= std::ssize(edges_.receivers) || edge.source < 0 ||
          edge.source >= edges_.before(edge.receiver))
        fail(ErrorCode::bad_value, function, "there is no edge from source {} to receiver {}", edge.source,
             edge.receiver);
  }

  std::vector<CircuitEdge> prefix(std::int64_t count) const {
    return reached(std::span(order_).first(static_cast<std::size_t>(count)), edges_, graph_);
  }

  void measure(std::vector<CircuitEdge> kept) {
    Seen seen;
    for (const CircuitEdge& edge : kept) seen[edge.receiver].insert(edge.source);
    out_.value = 0;
    for (std::size_t n = 0; n < edges_.pairs.size(); ++n) {
      const AnswerPair& pair = edges_.pairs[n];
      analysis::of_text(n, edges_.pairs.size(), [&] {
        const analysis::Text texts[] = {{pair.corrupt}, {pair.clean}};
        CircuitPass pass(graph_, seen, std::ssize(pair.clean));
        out_.value += after(model_, graph_, function, pass, texts, 0, pair) / static_cast<double>(edges_.pairs.size());
      });
    }
    out_.edges = std::move(kept);
    out_.faithfulness = (out_.value - out_.corrupt) / (out_.clean - out_.corrupt);
    std::ranges::stable_sort(
        out_.edges, [](const CircuitEdge& a, const CircuitEdge& b) { return std::abs(a.score) > std::abs(b.score); });
  }

  bool keeps(std::int64_t count, double wanted) {
    measure(prefix(count));
    out_.tried.emplace_back(count, out_.faithfulness);
    // Of some 17 doublings and as many halvings.
    if (options_.progress) options_.progress(std::min(0.99, static_cast<double>(out_.tried.size()) / 34));
    return out_.faithfulness >= wanted;
  }

  // The least that keeps so much between a number that doesn't and its double that does; a number in between that
  // keeps less than a smaller one is not looked for.
  void search(double wanted) {
    std::int64_t few = 0, many = 1;
    const std::int64_t all = std::ssize(order_);
    while (many < all && !keeps(many, wanted)) few = many, many = std::min(all, 2 * many);
    while (many - few > 1) {
      const std::int64_t middle = few + (many - few) / 2;
      (keeps(middle, wanted) ? many : few) = middle;
    }
    if (out_.tried.empty() || out_.tried.back().first != many) keeps(many, wanted);
  }

  const Model& model_;
  const Edges& edges_;
  const CircuitOptions& options_;
  analysis::EdgeGraph graph_;
  std::vector<CircuitEdge> order_;
  Circuit out_;
};

}  // namespace

Circuit circuit(const Model& model, const Edges& edges, const CircuitOptions& options) {
  return Searching(model, edges, options).run();
}

PathPatching path_patch(const Model& model, const AnswerPair& pair, std::span<const CircuitNode> senders,
                        std::span<const CircuitNode> receivers) {
  constexpr const char* function = "path_patch";
  const analysis::EdgeGraph graph(function, model);
  analysis::check_pairs(function, {&pair, 1}, model.info());
  if (senders.empty() || receivers.empty())
    fail(ErrorCode::bad_value, function, "expected senders and receivers, and there are {} and {}", senders.size(),
         receivers.size());
  std::set<std::int64_t> from;
  for (const CircuitNode& sender : senders) from.insert(graph.source(sender));
  Seen seen;
  for (const CircuitNode& receiver : receivers) {
    const std::int64_t r = graph.receiver(receiver);
    std::set<std::int64_t> own(from.begin(), from.lower_bound(graph.before(r)));
    if (!own.empty()) seen.insert_or_assign(r, std::move(own));
  }
  if (seen.empty()) fail(ErrorCode::bad_value, function, "no sender stands before a receiver");
  PathPatching out{.clean = answer(model, function, pair.clean, pair),
                   .corrupt = answer(model, function, pair.corrupt, pair)};
  if (out.clean == out.corrupt)
    fail(ErrorCode::bad_value, function, "both texts answer with a difference of {}: there is nothing to bring back",
         out.clean);
  const analysis::Text texts[] = {{pair.clean}, {pair.corrupt}, {pair.corrupt}};
  PathPass pass(graph, seen, std::ssize(pair.clean));
  out.value = after(model, graph, function, pass, texts, 2, pair);
  out.recovered = (out.value - out.corrupt) / (out.clean - out.corrupt);
  return out;
}

std::string to_json(const Circuit& x, const Edges& edges) {
  Json all = Json::array(), tried = Json::array();
  for (const CircuitEdge& edge : x.edges)
    all.push_back({{"source", name_of(edges.sources.at(static_cast<std::size_t>(edge.source)))},
                   {"receiver", name_of(edges.receivers.at(static_cast<std::size_t>(edge.receiver)))},
                   {"score", edge.score}});
  for (const auto& [count, share] : x.tried) tried.push_back({count, share});
  return text_of({{"faithfulness", x.faithfulness},
                  {"value", x.value},
                  {"clean", x.clean},
                  {"corrupt", x.corrupt},
                  {"edges", std::move(all)},
                  {"tried", std::move(tried)}});
}

}  // namespace attend::inline v1
