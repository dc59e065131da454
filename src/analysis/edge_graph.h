// What writes into a decoder's stream and what reads it, in the order of the pass; and how each of them does it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "attend/circuits.h"
#include "models/layer_parts.h"
#include "models/model.h"

namespace attend::inline v1::analysis {

// How many of the sources, which stand in the order of the pass, stand before a reader. parallel: its MLP doesn't read
// what its own layer's heads write.
std::int64_t sources_before(const std::vector<CircuitNode>& sources, const CircuitNode& reader, bool parallel);

class EdgeGraph {
 public:
  using Kind = CircuitNode::Kind;

  // Throws bad_value for models whose stream is no sum of what is written, or which answer with no token.
  EdgeGraph(std::string_view function, const Model& model);

  const std::vector<CircuitNode>& sources() const { return sources_; }
  const std::vector<CircuitNode>& receivers() const { return receivers_; }
  // Throw bad_value for nodes that are not there.
  std::int64_t source(const CircuitNode& node) const;
  std::int64_t receiver(const CircuitNode& node) const;
  std::int64_t before(std::int64_t receiver) const {
    return sources_before(sources_, receivers_[static_cast<std::size_t>(receiver)], parts_.info.parallel);
  }

  // The receivers by which the writer reads: of a head its queries, and the keys and values that it shares.
  std::vector<std::int64_t> reads_by(std::int64_t source) const;

  std::int64_t layers() const { return parts_.info.layers; }
  std::int64_t heads() const { return parts_.info.heads; }
  std::int64_t heads(Kind kind) const { return kind == Kind::query ? heads() : parts_.info.kv_heads; }
  const models::LayerParts& layer(std::int64_t n) const { return layers_[static_cast<std::size_t>(n)]; }
  const Model::Parts& parts() const { return parts_; }

  // ---- How they do it ----

  // Of z [N,H*Dv]: what each head wrote, [H,N,E] f32, without the output's bias. Where it goes through a norm, that
  // divides as it does there, and each head has its share of the bias.
  Tensor written(std::int64_t layer, const View& z) const;
  // What a head's queries, keys or values read: the rows of the projection.
  Tensor weight(const CircuitNode& node) const;
  // Queries, keys or values [N,D] of a head where the stream is x [N,E].
  Tensor projected(const CircuitNode& node, const Tensor& x) const;
  // What an MLP reads where the stream is x, or what the projections do: [N,E].
  Tensor read(const std::optional<models::Norm>& norm, const Tensor& x) const;

 private:
  const models::HeadRows& rows(const CircuitNode& node) const;
  std::int64_t find(const std::vector<CircuitNode>& nodes, const CircuitNode& node, std::string_view kind) const;

  std::string_view function_;
  const Model::Parts& parts_;
  std::vector<models::LayerParts> layers_;
  std::vector<CircuitNode> sources_, receivers_;
};

}  // namespace attend::inline v1::analysis
