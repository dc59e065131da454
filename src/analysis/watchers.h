// Watchers of a pass.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "models/batch.h"

namespace attend::inline v1::analysis {

// Several, one after another.
class All : public models::Watcher {
 public:
  explicit All(std::vector<models::Watcher*> watchers) : watchers_(std::move(watchers)) {}
  void at(ModelPlace place, std::int64_t layer, const MutableView& values) override {
    for (models::Watcher* each : watchers_) each->at(place, layer, values);
  }
  void attends(const models::AttentionStep& step, const View& q, const View& v) override {
    for (models::Watcher* each : watchers_) each->attends(step, q, v);
  }
  void normalises(models::NormPlace place, std::int64_t layer, const models::Norm& norm, const View& x) override {
    for (models::Watcher* each : watchers_) each->normalises(place, layer, norm, x);
  }

 private:
  std::vector<models::Watcher*> watchers_;
};

// Calls a function at each place.
class OnPlaces : public models::Watcher {
 public:
  using Function = std::function<void(ModelPlace, std::int64_t, const MutableView&)>;
  explicit OnPlaces(Function function) : function_(std::move(function)) {}
  void at(ModelPlace place, std::int64_t layer, const MutableView& values) override { function_(place, layer, values); }

 private:
  Function function_;
};

}  // namespace attend::inline v1::analysis
