#include "analysis/edge_graph.h"

#include <algorithm>

#include "analysis/held_norm.h"
#include "attend/analysis.h"
#include "core/message.h"
#include "layers/rows.h"

namespace attend::inline v1 {

std::string name_of(const CircuitNode& node) {
  using Kind = CircuitNode::Kind;
  switch (node.kind) {
    case Kind::embedding:
      return "embedding";
    case Kind::output:
      return "output";
    case Kind::mlp:
      return fmt::format("mlp {}", node.layer);
    case Kind::head:
      return fmt::format("{}.{}", node.layer, node.head);
    case Kind::query:
    case Kind::key:
    case Kind::value:
      break;
  }
  const char* of = node.kind == Kind::query ? "q" : node.kind == Kind::key ? "k" : "v";
  return fmt::format("{}.{} {}", node.layer, node.head, of);
}

CircuitNode node_named(std::string_view name) {
  using Kind = CircuitNode::Kind;
  if (name == "embedding") return {.kind = Kind::embedding};
  if (name == "output") return {.kind = Kind::output};
  const auto refuse = [&] {
    fail(ErrorCode::bad_value, "node_named",
         "'{}' names no node, expected 'embedding', '3.2', 'mlp 3', '3.2 q', '3.0 k', '3.0 v' or 'output'", name);
  };
  if (name.starts_with("mlp ")) {
    std::int64_t layer = 0;
    const std::string_view digits = name.substr(4);
    if (digits.empty() || digits.size() > 6 || digits.find_first_not_of("0123456789") != std::string_view::npos)
      refuse();
    for (const char digit : digits) layer = layer * 10 + (digit - '0');
    return {.kind = Kind::mlp, .layer = layer};
  }
  CircuitNode node{.kind = Kind::head};
  if (const std::size_t space = name.find(' '); space != std::string_view::npos) {
    constexpr std::pair<std::string_view, Kind> kinds[] = {{"q", Kind::query}, {"k", Kind::key}, {"v", Kind::value}};
    const auto* of = std::ranges::find(kinds, name.substr(space + 1), &std::pair<std::string_view, Kind>::first);
    if (of == std::end(kinds)) refuse();
    node.kind = of->second, name = name.substr(0, space);
  }
  const NamedHead head = head_named(name);
  if (head.attention && *head.attention != AttentionKind::self) refuse();
  node.layer = head.head.first, node.head = head.head.second;
  return node;
}

namespace analysis {

std::int64_t sources_before(const std::vector<CircuitNode>& sources, const CircuitNode& reader, bool parallel) {
  using Kind = CircuitNode::Kind;
  return std::ranges::count_if(sources, [&](const CircuitNode& writer) {
    const bool same = reader.kind == Kind::mlp && writer.kind == Kind::head && !parallel;
    return reader.kind == Kind::output || writer.layer < reader.layer || (same && writer.layer == reader.layer);
  });
}

EdgeGraph::EdgeGraph(std::string_view function, const Model& model)
    : function_(function), parts_(ModelAccess::parts(model)) {
  models::output_of(parts_, function);
  const ModelInfo& info = parts_.info;
  models::check_exact(info, function);
  if (info.encoder_decoder())
    fail(ErrorCode::bad_value, function, "edges need a decoder, and the model is an encoder-decoder");
  for (std::int64_t n = 0; n < info.layers; ++n) {
    layers_.push_back(models::parts_of_layer(parts_, static_cast<std::size_t>(n)));
    if (layers_.back().norms_after_sums)
      fail(ErrorCode::bad_value, function,
           "the model's norms come after its sums (post-norm), so its stream is not the sum of what its layers write");
  }
  sources_.push_back({.kind = Kind::embedding});
  for (std::int64_t n = 0; n < info.layers; ++n) {
    for (std::int64_t h = 0; h < info.heads; ++h) sources_.push_back({.kind = Kind::head, .layer = n, .head = h});
    sources_.push_back({.kind = Kind::mlp, .layer = n});
    for (const Kind kind : {Kind::query, Kind::key, Kind::value})
      for (std::int64_t h = 0; h < heads(kind); ++h) receivers_.push_back({.kind = kind, .layer = n, .head = h});
    receivers_.push_back({.kind = Kind::mlp, .layer = n});
  }
  receivers_.push_back({.kind = Kind::output});
}

std::int64_t EdgeGraph::find(const std::vector<CircuitNode>& nodes, const CircuitNode& node,
                             std::string_view kind) const {
  CircuitNode wanted = node;
  if (wanted.layer < 0 && wanted.kind != Kind::embedding && wanted.kind != Kind::output) wanted.layer += layers();
  const auto found = std::ranges::find(nodes, wanted);
  if (found == nodes.end())
    fail(ErrorCode::bad_value, function_,
         "'{}' is not a {} of the model, which has {} layers of {} heads and {} of keys", name_of(node), kind, layers(),
         heads(), heads(Kind::key));
  return found - nodes.begin();
}

std::int64_t EdgeGraph::source(const CircuitNode& node) const {
  return find(sources_, node, "writer");
}

std::int64_t EdgeGraph::receiver(const CircuitNode& node) const {
  return find(receivers_, node, "reader");
}

std::vector<std::int64_t> EdgeGraph::reads_by(std::int64_t source) const {
  const CircuitNode& writer = sources_[static_cast<std::size_t>(source)];
  if (writer.kind == Kind::embedding) return {};
  if (writer.kind == Kind::mlp) return {receiver(writer)};
  const std::int64_t shared = writer.head / (heads() / heads(Kind::key));
  return {receiver({.kind = Kind::query, .layer = writer.layer, .head = writer.head}),
          receiver({.kind = Kind::key, .layer = writer.layer, .head = shared}),
          receiver({.kind = Kind::value, .layer = writer.layer, .head = shared})};
}

Tensor EdgeGraph::written(std::int64_t layer, const View& z) const {
  const models::LayerParts& of = this->layer(layer);
  const Linear& output = *of.self.output;
  const std::int64_t H = heads(), N = z.size(0), E = output.out_size(), D = z.size(1) / H;
  std::optional<HeldNorm> norm;
  if (of.attention_writes_by) norm.emplace(*of.attention_writes_by, converted(output.forward(z), DType::f32));
  const Tensor rows = z.to(DType::f32), weight = output.weight_rows(0, E);
  Tensor all = Tensor::uninitialized({H, N, E});
  Tensor bias;  // of a head its share, which a norm divides differently in each text
  if (norm && output.bias()) {
    bias = output.bias()->clone();
    for (std::int64_t e = 0; e < E; ++e) bias.data<float>()[e] /= static_cast<float>(H);
  }
  const std::optional<View> share = bias.count() > 0 ? std::optional(bias.view()) : std::nullopt;
  for (std::int64_t h = 0; h < H; ++h) {
    const Tensor columns = weight.view().slice(1, h * D, (h + 1) * D).clone();
    Tensor part = Linear::borrow(columns, share).forward(rows.view().slice(1, h * D, (h + 1) * D));
    if (norm) norm->apply(part);
    all.view().select(0, h).copy_from(part);
  }
  return all;
}

const models::HeadRows& EdgeGraph::rows(const CircuitNode& node) const {
  const models::LayerParts::Attention& of = layer(node.layer).self;
  return node.kind == Kind::query ? of.q : node.kind == Kind::key ? of.k : of.v;
}

Tensor EdgeGraph::weight(const CircuitNode& node) const {
  const models::HeadRows& of = rows(node);
  const std::int64_t D = parts_.info.head_size, first = of.first + node.head * (of.step > 0 ? of.step : D);
  return of.of->weight_rows(first, first + D);
}

Tensor EdgeGraph::read(const std::optional<models::Norm>& norm, const Tensor& x) const {
  if (!norm) return converted(x, parts_.info.dtype);
  return std::visit([&](const auto* of) { return of->forward(x, parts_.info.dtype); }, *norm);
}

Tensor EdgeGraph::projected(const CircuitNode& node, const Tensor& x) const {
  const models::HeadRows& of = rows(node);
  const std::int64_t D = parts_.info.head_size, first = of.first + node.head * (of.step > 0 ? of.step : D);
  const Tensor weight = of.of->weight_rows(first, first + D);
  const std::optional<View> bias =
      of.of->bias() ? std::optional(of.of->bias()->view().slice(0, first, first + D)) : std::nullopt;
  return Linear::borrow(weight, bias).forward(read(layer(node.layer).self.reads_by, x));
}

}  // namespace analysis

}  // namespace attend::inline v1
