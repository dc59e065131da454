// Watchers of a pass.
#pragma once

#include <functional>
#include <utility>

#include "models/batch.h"

namespace attend::analysis {

// Calls a function at each place.
class OnPlaces : public models::Watcher {
 public:
  using Function = std::function<void(ModelPlace, std::int64_t, const MutableView&)>;
  explicit OnPlaces(Function function) : function_(std::move(function)) {}
  void at(ModelPlace place, std::int64_t layer, const MutableView& values) override { function_(place, layer, values); }

 private:
  Function function_;
};

}  // namespace attend::analysis
