// Which edges of a model an answer flows through: all edges between writers and readers of the residual stream,
// estimated; the few that suffice, measured; and given paths, exactly.
//
//     const attend::Edges found = attend::edges(model, pairs);
//     const attend::Circuit small = attend::circuit(model, found, {.faithfulness = 0.85});
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

namespace attend::inline v1 {

// A writer into the stream (embedding, head, MLP) or a reader of it (a head's queries, keys or values, an MLP, the
// output).
struct ATTEND_API CircuitNode {
  enum class Kind : std::uint8_t { embedding, head, mlp, query, key, value, output };

  Kind kind = Kind::embedding;
  std::int64_t layer = -1, head = -1;  // -1: none; for key and value a key head, which several heads share

  friend bool operator==(const CircuitNode&, const CircuitNode&) = default;
};
// "embedding", "3.2", "mlp 3", "3.2 q", "3.0 k", "3.0 v", "output". node_named() throws bad_value for others.
ATTEND_API std::string name_of(const CircuitNode& node);
ATTEND_API CircuitNode node_named(std::string_view name);

// A clean text answered with `token`, a corrupt one of equal length answered with `against`, and the row whose next
// token it is.
struct ATTEND_API AnswerPair {
  std::vector<std::int64_t> clean = {}, corrupt = {};
  std::int64_t token = 0, against = 0;
  std::int64_t position = -1;  // -1: the last
};

struct ATTEND_API EdgeOptions {
  enum class Method : std::uint8_t {
    eap,     // edge attribution patching (Syed et al. 2023, arXiv:2310.10348): two passes forward, one back
    eap_ig,  // mean gradient over `steps` texts between the two (Hanna et al. 2024, arXiv:2403.17806)
  };
  enum class At : std::uint8_t { corrupt, clean };

  Method method = Method::eap;
  At at = At::corrupt;  // eap: whose gradient
  std::int64_t steps = 5;
  std::function<void(double)> progress = {};  // called with the share done, 0 to 1; may throw
};

// Scores of all edges: how much the logit difference would grow if reader r saw what writer a wrote in the clean text.
// It is (clean a - corrupt a) . gradient at r's input before its norm, summed over rows. Positive is towards the clean
// answer. (The papers use the opposite sign and the clean text's gradient.)
struct ATTEND_API Edges {
  std::vector<CircuitNode> sources = {}, receivers = {};  // S and R, in the order of the pass
  Tensor scores;                                          // [S,R], means over pairs; 0 where there is no edge
  double clean = 0, corrupt = 0;                          // logit differences, means over pairs
  std::vector<AnswerPair> pairs = {};                     // as given

  // How many sources come before a receiver: its edges.
  std::int64_t before(std::int64_t receiver) const;
  std::int64_t count() const;  // all edges

  bool parallel = false;   // MLPs don't read their own layer's heads
  std::int64_t group = 1;  // heads that share keys and values
};
// Takes decoders whose stream is a sum. Throws bad_value for encoders, encoder-decoders and post-norm models, texts of
// different lengths, and what Model::forward() refuses. Memory: S N E 4 bytes. Bits: the same for any number of
// threads.
ATTEND_API Edges edges(const Model& model, std::span<const AnswerPair> pairs, const EdgeOptions& options = {});

struct ATTEND_API CircuitEdge {
  std::int64_t source = 0, receiver = 0;  // indices into Edges
  double score = 0;
};

struct ATTEND_API CircuitOptions {
  // Give one of these. keep: this many edges, chosen from the output on, always the strongest whose reader is already
  // in; edges that nothing reaches are then dropped. faithfulness: the fewest edges that keep this share of the answer,
  // found by doubling and halving. edges: exactly these.
  std::optional<std::int64_t> keep = {};
  std::optional<double> faithfulness = {};
  std::span<const CircuitEdge> edges = {};
  std::function<void(double)> progress = {};
};

// A set of edges, and what is left of the answer when all other edges carry the corrupt text's values. In that pass
// each reader sees along these edges what the writer computes in the same pass (Wang et al. 2022, arXiv:2211.00593).
struct ATTEND_API Circuit {
  std::vector<CircuitEdge> edges = {};       // strongest first
  double faithfulness = 0;                   // (value - corrupt) / (clean - corrupt): 1 with all edges, 0 with none
  double value = 0, clean = 0, corrupt = 0;  // logit differences, means over pairs
  // For a requested faithfulness: numbers of edges tried, and what they keep.
  std::vector<std::pair<std::int64_t, double>> tried = {};
};
// Throws bad_value if `edges` belong to another model, or clean and corrupt differences are equal.
ATTEND_API Circuit circuit(const Model& model, const Edges& edges, const CircuitOptions& options);
ATTEND_API std::string to_json(const Circuit& circuit, const Edges& edges);  // as in docs/json.md

// The logit difference when `receivers` see, along the edges from `senders`, what those wrote in the clean text
// (Goldowsky-Dill et al. 2023, arXiv:2304.05969): an exact pass. A receiver takes what it would have if only the
// senders had changed, whatever other receivers do. The output reads this pass's stream.
struct ATTEND_API PathPatching {
  double value = 0, clean = 0, corrupt = 0, recovered = 0;  // recovered: (value - corrupt) / (clean - corrupt)
};
ATTEND_API PathPatching path_patch(const Model& model, const AnswerPair& pair, std::span<const CircuitNode> senders,
                                   std::span<const CircuitNode> receivers);

}  // namespace attend::inline v1
