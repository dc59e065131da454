// Which parts of a model an answer comes through: every edge between what writes into the stream and what reads it,
// estimated; the few edges that are enough, and how much of the answer they keep, measured; and given paths, exactly.
#pragma once

#ifdef ATTEND_WITHOUT_MODELS
#error "attend was built with ATTEND_MODELS=OFF: it has no circuits.h"
#endif

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attend/api.h"
#include "attend/models.h"
#include "attend/tensor.h"

namespace attend::inline v0 {

// What writes into the stream: the embedding, a head, an MLP; or reads it: the queries, keys and values of a head, an
// MLP, and at last the output.
struct ATTEND_API CircuitNode {
  enum class Kind : std::uint8_t { embedding, head, mlp, query, key, value, output };

  Kind kind = Kind::embedding;
  std::int64_t layer = -1, head = -1;  // -1: it is of none; of key and value a head of the keys, which several share

  friend bool operator==(const CircuitNode&, const CircuitNode&) = default;
};
// "embedding", "3.2", "mlp 3", "3.2 q", "3.0 k", "3.0 v", "output"; and back, or bad_value.
ATTEND_API std::string name_of(const CircuitNode& node);
ATTEND_API CircuitNode node_named(std::string_view name);

// A text that is answered with `token`, another of as many ids that is answered with `against`, and the row whose next
// token it is.
struct ATTEND_API AnswerPair {
  std::vector<std::int64_t> clean = {}, corrupt = {};
  std::int64_t token = 0, against = 0;
  std::int64_t position = -1;  // -1: the last
};

struct ATTEND_API EdgeOptions {
  enum class Method : std::uint8_t {
    eap,     // edge attribution patching (Syed et al. 2023, arXiv:2310.10348): two passes forward and one back
    eap_ig,  // the gradient's mean over `steps` texts between the two (Hanna et al. 2024, arXiv:2403.17806)
  };
  enum class At : std::uint8_t { corrupt, clean };

  Method method = Method::eap;
  At at = At::corrupt;  // eap: whose gradient it is
  std::int64_t steps = 5;
  std::function<void(double)> progress = {};  // told the share that is done, from 0 to 1; may throw
};

// How much the difference of the two tokens' logits would grow if the reader r saw along one edge what the writer a
// wrote in the clean text: (a of clean - a of corrupt) . gradient by what r reads, before its norm, summed over rows.
// Above 0 it is towards the clean answer. (The papers have the other sign, and the gradient of the clean text.)
struct ATTEND_API Edges {
  std::vector<CircuitNode> sources = {}, receivers = {};  // S and R, in the order of the pass
  Tensor scores;                                          // [S,R], means over the pairs; 0 where there is no edge
  double clean = 0, corrupt = 0;                          // the differences of logits, means over the pairs
  std::vector<AnswerPair> pairs = {};                     // as given

  // How many of the sources stand before a receiver: they are its edges.
  std::int64_t before(std::int64_t receiver) const;
  std::int64_t count() const;  // of all edges

  bool parallel = false;   // an MLP doesn't read what its own layer's heads write
  std::int64_t group = 1;  // so many heads share keys and values
};
// Of decoders whose stream is a sum: throws bad_value for encoders, encoder-decoders and post-norm models, for texts
// of different lengths, and for what Model::forward() refuses. Memory: S N E 4 bytes. Bits: the same for any threads.
ATTEND_API Edges edges(const Model& model, std::span<const AnswerPair> pairs, const EdgeOptions& options = {});

struct ATTEND_API CircuitEdge {
  std::int64_t source = 0, receiver = 0;  // of Edges
  double score = 0;
};

struct ATTEND_API CircuitOptions {
  // One of these. keep: so many edges, from the output on always the strongest whose reader is in already; those that
  // nothing reaches are dropped then. faithfulness: the least that keeps such a share of the answer, found by doubling
  // and halving. edges: these alone, as given.
  std::optional<std::int64_t> keep = {};
  std::optional<double> faithfulness = {};
  std::span<const CircuitEdge> edges = {};
  std::function<void(double)> progress = {};
};

// Edges, and what is left of the answer where all others carry the corrupt text's values: a pass in which each reader
// sees along these edges what the writer computes in this very pass (Wang et al. 2022, arXiv:2211.00593).
struct ATTEND_API Circuit {
  std::vector<CircuitEdge> edges = {};       // the strongest first
  double faithfulness = 0;                   // (value - corrupt) / (clean - corrupt); of all edges 1, of none 0
  double value = 0, clean = 0, corrupt = 0;  // the differences of logits, means over the pairs
  // Where a faithfulness was asked for: how many edges were tried, and what they keep.
  std::vector<std::pair<std::int64_t, double>> tried = {};
};
// Throws bad_value where `edges` are another model's, or both differences are the same.
ATTEND_API Circuit circuit(const Model& model, const Edges& edges, const CircuitOptions& options);
ATTEND_API std::string to_json(const Circuit& circuit, const Edges& edges);  // docs/json.md

// The difference of logits where `receivers` see what `senders` wrote in the clean text, along the edges between them,
// and all else goes on from there (Goldowsky-Dill et al. 2023, arXiv:2304.05969): an exact pass. A receiver takes what
// it would have if the senders alone had changed, whatever other receivers do; the output reads this pass's stream.
struct ATTEND_API PathPatching {
  double value = 0, clean = 0, corrupt = 0, recovered = 0;  // recovered: (value - corrupt) / (clean - corrupt)
};
ATTEND_API PathPatching path_patch(const Model& model, const AnswerPair& pair, std::span<const CircuitNode> senders,
                                   std::span<const CircuitNode> receivers);

}  // namespace attend::inline v0
