// A pass through one stack of layers: a model's, or the encoder's or decoder's of one that has both.
#pragma once

#include <functional>
#include <utility>

#include "models/edits.h"
#include "models/knockouts.h"
#include "models/model.h"

namespace attend::inline v1::models {

// A call's edits, and then who asked to be shown what is there: the call's observer, and a watcher.
class Shown : public Edits {
 public:
  Shown(const ModelCall& call, const Batch& batch, const ModelInfo& info, Watcher* watcher)
      : Edits(call.edits, batch, info), observe_(call.observe), watcher_(watcher) {}
  void at(ModelPlace place, std::int64_t layer, const MutableView& values) override {
    Edits::at(place, layer, values);
    if (observe_) observe_(place, layer, values);
    if (watcher_) watcher_->at(place, layer, values);
  }
  void attends(const AttentionStep& step, const View& q, const View& v) override {
    if (watcher_) watcher_->attends(step, q, v);
  }
  void normalises(NormPlace place, std::int64_t layer, const Norm& norm, const View& x) override {
    if (watcher_) watcher_->normalises(place, layer, norm, x);
  }

 private:
  const std::function<void(ModelPlace, std::int64_t, const View&)>& observe_;
  Watcher* watcher_;
};

// All layers of a stack, before the eyes of the call's edits and observer and of the watcher, and what comes after.
template <class Layers>
Tensor run(const Layers& layers, std::int64_t count, Batch& batch, const ModelCall& call, const ModelInfo& info,
           Watcher* watcher) {
  Shown shown(call, batch, info, watcher);
  batch.watcher = call.edits.empty() && !call.observe ? watcher : &shown;
  const Knockouts knockouts(call.knockouts, batch, info);
  if (!call.knockouts.empty()) batch.knockouts = &knockouts;
  if (batch.recorder) batch.recorded_ids.insert(batch.recorded_ids.end(), batch.ids.begin(), batch.ids.end());
  Tensor x = layers.embed(batch);
  layers.run(batch, x, 0, count);
  batch.at(ModelPlace::residual, static_cast<std::size_t>(count), x);
  Tensor states = layers.finish(std::move(x));
  check_finite(states);
  return states;
}

}  // namespace attend::inline v1::models
