// What a model's layers are given besides numbers: whose tokens they are, what came before them, and who is watching.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attend/layers.h"
#include "attend/models.h"

namespace attend::models {

struct AttentionStep;

// Who looks at a pass at its places, and may change what is there.
class Watcher {
 public:
  virtual ~Watcher() = default;
  virtual void at(ModelPlace place, std::int64_t layer, const MutableView& values) = 0;
  // q [1,H,N,D], k [1,Hkv,N,D] and v [1,Hkv,N,Dv] of the call's ids, as attention gets them; caches have them by now.
  virtual void attends(const AttentionStep&, const View& /*q*/, const View& /*k*/, const View& /*v*/) {}

 protected:
  Watcher() = default;
  Watcher(const Watcher&) = default;
  Watcher& operator=(const Watcher&) = default;
};

// Several sequences, one after another.
struct Batch {
  std::span<const std::int64_t> ids;    // [N]
  std::vector<std::int64_t> starts;     // [sequences + 1]
  std::vector<std::int64_t> positions;  // [N]: of each id in its sequence, what a cache has before it counted
  std::span<const std::int64_t> types;  // [N], or none
  // layers[l][s]: layer l's cache of sequence s; no layers: there are none
  std::vector<std::vector<KvCache*>> layers;
  Recorder* recorder = nullptr;
  std::vector<std::int64_t> recorded_ids = {};  // where there is a recorder: of all keys, what a cache has counted
  Watcher* watcher = nullptr;

  std::int64_t sequences() const { return static_cast<std::int64_t>(starts.size()) - 1; }
  // Each family's page says so where its pass comes to a place.
  void at(ModelPlace place, std::size_t layer, Tensor& values) const {
    if (watcher) watcher->at(place, static_cast<std::int64_t>(layer), values.view());
  }
  // What is at hand there alone: nothing holds its memory longer than is needed.
  Tensor seen(ModelPlace place, std::size_t layer, Tensor values) const {
    at(place, layer, values);
    return values;
  }
};

// How a layer attends: what is not of every model.
struct AttentionStep {
  std::int64_t layer = 0, heads = 0, kv_heads = 0;
  bool causal = false;
  std::int64_t window = 0;  // causal: how many keys a query sees, itself among them; 0: all
  std::optional<double> scale = {};
  const Linear* output = nullptr;  // what projects the heads' output, for a recorder that wants the keys' sizes
};

// q [N,heads * D], k and v [N,kv_heads * D], row by row in one piece -> context [N,heads * D]. Each sequence sees
// itself and, where there are caches, what came before it; these then have it too.
Tensor attend(const Batch& batch, const AttentionStep& step, const View& q, const View& k, const View& v);

}  // namespace attend::models
