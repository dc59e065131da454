// What a model's layers are given besides numbers: whose tokens they are, what came before them, and who is watching.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "attend/layers.h"
#include "attend/models.h"
#include "models/kept.h"

namespace attend::inline v1::models {

struct AttentionStep;
class Knockouts;

using Norm = std::variant<const LayerNorm*, const RmsNorm*>;

// Who looks at a pass at its places, and may change what is there.
class Watcher {
 public:
  virtual ~Watcher() = default;
  virtual void at(ModelPlace place, std::int64_t layer, const MutableView& values) = 0;
  // q [1,H,N,D] of the call's ids, as attention gets it, and v [1,Hkv,M,Dv] of those that the call brings keys of,
  // where it does; caches have the keys and values by now. Not of an encoder that a decoder reads, and so the next.
  virtual void attends(const AttentionStep&, const View& /*q*/, const View& /*v*/) {}
  // x [N,E] before a norm.
  virtual void normalises(NormPlace, std::int64_t /*layer*/, const Norm&, const View& /*x*/) {}

 protected:
  Watcher() = default;
  Watcher(const Watcher&) = default;
  Watcher& operator=(const Watcher&) = default;
};

// Which of a model's two stacks a batch goes through; or the model has one.
enum class Stack : std::uint8_t { only, encoder, decoder };

// What an encoder made of the texts that a decoder reads.
struct Memory {
  Tensor states;                     // [M,E]
  std::vector<std::int64_t> starts;  // [sequences + 1]; where it is one sequence, all of the decoder's read it
};

// What a place of a stack's layer is in the model: an encoder that a decoder reads has places of its own.
ModelPlace place_in(Stack stack, ModelPlace place);

// Several sequences, one after another.
struct Batch {
  std::span<const std::int64_t> ids;    // [N]
  std::vector<std::int64_t> starts;     // [sequences + 1]
  std::vector<std::int64_t> positions;  // [N]: of each id in its sequence, what a cache has before it counted
  std::span<const std::int64_t> types;  // [N], or none
  // layers[l][s]: layer l's cache of sequence s; no layers: there are none
  std::vector<std::vector<KvCache*>> layers = {};
  Recorder* recorder = nullptr;
  std::vector<std::int64_t> recorded_ids = {};  // where there is a recorder: of all keys, what a cache has counted
  Watcher* watcher = nullptr;
  const Knockouts* knockouts = nullptr;
  Kept* kept = nullptr;  // what a pass back needs is kept here
  // Of the last layer all keys and values are made, and of each sequence only the first token's row goes on: of those
  // families that can, and before no one's eyes.
  bool first_rows = false;
  Stack stack = Stack::only;
  Activations activations = Activations::exact;   // of the model, for a recorder
  const Memory* memory = nullptr;                 // of a decoder that reads an encoder's text; null: caches have it
  std::vector<std::vector<KvCache*>> cross = {};  // as layers, of the encoder's text

  // Where each sequence begins.
  std::span<const std::int64_t> begins() const { return std::span(starts).first(starts.size() - 1); }
  std::int64_t sequences() const { return static_cast<std::int64_t>(starts.size()) - 1; }
  // Each family's page says so where its pass comes to a place.
  void at(ModelPlace place, std::size_t layer, Tensor& values) const {
    if (watcher) watcher->at(place_in(stack, place), static_cast<std::int64_t>(layer), values.view());
    if (kept) kept->at(place, layer, values);
  }
  // Where all that a layer's gradients need is kept; null: nowhere.
  KeptLayer* keeps(std::size_t layer) const {
    return kept && layer >= kept->whole_from ? &kept->layers[layer] : nullptr;
  }
  // What the projections of a layer give: [N,heads * D], or their heads apart [N,heads,D].
  void projected(std::size_t layer, const MutableView& q, const MutableView& k, const MutableView& v) const;
  // What is at hand there alone: nothing holds its memory longer than is needed.
  Tensor seen(ModelPlace place, std::size_t layer, Tensor values) const {
    at(place, layer, values);
    return values;
  }
  // What the MLP reads where that is the stream, which goes on beside it: who is watching sees a copy, in `copy`.
  View read_by_mlp(std::size_t layer, const Tensor& x, Tensor& copy) const {
    if (!watcher) return x;
    at(ModelPlace::mlp_input, layer, copy = x.clone());
    return copy;
  }
  // norm(x), f32.
  template <class Of>
  Tensor normed(NormPlace place, std::size_t layer, const Of& norm, const Tensor& x) const {
    if (watcher && stack != Stack::encoder) watcher->normalises(place, static_cast<std::int64_t>(layer), &norm, x);
    if (KeptLayer* to = keeps(layer)) to->before_norm[static_cast<std::size_t>(place)] = x.clone();
    return norm.forward(x);
  }
  // Embeddings, before a norm of theirs if there is one.
  void embedded(const Tensor& x) const {
    if (kept) kept->embedded = x.clone();
  }
  // f of a layer's hidden units, times what it gates, if anything.
  void activate(std::size_t layer, Activation f, Tensor& x, const Tensor* gated = nullptr) const;
};

// Attention of fewer rows takes another path, with other bits: of some of a call's rows so many are computed.
inline constexpr std::int64_t fewest_rows = 9;

// How a layer attends: what is not of every model.
struct AttentionStep {
  std::int64_t layer = 0, heads = 0, kv_heads = 0;
  bool causal = false;
  bool cross = false;  // the keys are of the encoder's text
  // How many keys a query sees before it, itself among them, and unless causal as many after it; 0: all.
  std::int64_t window = 0;
  std::optional<double> scale = {};
  double softcap = 0;                      // as AttentionOptions have it, and so the next
  std::optional<View> distance_bias = {};  // [H,2R+1]
  const Linear* output = nullptr;          // what projects the heads' output, for a recorder that wants the keys' sizes

  // All of that as attention() takes it, and whoever makes the layer's weights again: the queries are the last ones.
  AttentionOptions options() const;
  // With where the sequences of the batch and of its keys begin.
  AttentionOptions packed_options(const Batch& batch, const std::vector<std::int64_t>& key_starts) const;
};

// q [N,heads * D], k and v [N,kv_heads * D], row by row in one piece, or their heads apart [N,heads,D], each in one
// piece -> context [N,heads * D]. Each sequence sees
// itself and, where there are caches, what came before it; these then have it too. A watcher may change all three.
Tensor attend(const Batch& batch, const AttentionStep& step, const MutableView& q, const MutableView& k,
              const MutableView& v);
// The first rows of each sequence, so many that attention takes the road that it takes for all of them: its bits are
// the same then.
struct FirstRows {
  explicit FirstRows(const Batch& batch);

  std::vector<std::int64_t> rows;       // of the batch
  std::vector<std::int64_t> starts{0};  // [sequences + 1]: of rows
};
// The same of these rows, q [rows,heads * D], each of which sees all of its sequence.
Tensor attend_first(const Batch& batch, const AttentionStep& step, const FirstRows& rows, const View& q, const View& k,
                    const View& v);
// The same of a decoder's rows over the encoder's text, whose keys and values these two layers make: once, where there
// are caches.
Tensor attend_memory(const Batch& batch, const AttentionStep& step, const MutableView& q, const Linear& key,
                     const Linear& value);

}  // namespace attend::inline v1::models
