// A circuit as JSON, CSV and a graph.
#include <algorithm>
#include <cmath>
#include <map>

#include "analysis/json.h"
#include "attend/circuits.h"
#include "core/message.h"

namespace attend::inline v0 {

namespace {

const CircuitNode& at(const std::vector<CircuitNode>& nodes, std::int64_t place) {
  if (place < 0 || place >= std::ssize(nodes))
    fail(ErrorCode::bad_value, "circuit", "an edge is of node {}, and there are {}", place, nodes.size());
  return nodes[static_cast<std::size_t>(place)];
}

using Kind = CircuitNode::Kind;

// A graph for Graphviz, line by line.
class Dot {
 public:
  Dot(const Circuit& circuit, const Edges& edges) : edges_(edges), group_(edges.group) {
    for (const CircuitEdge& edge : circuit.edges) largest_ = std::max(largest_, std::abs(edge.score));
    for (const CircuitEdge& edge : circuit.edges) add(edge);
    share_keys();
  }

  std::string text(const Circuit& circuit) const {
    std::string text = fmt::format(
        "digraph circuit {{\n  rankdir=BT;\n  label=\"{} edges keep {:.1f} % of the answer\";\n  node [shape=box, "
        "fontname=\"sans-serif\"];\n",
        circuit.edges.size(), 100 * circuit.faithfulness);
    for (const auto& [layer, names] : layers_) {
      text += "  { rank=same;";
      for (const std::string& name : names) text += fmt::format(" \"{}\";", name);
      text += " }\n";
    }
    return text + lines_ + "}\n";
  }

 private:
  void add(const CircuitEdge& edge) {
    const CircuitNode &source = at(edges_.sources, edge.source), &receiver = at(edges_.receivers, edge.receiver);
    const bool shared = group_ > 1 && (receiver.kind == Kind::key || receiver.kind == Kind::value);
    CircuitNode owner = receiver;
    if (receiver.kind >= Kind::query && receiver.kind <= Kind::value && !shared) owner.kind = Kind::head;
    enter(source), enter(owner);
    if (shared) keys_.push_back(receiver);
    lines_ += fmt::format("  \"{}\" -> \"{}\" [penwidth={:.2f}, color=\"{}\", tooltip=\"{} to {}: {:+.4f}\"];\n",
                          name_of(source), name_of(owner), 0.5 + 4 * std::abs(edge.score) / largest_,
                          edge.score < 0 ? "#b3472b" : "#1f7a4d", name_of(source), name_of(receiver), edge.score);
  }

  // Keys and values stand below the heads that share them.
  void share_keys() {
    for (std::size_t n = 0; n < keys_.size(); ++n) {
      if (std::find(keys_.begin(), keys_.begin() + static_cast<std::ptrdiff_t>(n), keys_[n]) !=
          keys_.begin() + static_cast<std::ptrdiff_t>(n))
        continue;
      for (std::int64_t h = keys_[n].head * group_; h < (keys_[n].head + 1) * group_; ++h) {
        const std::string head = name_of({.kind = Kind::head, .layer = keys_[n].layer, .head = h});
        if (std::ranges::find(layers_[rank(keys_[n].layer, true)], head) != layers_[rank(keys_[n].layer, true)].end())
          lines_ += fmt::format("  \"{}\" -> \"{}\" [style=dotted, arrowhead=none];\n", name_of(keys_[n]), head);
      }
    }
  }

  static std::int64_t rank(std::int64_t layer, bool head) { return 2 * layer + (head ? 1 : 0); }
  void enter(const CircuitNode& node) {
    const bool below = node.kind == Kind::key || node.kind == Kind::value;
    const std::int64_t layer = node.kind == Kind::output ? std::ssize(edges_.sources) : node.layer;
    std::vector<std::string>& own = layers_[rank(layer, !below)];
    if (std::ranges::find(own, name_of(node)) == own.end()) own.push_back(name_of(node));
  }

  const Edges& edges_;
  std::int64_t group_;
  double largest_ = 0;
  std::map<std::int64_t, std::vector<std::string>> layers_;  // the names of nodes that stand side by side
  std::vector<CircuitNode> keys_;                            // those that several heads share
  std::string lines_;
};

}  // namespace

std::string to_json(const Circuit& x, const Edges& edges) {
  Json all = Json::array(), tried = Json::array();
  for (const CircuitEdge& edge : x.edges)
    all.push_back({{"source", name_of(at(edges.sources, edge.source))},
                   {"receiver", name_of(at(edges.receivers, edge.receiver))},
                   {"score", edge.score}});
  for (const auto& [count, share] : x.tried) tried.push_back({count, share});
  return text_of({{"faithfulness", x.faithfulness},
                  {"value", x.value},
                  {"clean", x.clean},
                  {"corrupt", x.corrupt},
                  {"edges", std::move(all)},
                  {"tried", std::move(tried)}});
}

std::string circuit_csv(const Circuit& x, const Edges& edges) {
  std::string text = "source,receiver,score\n";
  for (const CircuitEdge& edge : x.edges)
    text += fmt::format("{},{},{}\n", name_of(at(edges.sources, edge.source)),
                        name_of(at(edges.receivers, edge.receiver)), edge.score);
  return text;
}

std::string circuit_dot(const Circuit& x, const Edges& edges) {
  return Dot(x, edges).text(x);
}

}  // namespace attend::inline v0
