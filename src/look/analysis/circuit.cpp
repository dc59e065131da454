// A circuit as a picture, as a graph for Graphviz and as CSV.
#include <algorithm>
#include <cmath>
#include <map>

#include "attend/circuits.h"
#include "core/message.h"
#include "look/analysis/shared.h"

namespace attend::inline v1 {

namespace {

using Kind = CircuitNode::Kind;

// The nodes and lines of a picture, as edges come.
class Drawing {
 public:
  explicit Drawing(const Edges& edges) : edges_(edges), group_(std::max<std::int64_t>(1, edges.group)) {}

  const CircuitNode& source(const CircuitEdge& edge) const { return node(edges_.sources, edge.source); }
  const CircuitNode& receiver(const CircuitEdge& edge) const { return node(edges_.receivers, edge.receiver); }
  // What stands for a reader: the head itself, but for keys and values that several share.
  CircuitNode reader(const CircuitEdge& edge) const {
    CircuitNode of = receiver(edge);
    const bool shared = group_ > 1 && (of.kind == Kind::key || of.kind == Kind::value);
    if (of.kind >= Kind::query && of.kind <= Kind::value && !shared) of.kind = Kind::head;
    return of;
  }
  // Whether what the node writes is read.
  bool leads_on(const CircuitNode& of) const {
    if (of.kind == Kind::output || places_.contains(name_of(of))) return true;
    for (std::int64_t h = of.head * group_; is_shared(of) && h < (of.head + 1) * group_; ++h)
      if (places_.contains(name_of({.kind = Kind::head, .layer = of.layer, .head = h}))) return true;
    return false;
  }

  // "23.4 to 29.0 v"
  std::string name(const CircuitEdge& edge) const {
    return fmt::format("{} to {}", name_of(source(edge)), name_of(receiver(edge)));
  }

  void add(const CircuitEdge& edge) {
    graph.from.push_back(place(source(edge)));
    graph.to.push_back(place(reader(edge)));
    graph.values.push_back(edge.score);
  }
  // Keys and values to the heads that share them.
  void join() {
    for (const CircuitNode& keys : shared_)
      for (std::int64_t h = keys.head * group_; h < (keys.head + 1) * group_; ++h) {
        const CircuitNode head{.kind = Kind::head, .layer = keys.layer, .head = h};
        if (!places_.contains(name_of(head))) continue;
        graph.from.push_back(place(keys)), graph.to.push_back(place(head)), graph.values.push_back(0);
      }
  }

  LayeredGraph graph;

 private:
  static const CircuitNode& node(const std::vector<CircuitNode>& nodes, std::int64_t place) {
    if (place < 0 || place >= std::ssize(nodes))
      fail(ErrorCode::bad_value, "Circuit", "an edge is of node {}, and there are {}", place, nodes.size());
    return nodes[static_cast<std::size_t>(place)];
  }
  static bool is_shared(const CircuitNode& of) { return of.kind == Kind::key || of.kind == Kind::value; }

  // Each layer has a row for keys and values, one for heads, and one for its MLP.
  std::int64_t place(const CircuitNode& of) {
    const auto [found, fresh] = places_.try_emplace(name_of(of), std::ssize(graph.names));
    if (fresh) {
      const std::int64_t part = is_shared(of) ? 0 : of.kind == Kind::mlp ? 2 : 1;
      graph.names.push_back(found->first);
      graph.rows.push_back(of.kind == Kind::output ? std::int64_t{1} << 40 : 3 * of.layer + part);
      if (is_shared(of)) shared_.push_back(of);
    }
    return found->second;
  }

  const Edges& edges_;
  std::int64_t group_;
  std::map<std::string, std::int64_t> places_;
  std::vector<CircuitNode> shared_;
};

}  // namespace

Picture circuit_picture(const Circuit& x, const Edges& edges, const AnalysisOf& of, std::int64_t most) {
  if (most < 1) fail(ErrorCode::bad_value, "circuit_picture", "most is {}, expected at least 1", most);
  if (x.edges.empty()) fail(ErrorCode::bad_value, "circuit_picture", "the circuit has no edges");
  Drawing drawing(edges);
  std::vector<CircuitEdge> rest = x.edges;
  std::ranges::stable_sort(rest, std::greater(), [](const CircuitEdge& edge) { return std::abs(edge.score); });
  while (std::ssize(drawing.graph.values) < most) {
    const auto next =
        std::ranges::find_if(rest, [&](const CircuitEdge& edge) { return drawing.leads_on(drawing.reader(edge)); });
    if (next == rest.end()) break;
    drawing.add(*next);
    rest.erase(next);
  }
  const std::size_t drawn = drawing.graph.values.size();
  if (drawn == 0) fail(ErrorCode::bad_value, "circuit_picture", "no edge of the circuit leads to the output");
  drawing.join();
  Picture picture;
  LayeredGraph& graph = picture.drawing.emplace<LayeredGraph>(std::move(drawing.graph));
  std::string what = "a circuit";
  if (edges.pairs.size() == 1) what += " for " + answer_of(of, edges.pairs[0].token, edges.pairs[0].against);
  if (edges.pairs.size() > 1) what += fmt::format(" for {} pairs of texts", edges.pairs.size());
  graph.title = titled(of, what);
  graph.caption = fmt::format("{} edges keep {:.0f} % of the answer. ", x.edges.size(), 100 * x.faithfulness);
  if (drawn < x.edges.size()) graph.caption += fmt::format("Drawn: the {} strongest that lead to the output. ", drawn);
  graph.caption += "Brown: towards the clean answer; blue: against it; the wider, the more.";
  return picture;
}

std::string circuit_dot(const Circuit& x, const Edges& edges) {
  Drawing drawing(edges);
  double largest = 0;
  for (const CircuitEdge& edge : x.edges) drawing.add(edge), largest = std::max(largest, std::abs(edge.score));
  drawing.join();
  const LayeredGraph& graph = drawing.graph;
  std::string text = fmt::format(
      "digraph circuit {{\n  rankdir=BT;\n  label=\"{} edges keep {:.1f} % of the answer\";\n  node [shape=box, "
      "fontname=\"sans-serif\"];\n",
      x.edges.size(), 100 * x.faithfulness);
  std::map<std::int64_t, std::string> rows;
  for (std::size_t n = 0; n < graph.names.size(); ++n) rows[graph.rows[n]] += fmt::format(" \"{}\";", graph.names[n]);
  for (const auto& [row, names] : rows) text += fmt::format("  {{ rank=same;{} }}\n", names);
  for (std::size_t n = 0; n < graph.values.size(); ++n) {
    const auto name = [&](std::int64_t of) { return graph.names[static_cast<std::size_t>(of)]; };
    text += fmt::format("  \"{}\" -> \"{}\" ", name(graph.from[n]), name(graph.to[n]));
    if (n >= x.edges.size()) {
      text += "[style=dotted, arrowhead=none];\n";
      continue;
    }
    const CircuitEdge& edge = x.edges[n];
    text += fmt::format("[penwidth={:.2f}, color=\"{}\", tooltip=\"{}: {:+.4f}\"];\n",
                        largest == 0 ? 0.5 : 0.5 + 4 * std::abs(edge.score) / largest,
                        edge.score < 0 ? "#b3472b" : "#1f7a4d", drawing.name(edge), edge.score);
  }
  return text + "}\n";
}

std::string circuit_csv(const Circuit& x, const Edges& edges) {
  const Drawing drawing(edges);
  std::string text = "source,receiver,score\n";
  for (const CircuitEdge& edge : x.edges)
    text += fmt::format("{},{},{}\n", name_of(drawing.source(edge)), name_of(drawing.receiver(edge)), edge.score);
  return text;
}

}  // namespace attend::inline v1
